"""Lander against a small broker in this process: landing before settlement, credit, failed writes, the end."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sluice.pipeline import lander as module
from sluice.pipeline import merging
from sluice.pipeline.commands.bench import deliveries
from sluice.pipeline.errors import LandingError, LockedError, PipelineError
from sluice.pipeline.lander import MEMORY_FACTOR
from sluice.pipeline.segments import LOCK, Group, Landing, LandingLog
from sluice.pipeline.stores import LocalStore
from sluice.pipeline.writer import SegmentWriter
from sluice.router.client import Backoff
from sluice.router.client.message import Message
from sluice.router.client.outcome import Accepted, Rejected, Released, decode, encode
from tests.unit.pipeline.lander_run import LanderRun, put
from tests.unit.router.client.server import EngineBroker

KEY = "l/a"
MESSAGES = [Message(f"message {number}").encode() for number in range(5)]
LONG = Message(b"x" * 2000).encode()
ONE_SEGMENT: dict[str, Any] = {"land_rows": len(MESSAGES), "interval": 1000.0}
ACCEPTED, RELEASED = encode(Accepted()), encode(Released())


@pytest.fixture
def broker() -> Iterator[EngineBroker]:
    with EngineBroker() as running:
        yield running


def landed(path: Path) -> list[bytes]:
    segments = Landing.open(str(path)).listing(KEY).segments
    return [each for found in segments for each in pq.ParquetFile(path / found.path).read()["message"].to_pylist()]


def test_messages_are_accepted_after_their_segment_is_published(broker, tmp_path, monkeypatch):
    heard = []
    publish = LocalStore.publish

    def recording(self: LocalStore, path: str, octets: Any, **options: bool) -> None:
        publish(self, path, octets, **options)
        if path.endswith(".parquet"):
            heard.append(len(broker.heard))

    monkeypatch.setattr(LocalStore, "publish", recording)
    put(broker, *MESSAGES)
    run = LanderRun(broker, tmp_path, **ONE_SEGMENT)
    run.until(lambda: len(broker.heard) == 5)
    assert landed(tmp_path) == MESSAGES
    assert broker.heard == [(each, ACCEPTED) for each in MESSAGES]
    assert heard == [0]
    counts = run.lander.links[0].counts
    assert (counts.deliveries, counts.octets, counts.lost) == (5, sum(map(len, MESSAGES)), 0)


def test_end_lands_messages_at_hand(broker, tmp_path):
    put(broker, *MESSAGES)
    run = LanderRun(broker, tmp_path, interval=1000.0)
    run.until(lambda: run.lander.links and run.lander.links[0].octets_in_memory >= sum(map(len, MESSAGES)))
    assert landed(tmp_path) == MESSAGES


def test_enough_rows_are_landed_before_the_interval(broker, tmp_path):
    put(broker, *MESSAGES)
    run = LanderRun(broker, tmp_path, interval=1000.0, land_rows=2)
    run.until(lambda: len(broker.heard) >= 4)
    assert landed(tmp_path) == MESSAGES
    assert run.lander.links[0].counts.segments >= 2


def test_messages_of_failed_write_are_released_and_come_again(broker, tmp_path, monkeypatch):
    publish = LocalStore.publish
    failures = [OSError(errno.ENOSPC, "No space left on device")]

    def failing(self: LocalStore, path: str, octets: Any, **options: bool) -> None:
        if path.endswith(".parquet") and failures:
            raise failures.pop()
        publish(self, path, octets, **options)

    monkeypatch.setattr(LocalStore, "publish", failing)
    monkeypatch.setattr(module, "WRITE_RETRY", Backoff(first=0.01, most=0.01))
    put(broker, *MESSAGES)
    run = LanderRun(broker, tmp_path, **ONE_SEGMENT)

    def put_back() -> bool:
        released = [octets for octets, state in broker.heard if state == RELEASED]
        if len(released) == 5:
            put(broker, *released)
        return len(released) == 5

    run.until(put_back, lambda: len(broker.heard) == 10)
    assert run.has_said("a segment cannot be written: [Errno 28] No space left on device; 5 messages are released")
    assert landed(tmp_path) == MESSAGES
    assert run.lander.links[0].counts.released == 5


def test_credit_is_withheld_while_too_much_is_unread(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REFRESH", 0.02)
    put(broker, *MESSAGES)
    run = LanderRun(broker, tmp_path, stage_high=1)
    landing = Landing.create(str(tmp_path))

    def withheld() -> bool:
        state = run.lander.links[0].state if run.lander.links else None
        return run.lander.held and state is not None and len(broker.heard) == 5 and state.credit == 0

    def read_all() -> bool:
        landing.commit(Group("g", {KEY: 9}))
        return True

    run.until(withheld, read_all, lambda: not run.lander.held and run.lander.links[0].state.credit)  # type: ignore[union-attr]
    assert run.lander.holds == 1
    assert run.has_said("are staged and not read, so the router gets no credit")
    assert run.has_said("so the router gets credit again")


def test_window_follows_the_size_of_messages(broker, tmp_path):
    put(broker, *[LONG] * 20)
    run = LanderRun(broker, tmp_path, land_octets=3 * len(LONG))
    run.until(lambda: len(broker.heard) == 20)
    assert run.lander.links[0].window == 3 * MEMORY_FACTOR


def test_overlong_message_is_rejected_and_others_are_landed(broker, tmp_path):
    put(broker, LONG, *MESSAGES)
    run = LanderRun(broker, tmp_path, max_message=1000)
    run.until(lambda: len(broker.heard) == 6)
    assert isinstance(decode(dict(broker.heard)[LONG]), Rejected)
    assert landed(tmp_path) == MESSAGES


def test_detached_link_is_attached_again_and_keeps_counts(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ATTACH_RETRY", Backoff(first=0.01, most=0.01))
    put(broker, LONG)
    run = LanderRun(broker, tmp_path, max_message=1000)

    def detach() -> bool:
        if len(broker.heard) < 1:
            return False
        with broker.lock:
            broker.sides[0].links[0].detach(True, "amqp:resource-deleted", "moved")
        return True

    def put_more() -> bool:
        if not run.has_said("amqp:resource-deleted: moved; retried in"):
            return False
        put(broker, *MESSAGES)
        return True

    run.until(detach, put_more, lambda: len(broker.heard) == 6)
    assert landed(tmp_path) == MESSAGES
    assert run.lander.links[0].rejected == 1


def test_lost_connection_is_opened_again(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RECONNECT", Backoff(first=0.01, most=0.05))
    run = LanderRun(broker, tmp_path)

    def cut() -> bool:
        attached = bool(run.lander.links and run.lander.links[0].attached_once)
        if attached:
            broker.cut()
            put(broker, *MESSAGES)
        return attached

    run.until(cut, lambda: len(broker.heard) == 5)
    assert broker.connected == 2
    assert landed(tmp_path) == MESSAGES


def test_address_refused_from_the_beginning_ends_the_lander(broker, tmp_path):
    broker.refused = {"a"}
    with pytest.raises(PipelineError, match="the router refuses address 'a': amqp:not-found: no a"):
        LanderRun(broker, tmp_path).until(lambda: False)


def test_second_lander_with_same_id_is_refused(broker, tmp_path):
    store = Landing.create(str(tmp_path)).store
    store.make_folder("l")
    lock = store.lock(f"l/{LOCK}")
    with pytest.raises(LockedError, match=r"lander 'l' is already running: .*; give this lander another --id"):
        LanderRun(broker, tmp_path).until(lambda: False)
    lock.release()
    assert broker.connected == 0


def test_lock_is_released_at_the_end(broker, tmp_path):
    LanderRun(broker, tmp_path).until(lambda: broker.sides and broker.sides[0].links)
    LanderRun(broker, tmp_path).until(lambda: broker.connected == 2)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"lander": "../x"}, r"lander id '../x': expected letters, digits"),
        ({"addresses": ("a", "a")}, "an address is given twice"),
    ],
)
def test_invalid_options_are_refused(broker, tmp_path, changes, text):
    with pytest.raises(LandingError, match=text):
        LanderRun(broker, tmp_path, **changes)


def test_missing_router_or_wrong_url_is_reported_at_once(tmp_path):
    with EngineBroker() as gone:
        pass
    with pytest.raises(PipelineError, match="no connection to the router: 127.0.0.1:"):
        LanderRun(gone, tmp_path).until(lambda: False)
    with pytest.raises(PipelineError, match="http"):
        LanderRun(gone, tmp_path, url="http://x").until(lambda: False)


def test_folder_that_cannot_be_written_is_named(broker, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(LandingError, match=f"{path}: Not a directory"):
        LanderRun(broker, path).until(lambda: False)


@pytest.fixture
def merges_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let landers merge four segments at once, and delete them at once."""
    monkeypatch.setattr(merging, "LEAST_SEGMENTS", 4)
    monkeypatch.setattr(merging, "GRACE", 0.0)
    monkeypatch.setattr(module, "MERGE_EVERY", 0.01)
    monkeypatch.setattr(module, "MERGE_RETRY", 0.01)


