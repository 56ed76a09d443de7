"""Fixtures of tests of the log."""

import pytest

from sluice.router.log import LogSettings, ModuleSettings, ProcessLog


@pytest.fixture
def make_log(tmp_path):
    """Return a function that opens a log to a file. It returns the log and a function that reads the file's lines."""
    opened: list[ProcessLog] = []

    def make(timestamp=False, **settings):
        path = tmp_path / f"{len(opened)}.log"
        default = ModuleSettings(timestamp=timestamp, output=str(path), **settings)
        log = ProcessLog(LogSettings({"DEFAULT": default}))
        opened.append(log)
        return log, lambda: path.read_text().splitlines()

    yield make
    for log in opened:
        log.close()
