"""A malformed record of another worker closes the port, whose deliveries end as when a worker is lost."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import router.testing.engine as engine
from router.interworker.errors import MalformedRecordError
from router.testing import records
from tests.peer.frames import ACCEPTED
from tests.peer.types import Described, ULong
from tests.unit.engine.host import Router
from tests.unit.engine.talk import consumer, frames, message, messages, of, producer, settle, start, transfer

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
def router() -> Iterator[Router]:
    """A router that a worker is lost of, with what it holds."""
    made = Router(3)
    yield made
    made.abandon()
    gc.collect()


def pair(router: Router, consuming_worker: int, sending_worker: int, address: str) -> tuple[Any, Any]:
    consuming, sending = router.connect(consuming_worker), router.connect(sending_worker)
    consuming.feed(start() + consumer(0, address))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    frames(consuming)
    frames(sending)
    return consuming, sending


@pytest.mark.parametrize("record", MALFORMED.values(), ids=MALFORMED)
def test_malformed_record_closes_the_port_and_ends_its_deliveries(router: Router, record: bytes) -> None:
    there, sender = pair(router, 1, 0, "balanced.there")
    here, remote_sender = pair(router, 0, 1, "balanced.here")
    bystander, other_sender = pair(router, 0, 2, "balanced.bystander")
    sender.feed(transfer(0, 0, message(b"for the other worker")))
    remote_sender.feed(transfer(0, 0, message(b"from the other worker")))
    router.settle()
    assert messages(frames(here)) == [message(b"from the other worker")]
    assert messages(frames(there)) == [message(b"for the other worker")]
    reader, writer = router.workers[0], router.workers[1]
    counted = router.region.worker_counters(0)["checks_failed"]
    engine.post(writer.ports[0], record)
    engine.post(writer.ports[0], PLAIN)  # nothing behind the malformed record is read
    router.settle_with_faults()
    assert [type(fault) for fault in reader.faults] == [MalformedRecordError]
    reader.faults.clear()
    assert router.region.worker_counters(0)["checks_failed"] == counted + 1
    # The supervisor has ended the writer of the record; what was with it may have been delivered.
    assert writer not in router.workers
    (report,) = of(frames(sender), "disposition")
    assert (report.first, report.settled, report.state) == (0, True, FAILED_DELIVERY)
    assert messages(frames(here)) == []
    here.feed(settle(0, state=ACCEPTED))
    # Others are served as before.
    other_sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    assert messages(frames(bystander)) == [message(b"x")]
    bystander.feed(settle(0, state=ACCEPTED))
    router.settle()
    assert of(frames(other_sender), "disposition")[-1].state == ACCEPTED
