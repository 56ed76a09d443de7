"""Machinery of the benchmark, with small programs in the router's place."""

import json
import os
import sys
from pathlib import Path

import pytest

from loadtests import bench, report
from loadtests.configuration import router_configuration
from loadtests.measuring import QUICK, Bench, Readings
from loadtests.processes import BenchRouter, MeasureError, arguments, load
from loadtests.report import FailedRow
from loadtests.rows import ROWS


def program(folder: Path, text: str) -> list[str]:
    """Return a command that runs `text`. The router's `-c FILE` is appended and ignored."""
    file = folder / "program.py"
    file.write_text(text)
    return [sys.executable, str(file)]


def test_router_is_started_by_its_log_line_and_stopped_by_pid(tmp_path: Path) -> None:
    command = program(
        tmp_path, "import time\nprint('x [info] Listening on 127.0.0.1:4711', flush=True)\ntime.sleep(60)"
    )
    with BenchRouter(1, command) as router:
        assert router.port == 4711
        assert 0 < router.start_seconds < 30
        os.kill(router.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(router.pid, 0)


def test_router_that_does_not_listen_is_reported_with_reason(tmp_path: Path) -> None:
    command = program(tmp_path, "raise SystemExit('listener: port 99999 is too large')")
    with pytest.raises(MeasureError, match="port 99999 is too large"), BenchRouter(1, command):
        pass


def test_router_that_ends_while_measured_is_an_error(tmp_path: Path) -> None:
    command = program(tmp_path, "print('Listening on 127.0.0.1:4711', flush=True)\ninput_closed = True")
    with pytest.raises(MeasureError, match="ended by itself with status 0"), BenchRouter(1, command) as router:
        router._process.wait()


def test_router_that_is_not_there() -> None:
    with pytest.raises(MeasureError, match="cannot start the router"), BenchRouter(1, ["/no/such/router"]):
        pass


def test_configuration_has_the_workers_and_a_free_port() -> None:
    text = router_configuration(3)
    assert "workerThreads: 3" in text
    assert "port: 0" in text


def test_arguments_become_options() -> None:
    words = arguments({"max_frame": 512, "direct": True, "presettled": False, "address": "a b"})
    assert words == ["--max-frame", "512", "--direct", "--address", "a b"]


def test_fault_of_generator_is_an_error() -> None:
    with pytest.raises(MeasureError, match="--port"):
        load(count=1)


def test_readings_give_median_and_largest() -> None:
    readings = Readings({"a": {"b": value}, "lost": value // 3} for value in (1, 5, 3))
    assert readings.median("a", "b") == 3
    assert readings.largest("lost") == 1


def test_failed_row_is_a_miss_and_next_row_runs() -> None:
    results = bench.measure(["start", "idle"], Bench(QUICK, ["/no/such/router"]))
    assert [type(result) for result in results] == [FailedRow, FailedRow]
    assert not any(result.passed for result in results)


def test_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["speed"])
    assert ended.value.code == 2
    assert "no such row: speed" in capsys.readouterr().err


def test_page_without_markers_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "performance.md"
    page.write_text("no markers")
    monkeypatch.setattr(report, "PERFORMANCE_PAGE", page)
    assert bench.main(["start", "--write-docs", "--router", "/no/such/router"]) == 2
    said = capsys.readouterr()
    assert "one line <!-- bench:begin -->" in said.err
    assert said.out == ""


def test_start_row_writes_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = program(tmp_path, "import time\nprint('Listening on 127.0.0.1:4711', flush=True)\ntime.sleep(60)")
    out = tmp_path / "figures.json"
    bench.main(["start", "--quick", "--json", str(out), "--router", " ".join(command)])
    (figure,) = json.loads(out.read_text())
    assert figure["what"] == "start to listening, 2 workers"
    assert figure["passed"] is (figure["value"] <= 1.0)
    assert "start to listening" in capsys.readouterr().out


def test_rows_have_descriptions() -> None:
    assert len(ROWS) >= 12
    assert all(row.__doc__ for row in ROWS.values())
