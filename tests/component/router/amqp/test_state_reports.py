"""Unsettled states on their way to the other end: the latest state of each delivery, within the bound of the buffer."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.router.testing.output import octets_waiting
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.engine.network import client
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected
from tests.peer.talk import consumer, frames, message, of, producer, say, settle, start, transfer
from tests.peer.types import Described, UByte, ULong

OUTPUT_HIGH = 131_072  # octets of a write buffer above which nothing is added (router/amqp/endpoint.pxd)
FRAME = 16_384  # octets of the longest frame
REPORTS_OCTETS = 1_048_576  # octets of waiting states (router/amqp/state_reports.pxd)
DELIVERIES = 8_000
SECOND = UByte(1)  # rcv-settle-mode second: the producer settles, states are relayed
LISTENER = f"linkCapacity: {DELIVERIES}; maxSessionFrames: {2 * DELIVERIES}"
PLAIN_MODIFIED = Described(ULong(0x27), [])
PRIVATE = Described(ULong(0x99), [])
STATES = [ACCEPTED, RELEASED, PLAIN_MODIFIED, PRIVATE, modified(True, False), rejected("a:b", "c")]


def connect_pair(router: InProcessRouter, worker: int, address: str) -> tuple[InProcessPeer, InProcessPeer]:
    """Return a consumer on worker 0, and a producer on `worker`."""
    receiving, sending = router.connect(0), router.connect(worker)
    receiving.feed(start() + consumer(0, address))
    router.settle()
    sending.feed(start() + producer(0, address, rcv_settle_mode=SECOND))
    router.settle()
    return receiving, sending


def send(router: InProcessRouter, sending: InProcessPeer, count: int) -> None:
    for first in range(0, count, 500):
        last = min(first + 500, count)
        sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(first, last)))
        router.settle()


def split(octets: bytes) -> list[bytes]:
    """Return the frames in these octets."""
    found = []
    while octets:
        size = int.from_bytes(octets[:4], "big")
        found.append(octets[:size])
        octets = octets[size:]
    return found


def last_states(peer: InProcessPeer, *, settled: bool = False) -> dict[int, Any]:
    """Return the last state of each delivery that the peer has received."""
    found = {}
    for report in of(frames(peer), "disposition"):
        if bool(report.settled) == settled:
            last = report.first if report.last is None else report.last
            found.update(dict.fromkeys(range(report.first, last + 1), report.state))
    return found


def flood(first_role: bool) -> bytes:
    """Return frames that change the state of each delivery a hundred times. Odd and even deliveries differ."""
    once = b"".join(
        settle(number, state=STATES[number % 2], settled=False, role=first_role) for number in range(0, DELIVERIES, 16)
    )
    return b"".join(
        settle(0, DELIVERIES - 1, rejected("a:b", f"{time}"), settled=False, role=first_role) + once
        for time in range(20)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_states_for_unread_producer_wait_outside_write_buffer(routers, workers: int) -> None:
    router = routers(workers, configuration(LISTENER))
    receiving, sending = connect_pair(router, workers - 1, "balanced.a")
    send(router, sending, DELIVERIES)
    last_states(sending)
    sending.blocked = True
    receiving.feed(flood(True))
    router.settle()
    assert octets_waiting(sending.connection) <= OUTPUT_HIGH + FRAME
    sending.blocked = False
    router.settle()
    last = last_states(sending)
    expected = {number: STATES[number % 2] if number % 16 == 0 else rejected("a:b", "19") for number in last}
    assert len(last) == DELIVERIES
    assert last == expected
    assert octets_waiting(sending.connection) == 0


def test_states_for_unread_consumer_wait_outside_write_buffer(routers) -> None:
    router = routers(1, configuration(LISTENER))
    receiving, sending = connect_pair(router, 0, "balanced.a")
    send(router, sending, DELIVERIES)
    last_states(receiving)
    receiving.blocked = True
    sending.feed(flood(False))
    router.settle()
    assert octets_waiting(receiving.connection) <= OUTPUT_HIGH + FRAME
    receiving.blocked = False
    router.settle()
    last = last_states(receiving)
    assert len(last) == DELIVERIES
    assert last[DELIVERIES - 1] == rejected("a:b", "19")


def test_repeated_state_is_not_written(routers) -> None:
    router = routers(1)
    receiving, sending = connect_pair(router, 0, "balanced.a")
    send(router, sending, 100)
    receiving.feed(settle(0, 99, ACCEPTED, settled=False))
    router.settle()
    assert last_states(sending) == dict.fromkeys(range(100), ACCEPTED)
    receiving.feed(settle(0, 99, ACCEPTED, settled=False) * 10)
    router.settle()
    assert last_states(sending) == {}


@pytest.mark.parametrize("workers", [1, 2])
def test_empty_disposition_keeps_waiting_state(routers, workers: int) -> None:
    router = routers(workers)
    receiving, sending = connect_pair(router, workers - 1, "balanced.a")
    send(router, sending, 10)
    last_states(receiving)
    sending.feed(settle(0, 9, PRIVATE, settled=False, role=False) + settle(0, 9, settled=False, role=False))
    router.settle()
    assert last_states(receiving) == dict.fromkeys(range(10), PRIVATE)
    sending.feed(settle(0, 9, settled=False, role=False))
    router.settle()
    assert of(frames(receiving), "disposition") == []


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("address", ["balanced.a", "multicast.a"])
def test_state_of_incomplete_message_is_sent_with_it(routers, workers: int, address: str) -> None:
    """No consumer has a copy of the message yet."""
    router = routers(workers)
    receiving, sending = connect_pair(router, workers - 1, address)
    first, second = split(transfer(0, 0, message(bytes(20_000))))
    sending.feed(first + settle(0, 0, PRIVATE, settled=False, role=False) + second)
    router.settle()
    transfers = of(frames(receiving), "transfer")
    assert [each.state for each in transfers] == [PRIVATE]


def test_outcome_replaces_waiting_state(routers) -> None:
    router = routers(1)
    receiving, sending = connect_pair(router, 0, "balanced.a")
    send(router, sending, 10)
    receiving.feed(settle(0, 9, ACCEPTED, settled=False) + settle(0, 9, RELEASED))
    router.settle()
    reports = [(r.first, r.last, bool(r.settled), r.state) for r in of(frames(sending), "disposition")]
    assert reports == [(0, 9, True, RELEASED)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("address", ["balanced.a", "multicast.a"])
@given(st.lists(st.sampled_from(STATES), min_size=2, max_size=12), st.booleans())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_outcomes_settled_in_one_wake_keep_their_state(routers, workers, address, states, two_steps) -> None:
    """Outcomes that are not the first of a wake must not be reported by their kind alone, even if they have four
    octets."""
    if address == "multicast.a":
        states = [state for state in states if state is not PRIVATE] or [ACCEPTED]
    router = routers(workers)
    receiving, sending = connect_pair(router, workers - 1, address)
    send(router, sending, len(states))
    if two_steps:
        receiving.feed(b"".join(settle(n, state=state, settled=False) for n, state in enumerate(states)))
        router.settle()
        assert last_states(sending) == dict(enumerate(states))
    receiving.feed(b"".join(settle(n, state=state) for n, state in enumerate(states)))
    router.settle()
    assert last_states(sending, settled=True) == dict(enumerate(states))
    for peer in (receiving, sending):
        peer.lose()
    router.settle()


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_for_unread_producer_wait_outside_write_buffer(routers, workers: int) -> None:
    router = routers(workers, configuration(LISTENER))
    receiving, sending = connect_pair(router, workers - 1, "balanced.a")
    send(router, sending, DELIVERIES)
    last_states(sending)
    sending.blocked = True
    for first in range(0, DELIVERIES, 100):
        receiving.feed(b"".join(settle(n, state=rejected("a:b", f"{n}")) for n in range(first, first + 100)))
        router.settle()
    assert octets_waiting(sending.connection) <= OUTPUT_HIGH + FRAME
    sending.blocked = False
    router.settle()
    assert last_states(sending, settled=True) == {n: rejected("a:b", f"{n}") for n in range(DELIVERIES)}


def test_long_outcomes_beyond_bound_lose_their_fields(routers) -> None:
    router = routers(1, configuration(LISTENER))
    receiving, sending = connect_pair(router, 0, "balanced.a")
    send(router, sending, DELIVERIES)
    last_states(sending)
    sending.blocked = True
    error = rejected("a:b", "x" * 900)
    receiving.feed(b"".join(settle(n, state=error) for n in range(0, DELIVERIES, 2)))
    router.settle()
    assert octets_waiting(sending.connection) <= OUTPUT_HIGH + FRAME
    sending.blocked = False
    router.settle()
    outcomes = last_states(sending, settled=True)
    assert list(outcomes) == list(range(0, DELIVERIES, 2))
    whole = [n for n, state in outcomes.items() if state == error]
    assert whole == list(outcomes)[: len(whole)]
    assert REPORTS_OCTETS <= len(whole) * 900 <= REPORTS_OCTETS + OUTPUT_HIGH + FRAME
    assert {repr(outcomes[n]) for n in outcomes if n > whole[-1]} == {repr(Described(ULong(0x25), []))}


def test_unread_producer_gets_no_credit(routers) -> None:
    """Outcomes for the producer wait, and more credit would mean more outcomes."""
    router = routers(1, configuration(LISTENER))
    receiving, sending = connect_pair(router, 0, "balanced.a")
    send(router, sending, DELIVERIES)
    frames(sending)
    sending.blocked = True
    for first in range(0, DELIVERIES, 100):
        receiving.feed(b"".join(settle(n, state=rejected("a:b", f"{n}")) for n in range(first, first + 100)))
        router.settle()
    sending.blocked = False
    router.settle()
    names = [frame.name for frame in frames(sending) if frame.name in ("flow", "disposition")]
    assert names[-1] == "flow"
    assert "flow" not in names[len(names) // 2 : -1]


def test_waiting_outcomes_precede_detach(routers) -> None:
    router = routers(1, configuration(LISTENER))
    receiving, sending = connect_pair(router, 0, "balanced.a")
    send(router, sending, DELIVERIES)
    last_states(sending)
    sending.blocked = True
    receiving.feed(b"".join(settle(n, state=rejected("a:b", f"{n}")) for n in range(DELIVERIES)))
    router.settle()
    sending.feed(say("detach", handle=0, closed=True))
    router.settle()
    sending.blocked = False
    router.settle()
    names = [frame.name for frame in frames(sending) if frame.name in ("detach", "disposition")]
    assert names == ["disposition"] * DELIVERIES + ["detach"]


def test_states_for_unread_router_let_turns_end(networks) -> None:
    """The link of control messages may fill the write buffer to twice the bound, states only to the bound."""
    network = networks("AB", 1, listener=LISTENER.replace("; ", "\n    "))
    joint = network.join("A", "B")
    network.converge()
    receiving = client(network, "A", consumer(0, "states"))
    client(network, "B", consumer(0, "bulk"))
    network.pass_seconds(2)
    sending = client(network, "B", producer(0, "states", rcv_settle_mode=SECOND))
    filling = client(network, "A", producer(0, "bulk"))
    sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(100)))
    network.settle()
    frames(sending)
    (uplink,) = (end for end in joint.ends if end.host is network["A"])
    joint.held = uplink.blocked = True
    filling.feed(b"".join(transfer(0, number, message(bytes(1000)), settled=True) for number in range(200)))
    network.settle()
    assert octets_waiting(uplink.connection) >= OUTPUT_HIGH
    receiving.feed(b"".join(settle(n, state=STATES[n % 2], settled=False) for n in range(100)))
    network.pass_seconds(2)
    joint.held = uplink.blocked = False
    network.settle()
    assert last_states(sending) == {n: STATES[n % 2] for n in range(100)}
