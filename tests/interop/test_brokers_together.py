"""Several real brokers behind one router: chains, fallback, a link route to both, shards added and lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher
from tests.interop.gateway import connector
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.router import RouterProcess, Section, listener

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

COUNT = 40
ACTIVE_LIMIT = 30.0  # seconds until a restarted broker is connected again
AUTO_LINK = "router.config.autoLink"

StartRouter = Callable[..., RouterProcess]


def auto_link(broker: BrokerProcess, address: str, direction: str, queue: str, **more: Any) -> Section:
    """Return an auto link to an existing queue."""
    name = f"{address}-{direction}-{broker.name}-{more.get('phase', '')}"
    there = {"connection": broker.name, "externalAddress": broker.existing(queue)}
    return "autoLink", {"name": name, "address": address, "direction": direction, **there, **more}


@pytest.fixture(params=[1, 3], ids=["1-worker", "3-workers"])
def start_router(
    request: pytest.FixtureRequest, tmp_path: Path, rabbitmq: BrokerProcess, artemis: BrokerProcess
) -> Iterator[StartRouter]:
    """Factory start_router(queues, sections): creates the queues at both brokers and starts a router in front of them.

    The router has connectors to both brokers; its auto links and link routes are active.
    """
    routers: list[RouterProcess] = []
    clients = ClientLauncher.for_proton()

    def start(queues: list[str], sections: list[Section]) -> RouterProcess:
        both = (rabbitmq, artemis)
        for broker in both:
            for queue in queues:
                assert clients("durable_queue", broker.port, queue).result() is True
        router = RouterProcess(tmp_path, [listener(), *map(connector, both), *sections], request.param)
        router.start()
        routers.append(router)
        links = [attributes["name"] for name, attributes in sections if name == "autoLink"]
        wait_active(router, links)
        return router

    yield start
    clients.stop()
    for router in routers:
        router.stop()


def wait_active(router: RouterProcess, names: list[str]) -> None:
    """Wait until the named auto links and all link routes are active."""

    def done() -> bool:
        peer = AmqpPeer.opened(router.port)
        agent = Management(peer)
        states = {row["name"]: row["operStatus"] for row in agent.query(AUTO_LINK)}
        routes = {row["operStatus"] for row in agent.query("router.config.linkRoute")}
        peer.drop()
        return all(states[name] == "active" for name in names) and routes <= {"active"}

    router.wait(done, "auto links and link routes are active", ACTIVE_LIMIT)


def test_chain_of_two_brokers_delivers(
    start_router: StartRouter, rabbitmq: BrokerProcess, artemis: BrokerProcess, proton: ClientLauncher
) -> None:
    """A message passes a queue on the first broker, then a queue on the second, then reaches the receiver."""
    router = start_router(
        ["chain.one", "chain.two"],
        [
            ("address", {"prefix": "chain", "ingressPhase": 0, "egressPhase": 2}),
            auto_link(rabbitmq, "chain.q", "out", "chain.one", phase=0),
            auto_link(rabbitmq, "chain.q", "in", "chain.one", phase=1),
            auto_link(artemis, "chain.q", "out", "chain.two", phase=1),
            auto_link(artemis, "chain.q", "in", "chain.two", phase=2),
        ],
    )
    assert proton("steady", router.port, "chain.q", COUNT).result() == {"accepted": COUNT}
    assert proton("collect", router.port, "chain.q", COUNT).result() == COUNT
    peer = AmqpPeer.opened(router.port)
    links = Management(peer).query("router.link")
    peer.drop()
    counts = {
        (row["owningAddr"], row["linkDir"]): row["deliveryCount"]
        for row in links
        if row["linkName"].startswith("qdlink.")
    }
    # The last queue may have sent more messages than the receiver took; the others returned to the queue.
    assert counts["M0chain.q", "out"] == counts["M1chain.q", "in"] == counts["M1chain.q", "out"] == COUNT
    assert counts["M2chain.q", "in"] >= COUNT


def test_fallback_broker_stores_without_receiver(
    start_router: StartRouter, artemis: BrokerProcess, proton: ClientLauncher
) -> None:
    """Without a receiver, messages go to the broker and from there to the next receiver; with one, they bypass it."""
    router = start_router(
        ["fallback.q"],
        [
            ("address", {"prefix": "fb", "enableFallback": True}),
            auto_link(artemis, "fb.q", "out", "fallback.q", fallback=True),
            auto_link(artemis, "fb.q", "in", "fallback.q", fallback=True),
        ],
    )
    assert proton("steady", router.port, "fb.q", COUNT).result() == {"accepted": COUNT}
    assert proton("collect", artemis.port, "fallback.q", COUNT).result() == COUNT, "the broker has them"
    assert proton("steady", router.port, "fb.q", COUNT).result() == {"accepted": COUNT}
    assert proton("collect", router.port, "fb.q", COUNT).result() == COUNT, "the receiver gets what the broker has"
    to_broker = fallback_count(router)
    collect = proton("collect", router.port, "fb.q", COUNT)
    collect.wait_for("attached")
    assert proton("steady", router.port, "fb.q", COUNT).result() == {"accepted": COUNT}
    assert collect.result() == COUNT
    assert fallback_count(router) == to_broker, "with a receiver there the broker gets none"


def fallback_count(router: RouterProcess) -> int:
    """Return the number of messages that went to the broker."""
    peer = AmqpPeer.opened(router.port)
    (row,) = [
        row
        for row in Management(peer).query("router.link")
        if row["linkName"].startswith("qdlink.") and row["linkDir"] == "out"
    ]
    peer.drop()
    return int(row["deliveryCount"])


def test_link_route_alternates_between_brokers(
    start_router: StartRouter, rabbitmq: BrokerProcess, artemis: BrokerProcess, proton: ClientLauncher
) -> None:
    """Attached links alternate between both brokers; the messages of a link are on its broker."""
    sections = [
        ("linkRoute", {"name": f"{broker.name}-{direction}", "prefix": "both", "direction": direction,
                       "connection": broker.name})
        for broker in (rabbitmq, artemis)
        for direction in ("in", "out")
    ]  # fmt: skip
    router = start_router([], sections)
    for _ in range(4):
        assert proton("simple_send", router.port, "both.q", COUNT).result() == COUNT
    for broker in (rabbitmq, artemis):
        assert len(proton("simple_recv", broker.port, "both.q", 2 * COUNT).result()) == 2 * COUNT
    rabbitmq.kill()
    try:
        router.wait(lambda: router.log.count("Link Route Deactivated") == 2, "the loss is noticed")
        for _ in range(2):
            assert proton("simple_send", router.port, "both.q", COUNT).result() == COUNT
    finally:
        rabbitmq.start()
    assert len(proton("simple_recv", artemis.port, "both.q", 2 * COUNT).result()) == 2 * COUNT


@pytest.mark.timeout(120)
def test_sharded_queue_survives_added_and_lost_shards(
    start_router: StartRouter, rabbitmq: BrokerProcess, artemis: BrokerProcess, proton: ClientLauncher
) -> None:
    """A sharded queue starts on one broker, gets a second shard by management, loses the first and recovers it."""
    name = "shards.q"
    sections = [("address", {"prefix": "shards", "waypoint": True})]
    sections += [auto_link(artemis, name, direction, name) for direction in ("in", "out")]
    router = start_router([name], sections)
    address, count = name, 400
    collect = proton("collect", router.port, address, 3 * count)
    outcomes = proton("steady", router.port, address, count).result()
    assert outcomes["accepted"] == count
    added = [auto_link(rabbitmq, name, direction, name)[1] for direction in ("in", "out")]
    peer = AmqpPeer.opened(router.port)
    for attributes in added:
        Management(peer).create(AUTO_LINK, attributes.pop("name"), **attributes)
    peer.drop()
    own = [f"{name}-{direction}-RabbitMQ-" for direction in ("in", "out")]
    wait_active(router, own)
    steady = proton("steady", router.port, address, 3 * count)
    steady.wait_for("begun")
    artemis.restart()
    assert steady.result()["accepted"] == 3 * count, "the other shard takes over"
    assert collect.result() >= 3 * count
    wait_active(router, [f"{name}-{direction}-Artemis-" for direction in ("in", "out")])
    assert proton("steady", router.port, address, COUNT).result()["accepted"] == COUNT
    assert min(shard_delivery_counts(router)) > 0, "both have messages again"
    assert proton("collect", router.port, address, COUNT).result() >= COUNT


def shard_delivery_counts(router: RouterProcess) -> list[int]:
    """Return the number of messages sent to each shard since its connection was opened."""
    peer = AmqpPeer.opened(router.port)
    rows = Management(peer).query("router.link")
    peer.drop()
    return [row["deliveryCount"] for row in rows if row["owningAddr"] == "M0shards.q" and "qdlink." in row["linkName"]]
