"""Malformed records of another worker: the port closes, and its deliveries end as when a worker is lost."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sluice.router.testing.engine as engine
from sluice.router.ring.errors import MalformedRecordError
from sluice.router.testing import records
from tests.component.engine.host import InProcessRouter
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, messages, of, producer, settle, start, transfer
from tests.peer.types import Described, ULong

MORE, STATED = 2, 8
CONTINUE, UPDATE, SETTLED, RETURNED, WINDOW = 2, 3, 4, 5, 6
LINK_TRANSFER = 16
HEAD = 24
FAILED_DELIVERY = Described(ULong(0x27), [True, False])  # modified, as the router writes it
COUNT_AT, EXTRA_AT = 4, 16
PLAIN = records.transfer(0, 0, 0, 0, 1000, [(0, 1)], b"to", b"", b"state", message(b"x"))


def with_word(record: bytes, at: int, value: int) -> bytes:
    return record[:at] + value.to_bytes(4, "little") + record[at + 4 :]


MALFORMED = {
    "empty": b"",
    "unknown-type": bytes([9]) + bytes(HEAD),
    "transfer-cut-in-head": PLAIN[:20],
    "transfer-of-too-many-targets": with_word(PLAIN, COUNT_AT, 0xFFFFFFFF),
    "transfer-of-too-long-address": with_word(PLAIN, EXTRA_AT, 0xFFFFFFF0),
    "transfer-of-too-long-state": with_word(PLAIN, HEAD + 8 + 2, 0xFFFFFFF0),
    "transfer-of-stream-without-octets": records.transfer(MORE, 0, 0, 0, 1000, [(0, 1)], b"", b"", b"", b""),
    "update-longer-than-its-state": records.delivery(UPDATE, 0, 0, 0, 0, b"state") + b"x",
    "outcome-of-a-delivery-never-sent": records.delivery(SETTLED, 8, 0x24, 1, 1, b""),
    "outcome-of-too-many-deliveries": records.delivery(SETTLED, 8, 0x24, 0, 0xFFFFFFFF, b""),
    "outcome-that-wraps": records.delivery(RETURNED, 8, 0, 2**64 - 1, 2, b""),
    "window-of-a-whole-message": records.window(0, 1),
    "continue-of-a-complete-delivery": records.delivery(CONTINUE, 0, 0, 0, 0, b"more", stated=False),
    "link-cut-in-tag": records.link(LINK_TRANSFER, 1, 0, 0, 1, 0, b"tag", b"", b"")[:-1],
}


@pytest.fixture
def router() -> Iterator[InProcessRouter]:
    """Router that loses a worker, with whatever it holds then."""
    before = engine.live_objects()
    made = InProcessRouter(3)
    yield made
    made.abandon()
    gc.collect()
    assert engine.live_objects() == before


def connect_pair(router: InProcessRouter, consuming_worker: int, sending_worker: int, address: str) -> tuple[Any, Any]:
    consuming, sending = router.connect(consuming_worker), router.connect(sending_worker)
    consuming.feed(start() + consumer(0, address))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    frames(consuming)
    frames(sending)
    return consuming, sending


@pytest.mark.parametrize("record", MALFORMED.values(), ids=MALFORMED)
def test_malformed_record_closes_the_port_and_ends_its_deliveries(router: InProcessRouter, record: bytes) -> None:
    there, sender = connect_pair(router, 1, 0, "balanced.there")
    here, remote_sender = connect_pair(router, 0, 1, "balanced.here")
    bystander, other_sender = connect_pair(router, 0, 2, "balanced.bystander")
    sender.feed(transfer(0, 0, message(b"for the other worker")))
    remote_sender.feed(transfer(0, 0, message(b"from the other worker")))
    router.settle()
    assert messages(frames(here)) == [message(b"from the other worker")]
    assert messages(frames(there)) == [message(b"for the other worker")]
    reader, writer = router.workers[0], router.workers[1]
    counted = router.region.worker_counters(0)["checks_failed"]
    engine.post(writer.ports[0], record)
    engine.post(writer.ports[0], PLAIN)  # never read, behind a malformed record
    router.settle_with_faults()
    assert [type(fault) for fault in reader.faults] == [MalformedRecordError]
    reader.faults.clear()
    assert router.region.worker_counters(0)["checks_failed"] == counted + 1
    # The supervisor has ended the writer of the record. Deliveries to that worker may have been delivered.
    assert writer not in router.workers
    (report,) = of(frames(sender), "disposition")
    assert (report.first, report.settled, report.state) == (0, True, FAILED_DELIVERY)
    assert messages(frames(here)) == []
    here.feed(settle(0, state=ACCEPTED))
    # Other clients are served.
    other_sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    assert messages(frames(bystander)) == [message(b"x")]
    bystander.feed(settle(0, state=ACCEPTED))
    router.settle()
    assert of(frames(other_sender), "disposition")[-1].state == ACCEPTED


#: Slot and generation of the consumer in the test below.
HERE = (0, (1 << 20) + 1)
STATE = b"\x00S$E"
SECRET = b"octets of another client"
HEADS = 200  # bound for the octets of the frames around what a record delivers
#: Valid records of all kinds, for the state that the test below creates.
VALID = [
    records.transfer(0, 32, 0, 0, 7, [HERE], b"", b"", b"", message(b"x" * 50)),
    records.transfer(16, 0, 1, 0, 7, [HERE, (0, 1)], b"\xa1\x01a", b"\xc0\x01\x00", STATE, message(b"x" * 50)),
    records.transfer(MORE, 0, 0, 0, 7, [HERE], b"", b"", STATE, message(b"x" * 50)),
    records.delivery(CONTINUE, MORE, 0, 0, 0, b"more", stated=False),
    records.delivery(UPDATE, 8, 0x24, 0, 0, STATE),
    records.delivery(UPDATE, 4, 0x27, 0, 0, b"\x00S'E"),
    records.delivery(SETTLED, 8, 0x24, 0, 1, b""),
    records.delivery(RETURNED, 8, 0, 0, 1, b""),
    records.window(0, 10),
    records.link(LINK_TRANSFER, 1, 0, 0, 1 << 20, 0, b"tag", STATE, b"octets"),
    records.link(LINK_TRANSFER + 2, 2, 0x24, 0, 1 << 20, 0, b"", STATE, b""),
    records.link(LINK_TRANSFER + 4, 0, 0, 0, 1 << 20, 0, b"", b"", b""),
]


@settings(max_examples=100)
@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4),
    st.integers(0, 200),
)
def test_changed_record_is_refused_or_delivers_octets_of_its_own(
    record: bytes, changes: list[tuple[int, int]], end: int
) -> None:
    octets = bytearray(record)
    for at, value in changes:
        if at < len(octets):
            octets[at] = value
    octets = octets[:end]
    router = InProcessRouter(2)
    here, _ = connect_pair(router, 0, 1, "balanced.here")
    there, sender = connect_pair(router, 1, 0, "balanced.there")
    sender.feed(transfer(0, 0, message(b"for the other worker")))
    # Deliveries of another client to another consumer are in the same ring, behind and in front of the record.
    elsewhere, other_sender = connect_pair(router, 0, 1, "balanced.elsewhere")
    other_sender.feed(b"".join(transfer(0, number, message(SECRET)) for number in range(20)))
    router.settle()
    assert len(messages(frames(elsewhere))) == 20
    assert messages(frames(there)) == [message(b"for the other worker")]
    (link,) = here.client.links.by_number.values()
    assert (link.slot.index, link.slot.generation) == HERE
    engine.post(router.workers[1].ports[0], bytes(octets))
    router.settle_with_faults()
    # The frames are not parsed: the writer, not the decoder, is to blame for a state of changed octets.
    written = here.take()
    assert len(written) <= len(octets) + HEADS
    assert SECRET not in written
    reader = router.workers[0]
    assert all(isinstance(fault, MalformedRecordError) for fault in reader.faults), reader.faults
    # Deliveries left behind would count in the memory bounds of later tests, because all workers share a process.
    for peer in list(router.peers):
        peer.lose()
    router.settle_with_faults()
    router.abandon()
