"""States, addresses and configured names that are too long for a record between workers. They stall nobody."""

from typing import Any

import pytest

import sluice.router.testing.engine as engine
from sluice.router.addressing.address import LONGEST
from sluice.router.testing.engine import port_counts
from tests.component.engine.host import configuration
from tests.peer.frames import ACCEPTED, rejected
from tests.peer.talk import consumer, frames, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import Described, Symbol, ULong

RING = 1 << 20  # octets, as in production; a record takes at most a quarter of it
LONG = 300_000
CONFIGURATION = configuration("maxFrameSize: 1048576; linkCapacity: 10").replace(
    "multiTenant: yes", "multiTenant: yes\nmaxFrameSize: 1048576"
)


@pytest.fixture
def router(routers):
    return routers(2, CONFIGURATION, RING)


def connect_pair(router, consuming_worker, sending_worker, address) -> tuple[Any, Any]:
    consuming, sending = router.connect(consuming_worker), router.connect(sending_worker)
    opened = start(max_frame_size=1 << 20)
    consuming.feed(opened + consumer(0, address))
    router.settle()
    sending.feed(opened + producer(0, address))
    router.settle()
    frames(consuming)
    frames(sending)
    return consuming, sending


def outcome(router, consuming, sending, state, settled=True):
    """Return the state that the producer receives when the consumer reports `state` for a message."""
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    consuming.feed(settle(0, state=state, settled=settled))
    router.settle()
    return of(frames(sending), "disposition")[-1].state


def check_other_clients(router):
    for consuming_worker in (0, 1):
        for sending_worker in (0, 1):
            peers = connect_pair(
                router, consuming_worker, sending_worker, f"balanced.{consuming_worker}{sending_worker}"
            )
            assert outcome(router, *peers, ACCEPTED) == ACCEPTED


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("size", [250_000, LONG])
def test_long_state_crosses_without_its_error(router, size, settled):
    state = rejected("amqp:internal-error", "e" * size)
    received = outcome(router, *connect_pair(router, 0, 1, "balanced.a"), state, settled)
    assert received == (state if size < LONG else Described(ULong(0x25), []))
    assert outcome(router, *connect_pair(router, 0, 0, "balanced.b"), state, settled) == state  # needs no record
    check_other_clients(router)


def test_long_modified_and_unknown_states_are_shortened(router):
    failed = Described(ULong(0x27), [True, False, {Symbol("x"): "e" * LONG}])
    assert outcome(router, *connect_pair(router, 0, 1, "balanced.a"), failed).value == [True, False]
    unknown = Described(ULong(0x34), ["e" * LONG])
    assert outcome(router, *connect_pair(router, 0, 1, "balanced.b"), unknown) is None
    check_other_clients(router)


def test_long_state_of_producer_is_shortened(router):
    consuming, sending = connect_pair(router, 0, 1, "balanced.a")
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    frames(consuming)
    sending.feed(settle(0, role=False, state=rejected("a:b", "e" * LONG)))
    router.settle()
    (disposition,) = of(frames(consuming), "disposition")
    assert (disposition.settled, disposition.state) == (True, Described(ULong(0x25), []))
    check_other_clients(router)


@pytest.mark.parametrize("role", ["consumer", "producer"])
@pytest.mark.parametrize(
    "text",
    ["balanced/" + "z" * LONG, "balanced/" + "z" * LONGEST, "amqp://" + "h" * LONG + "/balanced.a"],
    ids=["far too long", "too long", "a short name in a long text"],
)
def test_attach_to_long_address_is_refused(router, role, text):
    peer = router.connect(0)
    peer.feed(start(max_frame_size=1 << 20) + (consumer if role == "consumer" else producer)(0, text))
    router.settle()
    (detach,) = of(frames(peer), "detach")
    assert detach.error.value == ["amqp:resource-limit-exceeded", f"The address is longer than {LONGEST} octets"]
    check_other_clients(router)


@pytest.mark.parametrize("place", [(0, 1), (0, 0)])
def test_longest_address_is_served(router, place: tuple[int, int]):
    address = "balanced/" + "z" * (LONGEST - len("balanced/M0"))
    assert outcome(router, *connect_pair(router, *place, address), ACCEPTED) == ACCEPTED
    check_other_clients(router)


def test_longest_address_and_sections_reach_many_consumers(router):
    """The first record carries all of them. The address is multicast, so that the record has many targets."""
    address = "multicast/" + "z" * (LONGEST - len("multicast/M0"))
    opened = start(max_frame_size=1 << 20)
    consuming, sending = router.connect(0), router.connect(1)
    consuming.feed(opened + b"".join(consumer(handle, address, 1) for handle in range(100)))
    router.settle()
    sending.feed(opened + producer(0, address))
    router.settle()
    frames(consuming)
    octets = message(b"x", annotations=[(Symbol("x-user"), "v" * 130_000)])
    sending.feed(transfer(0, 0, octets, part=200_000))
    router.settle()
    assert len(messages(frames(consuming))) == 100
    sending.feed(say("close"))
    router.settle()
    check_other_clients(router)


def test_tenant_prefix_beyond_length_is_refused(router):
    peer = router.connect(0, "tenants")
    peer.feed(start(max_frame_size=1 << 20, hostname="h" * 40_000) + producer(0, "balanced/" + "z" * 40_000))
    router.settle()
    (detach,) = of(frames(peer), "detach")
    assert detach.error.value[0] == "amqp:resource-limit-exceeded"


def test_record_beyond_limit_is_an_error(router):
    port = router.workers[0].peers[0]
    with pytest.raises(Exception, match="a record of 262145 octets for another worker"):
        engine.post(port, bytes(262_145))
    assert port_counts(port) == (0, 0, 0, 0)