def land_before(path: Path, count: int) -> Landing:
    """Land segments of two messages each in the log of the lander."""
    landing = Landing.create(str(path))
    writer = SegmentWriter(landing, LandingLog("l", "a"), "l-0")
    for _ in range(count):
        writer.write(deliveries(2, 4))
    return landing


def test_small_segments_are_merged_and_deleted(broker, tmp_path, merges_often):
    landing = land_before(tmp_path, 9)
    run = LanderRun(broker, tmp_path, merge_rows=8)
    put(broker, b"last")
    run.until(
        lambda: run.lander.links and run.lander.links[0].counts.deliveries == 1,
        lambda: not list(tmp_path.glob("l/a/000000000/000000000007-*")),
    )
    assert run.lander.links[0].counts.merged == 8
    assert [(each.number, each.end, each.rows) for each in landing.listing(KEY).segments] == [
        (0, 4, 8), (4, 8, 8), (8, 9, 2), (9, 10, 1),
    ]  # fmt: skip
    assert landing.listing(KEY).covered == []


def test_failed_merge_is_reported_and_landing_goes_on(broker, tmp_path, merges_often, monkeypatch):
    publish = LocalStore.publish
    full = True

    def fail(store: LocalStore, path: str, octets: Any, **options: bool) -> None:
        if full and "/merged/" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        publish(store, path, octets, **options)

    def put_last() -> bool:
        put(broker, b"last")
        return True

    def free() -> bool:
        nonlocal full
        full = False
        return True

    monkeypatch.setattr(LocalStore, "publish", fail)
    land_before(tmp_path, 5)
    run = LanderRun(broker, tmp_path, merge_rows=8)
    run.until(
        lambda: run.has_said("a: segments cannot be merged: [Errno 28] No space left on device; nothing is lost"),
        lambda: run.lander.links[0].merge_failing,
        put_last,
        lambda: run.lander.links[0].counts.deliveries == 1,
        free,
        lambda: run.lander.links[0].counts.merged == 4,
    )
    assert not run.lander.links[0].merge_failing


def test_lander_that_is_to_merge_nothing_keeps_its_segments(broker, tmp_path, merges_often):
    landing = land_before(tmp_path, 9)
    run = LanderRun(broker, tmp_path, merge_rows=0)
    put(broker, b"last")
    run.until(lambda: run.lander.links and run.lander.links[0].counts.deliveries == 1)
    assert [each.span for each in landing.listing(KEY).segments] == [1] * 10
    assert not (tmp_path / "l" / "a" / "merged").exists()
