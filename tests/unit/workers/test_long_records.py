"""States, addresses and configured names that are too long for a record between workers. They stall nobody."""

from typing import Any

import pytest

import router.testing.engine as engine
from router.addressing.address import LONGEST
from tests.peer.frames import ACCEPTED, rejected
from tests.peer.types import Described, Symbol, ULong
from tests.unit.engine.host import configuration
from tests.unit.engine.talk import consumer, frames, message, messages, of, producer, say, settle, start, transfer

RING = 1 << 20  # octets, as in production; a record takes at most a quarter of it
LONG = 300_000
CONFIGURATION = configuration("maxFrameSize: 1048576; linkCapacity: 10").replace(
    "multiTenant: yes", "multiTenant: yes\nmaxFrameSize: 1048576"
)


@pytest.fixture
def router(routers):
    return routers(2, CONFIGURATION, RING)


def pair(router, consuming_worker, sending_worker, address) -> tuple[Any, Any]:
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


def others_are_served(router):
    for consuming_worker in (0, 1):
        for sending_worker in (0, 1):
            peers = pair(router, consuming_worker, sending_worker, f"balanced.{consuming_worker}{sending_worker}")
            assert outcome(router, *peers, ACCEPTED) == ACCEPTED


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("size", [250_000, LONG])
def test_a_state_that_is_too_long_is_told_without_its_words(router, size, settled):
    state = rejected("amqp:internal-error", "e" * size)
    heard = outcome(router, *pair(router, 0, 1, "balanced.a"), state, settled)
    assert heard == (state if size < LONG else Described(ULong(0x25), []))
    assert outcome(router, *pair(router, 0, 0, "balanced.b"), state, settled) == state  # needs no record
    others_are_served(router)


def test_other_states_that_are_too_long(router):
    failed = Described(ULong(0x27), [True, False, {Symbol("x"): "e" * LONG}])
    assert outcome(router, *pair(router, 0, 1, "balanced.a"), failed).value == [True, False]
    unknown = Described(ULong(0x34), ["e" * LONG])
    assert outcome(router, *pair(router, 0, 1, "balanced.b"), unknown) is None
    others_are_served(router)


def test_a_state_of_the_producer_that_is_too_long(router):
    consuming, sending = pair(router, 0, 1, "balanced.a")
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    frames(consuming)
    sending.feed(settle(0, role=False, state=rejected("a:b", "e" * LONG)))
    router.settle()
    (told,) = of(frames(consuming), "disposition")
    assert (told.settled, told.state) == (True, Described(ULong(0x25), []))
    others_are_served(router)


@pytest.mark.parametrize("role", ["consumer", "producer"])
@pytest.mark.parametrize(
    "text",
    ["balanced/" + "z" * LONG, "balanced/" + "z" * LONGEST, "amqp://" + "h" * LONG + "/balanced.a"],
    ids=["far too long", "too long", "a short name in a long text"],
)
def test_an_attach_to_an_address_that_is_too_long_is_refused(router, role, text):
    peer = router.connect(0)
    peer.feed(start(max_frame_size=1 << 20) + (consumer if role == "consumer" else producer)(0, text))
    router.settle()
    (detach,) = of(frames(peer), "detach")
    assert detach.error.value == ["amqp:resource-limit-exceeded", f"The address is longer than {LONGEST} octets"]
    others_are_served(router)


@pytest.mark.parametrize("place", [(0, 1), (0, 0)])
def test_the_longest_address_is_served(router, place: tuple[int, int]):
    address = "balanced/" + "z" * (LONGEST - len("balanced/M0"))
    assert outcome(router, *pair(router, *place, address), ACCEPTED) == ACCEPTED
    others_are_served(router)


def test_the_longest_address_with_the_longest_sections_to_the_most_consumers(router):
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
    others_are_served(router)


def test_a_tenant_makes_an_address_too_long(router):
    peer = router.connect(0, "tenants")
    peer.feed(start(max_frame_size=1 << 20, hostname="h" * 40_000) + producer(0, "balanced/" + "z" * 40_000))
    router.settle()
    (detach,) = of(frames(peer), "detach")
    assert detach.error.value[0] == "amqp:resource-limit-exceeded"


def test_a_record_that_never_fits_is_an_error_and_waits_nowhere(router):
    port = router.workers[0].peers[0]
    with pytest.raises(Exception, match="a record of 262145 octets for another worker"):
        engine.post(port, bytes(262_145))
    assert port.counts() == (0, 0, 0)
