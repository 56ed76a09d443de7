"""Captures in landing folders (docs/user/capture.md#read-it-with-the-pipeline)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from sluice.pipeline.cli import main
from sluice.router.capture.capture_file import CapturedMessage, CaptureHeader, CaptureTrailer, CaptureWriter
from tests.pipeline.landers import message, numbers, rows

ARRIVED = 1_795_000_000_000_000_000


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "capture"
    writer = CaptureWriter(path, CaptureHeader(began=1, router="R", patterns=["a/#"], payload=True, version="1"))
    for number in range(100):
        writer.write(CapturedMessage(ARRIVED + 1000 * number, f"a/{number % 3}", message(number)))
    writer.finish(CaptureTrailer(ended=2, messages=100, reason="time"))
    return path


def test_loaded_capture_has_messages_addresses_and_times(capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    assert main(["load", str(capture), "--path", str(folder), "--id", "c"], "sluice pipeline") == 0
    assert sorted(numbers(folder)) == list(range(100))
    found = rows(folder)
    assert set(found["address"].to_pylist()) == {"a/0", "a/1", "a/2"}
    times = sorted(time.timestamp() for time in found["arrived"].to_pylist())
    assert (times[0], round(times[-1] - times[0], 6)) == (ARRIVED / 1e9, 99e-6)


def test_damaged_capture_lands_nothing(capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    octets = bytearray(capture.read_bytes())
    octets[-150] ^= 1
    capture.write_bytes(octets)
    folder = tmp_path / "landing"
    assert main(["load", str(capture), "--path", str(folder)], "sluice pipeline") == 1
    assert f"{capture} is damaged" in capsys.readouterr().err
    assert not folder.exists()
