"""All fuzz targets: the generator and the runner of each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from tests.component.engine import parsers
from tests.component.engine.deliveries import conversation as delivery_conversation
from tests.component.engine.path_comparison import ONE_USER, compare
from tests.component.engine.replay import play
from tests.fuzz import captures, logins, payloads, proxy, rules, samples, takeover, websocket
from tests.fuzz.conversation import OtherRouters, conversation
from tests.fuzz.routers import RouterModel, about_routers
from tests.peer.random_peer import Habits

Case = dict[str, Any]
ROUTERS: Final = OtherRouters("network", RouterModel, about_routers)


@dataclass(frozen=True)
class FuzzTarget:
    """Generator and runner of cases. The generator gets a random generator seeded by the case's seed."""

    generate: Callable[[Random], Case]
    run: Callable[[Case], None]


def _alone(rng: Random, workers: int) -> Case:
    return conversation(rng, workers)


def _with_routers(rng: Random, workers: int) -> Case:
    return conversation(rng, workers, ROUTERS)


def _on_one_address(rng: Random, workers: int) -> Case:
    """Return a conversation of clients that mostly use one address, with a policy for user-ids or without."""
    address = rng.choice(("balanced.a", "balanced.a", "closest.a", "multicast.a", "spare.a"))
    habits = Habits.steady(address, routed=rng.choice((0.0, 0.0, 0.1)))
    more = rng.choice(("", "", ONE_USER))
    return {**conversation(rng, workers, habits=habits), "more": more}


PARSERS: Final = {
    "codec": FuzzTarget(samples.any_value, parsers.codec),
    "performatives": FuzzTarget(samples.performative, parsers.performatives),
    "message": FuzzTarget(samples.message, parsers.message),
    "trace_context": FuzzTarget(samples.traced_message, parsers.trace_context),
    "columns": FuzzTarget(samples.message, parsers.columns),
    "sasl": FuzzTarget(samples.sasl, parsers.sasl),
    "config": FuzzTarget(samples.config, parsers.config),
    "json": FuzzTarget(samples.json_document, parsers.json_document),
    "address": FuzzTarget(samples.address, parsers.address),
    "login": FuzzTarget(logins.login, logins.run_login),
    "token": FuzzTarget(logins.token, logins.run_token),
    "service": FuzzTarget(logins.service_open, logins.run_service_open),
    "users": FuzzTarget(logins.users_file, logins.run_users_file),
    "policy": FuzzTarget(samples.policy, parsers.policy),
    "rules": FuzzTarget(rules.rules, rules.run_rules),
    "websocket": FuzzTarget(websocket.stream, websocket.run_stream),
    "handshake": FuzzTarget(websocket.head, websocket.run_head),
    "proxy": FuzzTarget(proxy.header, proxy.run_header),
    "payload-json": FuzzTarget(payloads.json_body, payloads.run_json),
    "payload-avro": FuzzTarget(payloads.avro_body, payloads.run_avro),
    "payload-protobuf": FuzzTarget(payloads.protobuf_body, payloads.run_protobuf),
    "capture": FuzzTarget(captures.capture, captures.run_capture),
    "copy": FuzzTarget(captures.copy, captures.run_copy),
    "outcome": FuzzTarget(samples.delivery_state, parsers.outcome),
    "takeover": FuzzTarget(takeover.message, takeover.run_message),
}
#: Conversations with a router of one to three workers, and conversations with other routers.
ENGINE: Final = {f"engine-{count}": FuzzTarget(partial(_alone, workers=count), play) for count in (1, 2, 3)}
NETWORK: Final = {f"network-{count}": FuzzTarget(partial(_with_routers, workers=count), play) for count in (1, 2)}
#: Conversations that are played with fast paths and without.
PATHS: Final = {f"paths-{count}": FuzzTarget(partial(_on_one_address, workers=count), compare) for count in (1, 2)}
#: Conversations about deliveries, with an exact model of the reports that each end must receive.
DELIVERIES: Final = {
    name: FuzzTarget(generate, delivery_conversation.run) for name, generate in delivery_conversation.TARGETS.items()
}
TARGETS: Final = {**PARSERS, **ENGINE, **NETWORK, **PATHS, **DELIVERIES}


def case(name: str, seed: int) -> Case:
    """Return the case of a target for this seed."""
    return TARGETS[name].generate(Random(f"{name} {seed}"))
