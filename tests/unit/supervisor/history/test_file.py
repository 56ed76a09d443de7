"""File of a history: atomic replacement, and files that cannot be used."""

import os
import stat
from pathlib import Path

import pytest

from sluice.supervisor.history import file
from sluice.supervisor.history.file import HistoryFileError, read_history, write_history


def test_history_is_read_as_written(tmp_path: Path) -> None:
    path = str(tmp_path / "history")
    write_history(path, {"rings": [1]})
    write_history(path, {"rings": [2]})
    assert read_history(path) == {"version": 1, "rings": [2]}
    assert os.listdir(tmp_path) == ["history"]
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o007 == 0


def test_missing_file_is_no_error(tmp_path: Path) -> None:
    assert read_history(str(tmp_path / "history")) is None


def test_failed_write_leaves_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "history")
    write_history(path, {"rings": [1]})

    def fail(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("sluice.supervisor.history.file.os.fsync", fail)
    with pytest.raises(HistoryFileError, match="No space left on device"):
        write_history(path, {"rings": [2]})
    monkeypatch.undo()
    assert read_history(path) == {"version": 1, "rings": [1]}
    write_history(path, {"rings": [3]})
    assert os.listdir(tmp_path) == ["history"]


def test_file_in_missing_folder_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "history")
    with pytest.raises(HistoryFileError, match=r"No such file or directory: '.*history\.new'"):
        write_history(path, {})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', "{}"])
def test_unusable_content_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "history").write_text(content)
    with pytest.raises(HistoryFileError):
        read_history(str(tmp_path / "history"))


def test_endless_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_FILE", 1000)
    with pytest.raises(HistoryFileError, match="too long"):
        read_history("/dev/zero")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryFileError, match="Is a directory"):
        read_history(str(tmp_path))
