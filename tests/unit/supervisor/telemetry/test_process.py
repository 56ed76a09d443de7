"""Telemetry process in a thread: its files, its state for the next process, and rows for receivers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.router.ring.region import Region
from sluice.router.telemetry import writer
from sluice.router.testing.interworker import claim_link
from sluice.supervisor.children.framing import MessageSplitter, pack
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.telemetry import process
from sluice.supervisor.telemetry.messages import MAX_REPORT
from sluice.supervisor.telemetry.process import LIVE_ROWS, TelemetryLoop
from tests.unit.supervisor.harness import PATIENCE

NEVER = 3600.0  # interval in seconds that no test waits for
SOON = 0.02
LATER = 0.3
PRODUCER = 1  # value of LinkSlot.direction
LINK = [0, 0, 7, 1, 11, "q"]  # worker, slot, generation, link id, connection id, address


class TelemetryThread:
    """Telemetry process in a thread, with the supervisor's end of its socket."""

    def __init__(self, region: Region, path: Path) -> None:
        self._region = region
        self.path = path
        self.socket, self.theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE)
        self._splitter = MessageSplitter(MAX_REPORT)
        self._received: list[Message] = []
        self.reports: list[Message] = []  # all messages of the process so far
        self._loop = TelemetryLoop(self.theirs, region)
        self._finished = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run()
        self._finished = True

    def send(self, **message: Any) -> None:
        self.socket.sendall(pack(encode(message)))

    def setup(self, boot: str = "boot", interval: float = NEVER, period: float = NEVER) -> None:
        limits = {"max_megabytes": 1, "keep_hours": 1}
        made = {"path": str(self.path), "router": "R", "boot": boot, "interval": interval, "period": period}
        self.send(setup={**made, **limits})

    def wait_for(self, kind: str) -> Any:
        """Return the value of the next message of a kind."""
        while True:
            while self._received:
                message = self._received.pop(0)
                self.reports.append(message)
                if kind in message:
                    return message[kind]
            self._received += map(decode, self._splitter.feed(self.socket.recv(1 << 16)))

    def wait_for_rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of the next message for receivers about a table."""
        while self.wait_for("live") != table:
            pass
        rows: list[dict[str, Any]] = self.reports[-1]["rows"]
        return rows

    def answer(self, *, receivers: bool = False) -> int:
        """Answer the next `describe`, and return its number."""
        number: int = self.wait_for("describe")
        self.send(described=number, receivers=receivers)
        return number

    def end(self) -> None:
        """Send nothing more, and wait until the process has ended."""
        self.socket.shutdown(socket.SHUT_WR)
        self._thread.join(PATIENCE)
        assert self._finished

    def close(self) -> None:
        self.end()
        self.socket.close()
        self.theirs.close()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table in published files, in order."""
        files = sorted(self.path.glob(f"v1/{table}/router=R/date=*/hour=*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


Start = Callable[..., TelemetryThread]


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(1, 10, 4, 4096)
    yield made
    made.close()


@pytest.fixture
def start(region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Function that starts a process which writes lines of JSON."""
    monkeypatch.setattr(process, "_parquet", lambda: None)
    made: list[TelemetryThread] = []

    def begin(path: Path = tmp_path) -> TelemetryThread:
        made.append(TelemetryThread(region, path))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def event(number: int) -> dict[str, Any]:
    return {"boot_id": "boot", "ts": 1_000_000 * number, "kind": "test", "subject": str(number), "detail": {}}


def subjects(made: TelemetryThread) -> list[str]:
    return [row["subject"] for row in made.rows("event")]


def test_saved_rows_are_in_files(region: Region, start: Start) -> None:
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5)
    made = start()
    made.setup(interval=SOON, period=SOON)
    made.send(link=LINK)
    made.send(table="event", rows=[event(1)])
    number = made.answer()
    assert made.wait_for("saved") == number
    assert subjects(made) == ["1"]
    (row,) = made.rows("fact_link")
    assert (row["link_id"], row["address"], row["deliveries"]) == (1, "q", 5)


def test_last_rows_are_written_when_supervisor_ends(region: Region, start: Start) -> None:
    made = start()
    made.setup()
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5)
    made.send(table="event", rows=[event(1)])
    made.end()
    assert subjects(made) == ["1"]
    assert [row["deliveries"] for row in made.rows("fact_link")] == [5]


def test_process_without_setup_writes_nothing(start: Start, tmp_path: Path) -> None:
    start().end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("boot", "deliveries"), [("boot", [5, 2]), ("other", [5, 7])])
def test_next_process_of_same_boot_continues_counts(
    region: Region, start: Start, boot: str, deliveries: list[int]
) -> None:
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5)
    one = start()
    one.setup()
    one.send(link=LINK)
    one.end()
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=7)
    two = start()
    two.setup(boot)
    two.end()
    rows = two.rows("fact_link")
    assert sorted(row["deliveries"] for row in rows) == sorted(deliveries)
    known = [row["address"] for row in rows if row["boot_id"] == "boot"]
    assert set(known) == {"q"}, "the next process knows the facts"


def test_next_process_continues_numbers_of_describe(start: Start) -> None:
    """Otherwise the supervisor would take rows for saved that are in no file."""
    one = start()
    one.setup(interval=SOON, period=SOON)
    last = one.answer()
    one.wait_for("saved")
    one.end()
    two = start()
    two.setup(interval=SOON)
    assert two.answer() > last


def test_unreadable_state_is_reported_and_replaced(start: Start, tmp_path: Path) -> None:
    one = start()
    one.setup()
    one.end()
    (state,) = tmp_path.glob("v1/_state-*")
    state.write_text("{")
    two = start()
    two.setup()
    two.wait_for("log")  # the notice about JSON
    assert two.wait_for("log") == "warning"
    assert two.reports[-1]["text"].startswith("Telemetry starts without its earlier state, which cannot be read: ")
    two.end()
    assert json.loads(state.read_text())["boot"] == "boot"


def test_rows_wait_while_files_cannot_be_written(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.write_text("a file where the folder should be")
    made = start(path)
    made.setup(interval=SOON, period=SOON)
    made.send(table="event", rows=[event(1)])
    for _ in range(3):
        made.answer()
    path.unlink()
    made.send(table="event", rows=[event(2)])
    while not any("saved" in report for report in made.reports):
        made.answer()
    made.wait_for("saved")
    made.end()
    assert subjects(made) == ["1", "2"]
    lines = [(report["log"], report["text"]) for report in made.reports if "log" in report]
    levels = [level for level, text in lines if "be written to" in text]
    assert levels == ["error", "notice"], "the failure is reported once, and its end"


def test_lost_rows_are_reported(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_WAITING", 2)
    path = tmp_path / "folder"
    path.write_text("a file where the folder should be")
    made = start(path)
    made.setup(interval=SOON, period=SOON)
    made.send(table="event", rows=[event(number) for number in range(5)])
    assert made.wait_for("lost") >= 3
    path.unlink()


def test_process_without_answer_goes_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS", SOON)
    made = start()
    made.setup(interval=SOON, period=SOON)
    made.send(table="event", rows=[event(1)])
    asked = made.wait_for("describe")
    assert made.wait_for("saved") == asked
    assert subjects(made) == ["1"]


# -- Rows for receivers


def test_receivers_get_rows_in_small_messages(start: Start) -> None:
    made = start()
    made.setup(interval=SOON)
    made.answer(receivers=True)
    rows = [event(number) for number in range(LIVE_ROWS + 1)]
    made.send(table="event", rows=rows)
    assert made.wait_for_rows("event") == rows[:LIVE_ROWS]
    assert made.wait_for_rows("event") == rows[LIVE_ROWS:]


def test_rows_are_not_sent_without_receivers(start: Start) -> None:
    made = start()
    made.setup(interval=SOON)
    made.send(table="event", rows=[event(1)])
    made.answer()
    made.answer()
    assert not any("live" in report for report in made.reports)


def test_rows_for_receivers_are_dropped_if_supervisor_does_not_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MOST_UNSENT", 1 << 16)
    monkeypatch.setattr(process, "ANSWER_SECONDS", SOON)
    made = start()
    made.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    made.setup(interval=LATER)
    made.answer(receivers=True)
    rows = [event(number) for number in range(5_000)]
    made.send(table="event", rows=rows)
    made.wait_for_rows("event")
    made.answer()
    live = sum(len(report["rows"]) for report in made.reports if report.get("live") == "event")
    assert 0 < live < len(rows)
    made.end()
    assert len(subjects(made)) == len(rows), "the files have all rows"
