"""Landers that merge and are killed at random steps, with a reader of the log in the middle."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadMaxRows

from sluice.pipeline.errors import LandingError
from sluice.pipeline.options import source_options
from sluice.pipeline.segments import Landing
from sluice.pipeline.source import SegmentBin, StreamReader
from tests.pipeline.landers import LanderProcess, SendingThread, message, numbers, rows, send_all
from tests.system.router import SETTINGS, RouterProcess, listener, poll

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LOG = "l/balanced.a"
SENDERS = 4
EACH = 250  # messages of a sender
SLICE = 25
KILLS = 5
STEPS = 60  # most files that a lander renames and deletes before it is killed
NAMES = ["segment", "ordinal", "message"]
SMALL = ("--land-rows", "2", "--land-interval-ms", "2", "--merge-rows", "40")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "router").mkdir()
    router = RouterProcess(tmp_path / "router", [listener(linkCapacity=SENDERS * 2), *SETTINGS])
    router.start()
    yield f"amqp://127.0.0.1:{router.port}"
    router.stop()


def merging_lander(url: str, path: Path, step: int) -> LanderProcess:
    command = (sys.executable, "-m", "tests.pipeline.merging_lander", str(step))
    return LanderProcess(url, path, "--id", "l", *SMALL, command=command)


class SlicedSending(SendingThread):
    """Thread that sends some messages at once, so that each has the whole time to be accepted."""

    def __init__(self, url: str, first: int) -> None:
        self.url = url
        self.first = first
        super().__init__(url, [])

    def run(self) -> None:
        for at in range(self.first, self.first + EACH, SLICE):
            self._work = (self.url, [message(number) for number in range(at, at + SLICE)], "balanced.a")
            super().run()


class FollowingReader(threading.Thread):
    """Stream that reads a landing folder as it grows, and begins a new process now and then."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.options = source_options({"path": str(path)}, stream=True)
        self.random = random.Random(seed)
        self.places: Counter[tuple[int, int]] = Counter()
        self.found: list[int] = []
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self._follow()
        except (LandingError, OSError, AssertionError) as error:
            self.error = error

    def _follow(self) -> None:
        reader = StreamReader(self.options, NAMES)
        offset = reader.initialOffset()
        while True:
            last = self.ended.is_set()
            end = reader.latestOffset(offset, ReadMaxRows(self.random.randrange(1, 200)))
            if end == offset and last:
                return
            for task in reader.partitions(offset, end) if end != offset else ():
                assert isinstance(task, SegmentBin)
                for batch in reader.read(task):
                    self.places.update(zip(*(batch.column(name).to_pylist() for name in NAMES[:2]), strict=True))
                    self.found += [int.from_bytes(octets[-4:], "big") for octets in batch.column(2).to_pylist()]
            offset = end
            if self.random.random() < 0.2:
                reader = StreamReader(self.options, NAMES)


@pytest.mark.parametrize("seed", range(3))
def test_killed_merger_loses_and_doubles_no_row(url: str, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "landing"
    Landing.create(str(path))
    draws = random.Random(seed)
    reader = FollowingReader(path, seed)
    reader.start()
    sending = [SlicedSending(url, EACH * number) for number in range(SENDERS)]
    kills = 0
    while any(each.is_alive() for each in sending) and kills < KILLS:
        with merging_lander(url, path, draws.randrange(1, STEPS)) as lander:
            while lander.process.poll() is None and any(each.is_alive() for each in sending):
                sending[0].join(0.05)
            kills += lander.process.poll() == -signal.SIGKILL
    assert kills >= 3
    with merging_lander(url, path, 0).ready() as lander:
        for each in sending:
            each.done()
        send_all(url, [message(SENDERS * EACH)])
        listing = poll(lambda: _merged(path), "nearly all segments are merged, and those are deleted", 60)
        lander.stop()
    assert set(numbers(path)) == set(range(SENDERS * EACH + 1))
    assert listing, "merged files exist"
    reader.ended.set()
    reader.join(60)
    assert reader.error is None
    assert set(reader.places.values()) == {1}, "each place was read once"
    assert Counter(reader.found) == Counter(numbers(path))
    assert rows(path).num_rows == sum(reader.places.values())


def _merged(path: Path) -> bool:
    """Return True if at most a few files of single segments are left, and none that is covered."""
    listing = Landing.open(str(path)).listing(LOG)
    single = sum(each.file is None for each in listing.segments)
    return single < 20 and not listing.covered and single < len(listing.segments)
