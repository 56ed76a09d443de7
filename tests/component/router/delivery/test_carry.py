"""Comparison of the fast paths with the slow path in scripted cases.

Random conversations are compared by the fuzz targets `paths` (tests/fuzz).
"""

from collections.abc import Sequence
from typing import Any

import pytest

import sluice.router.testing.engine as engine
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.engine.path_comparison import ONE_USER, ScriptedClients, all_counters, frames_by_delivery
from tests.peer.frames import ACCEPTED, RELEASED, rejected
from tests.peer.talk import consumer, producer, start


def attach_client(router: InProcessRouter, worker: int, listener: str, octets: bytes) -> InProcessPeer:
    peer = router.connect(worker, listener)
    peer.feed(start() + octets)
    router.settle()
    return peer


def play(
    fast: bool,
    address: str,
    attach: dict[str, Any],
    consumers: int,
    actions: list[Any],
    workers: int = 1,
    credit: int = 1000,
    brokers: Sequence[str] = (),
    more: str = "",
) -> tuple[list[list[Any]], list[dict[str, Any]], list[Any], list[Any]]:
    """Return what each peer received, and the counters of the router.

    credit: of the first consumer. brokers: which of the first consumer and the first producer are route containers.
    more: further sections of the configuration.
    """

    def listener(kind: str, number: int) -> str:
        return "broker" if number == 0 and kind in brokers else "main"

    router = InProcessRouter(workers, configuration(more=more))
    engine.use_fast_paths(fast)
    try:
        last = workers - 1  # with two workers, the first consumer and the first producer are on different ones
        consuming = [
            attach_client(router, min(number, last), "kept" if number == 2 else listener("consumer", number),
                     consumer(0, address, 60 if number else credit, **attach))
            for number in range(consumers)
        ]  # fmt: skip
        sending = [
            attach_client(router, max(last - number, 0), listener("producer", number), producer(0, address))
            for number in range(2)
        ]
        scripted = ScriptedClients([router], router.settle, consuming, sending)
        for one in actions:
            scripted.act(*one)
        return [[*frames_by_delivery(octets)] for octets in scripted.heard], *all_counters(router)
    finally:
        engine.use_fast_paths(True)
        router.close()


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, rejected("a:b", "c")])
@pytest.mark.parametrize("lost", ["consumer", "producer"])
@pytest.mark.parametrize("workers", [1, 2])
def test_connection_lost_within_run_settles_alike(outcome: Any, lost: str, workers: int) -> None:
    content = {"size": 10, "header": None, "to": None, "annotated": "none"}
    actions = [
        ("send", 0, 90, False, content),
        ("settle", 0, 40, outcome),
        ("lose", 0 if lost == "consumer" else 1, False),
        ("time", 1),
    ]
    fast = play(True, "balanced.a", {}, 1, actions, workers)
    assert fast == play(False, "balanced.a", {}, 1, actions, workers)
    outcomes = [one for one in fast[0][1] if isinstance(one, tuple)]
    assert [one[:3] for one in outcomes] == [(True, number, True) for number in range(90 if lost == "consumer" else 41)]


@pytest.mark.parametrize("size", [0, 10, 20_000])
@pytest.mark.parametrize("header", [None, [True]])
@pytest.mark.parametrize("attach", [{}, {"snd_settle_mode": 1}])
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("workers", [1, 2])
def test_messages_waiting_for_credit_are_handled_alike(
    size: int, header: Any, attach: dict[str, Any], lost: int, workers: int
) -> None:
    """There are more messages than credit. The consumer grants some credit, then consumer or producer is lost."""
    content = {"size": size, "header": header, "to": None, "annotated": "none"}
    actions = [
        ("send", 0, 60, False, content),
        ("send", 0, 10, True, content),
        ("settle", 0, 9, RELEASED),
        ("flow", 0, 20, False),
        ("flow", 0, 30, True),
        ("lose", lost, False),
        ("time", 1100),
    ]
    fast = play(True, "balanced.a", attach, 1, actions, workers, 20)
    assert fast == play(False, "balanced.a", attach, 1, actions, workers, 20)


def send_and_accept(**fields: Any) -> list[Any]:
    """Return actions that send unsettled and presettled messages, some of which are accepted."""
    content = {"size": 10, "header": None, "to": None, "annotated": "none", **fields}
    return [("send", 0, 60, False, content), ("send", 0, 10, True, content), ("settle", 0, 30, ACCEPTED), ("time", 1)]


@pytest.mark.parametrize("brokers", [("consumer",), ("producer",), ("consumer", "producer")])
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("credit", [1000, 20])
@pytest.mark.parametrize("workers", [1, 2])
def test_container_deliveries_are_counted_alike(
    brokers: Sequence[str], consumers: int, credit: int, workers: int
) -> None:
    """Deliveries from and to brokers are counted as such."""
    fast = play(True, "balanced.a", {}, consumers, send_and_accept(), workers, credit, brokers)
    assert fast == play(False, "balanced.a", {}, consumers, send_and_accept(), workers, credit, brokers)
    assert sum(counters["ingress_container"] for counters in fast[1]) == (70 if "producer" in brokers else 0)
    assert bool(sum(counters["egress_container"] for counters in fast[1])) == ("consumer" in brokers)


@pytest.mark.parametrize("user", [None, b"anonymous", b"other", b"x" * 300])
@pytest.mark.parametrize("header", [None, [True]])
@pytest.mark.parametrize("to", [None, "balanced.b", "b" * 300])
@pytest.mark.parametrize("credit", [1000, 20])
def test_user_id_policy_holds_on_both_paths(user: bytes | None, header: Any, to: str | None, credit: int) -> None:
    actions = send_and_accept(user=user, header=header, to=to)
    fast = play(True, "balanced.a", {}, 1, actions, 1, credit, (), ONE_USER)
    assert fast == play(False, "balanced.a", {}, 1, actions, 1, credit, (), ONE_USER)
    allowed = user in (None, b"anonymous")
    assert bool(fast[1][0]["egress"]) == allowed
