"""Files that change while they are watched."""

import os

import pytest

from sluice.supervisor.auth.watched_files import FileWatcher, WatchedFile
from tests.unit.supervisor.auth.waiting import until


def read(path):
    with open(path) as file:
        text = file.read()
    if "bad" in text:
        raise ValueError("line 1: bad")
    return text


@pytest.fixture
def watched(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    lines: list[tuple[str, str]] = []
    made = WatchedFile(str(path), read, lambda *line: lines.append(line), "saslUsers u")
    made.look()
    return made, path, lines


def test_changed_file_is_read_again(watched):
    made, path, lines = watched
    assert (made.value, lines) == ("one", [])
    made.look()
    path.write_text("three")
    made.look()
    assert made.value == "three"
    assert lines == [("info", f"saslUsers u: read {path} again")]


def test_swapped_symbolic_link_is_noticed(watched, tmp_path):
    """Kubernetes updates mounted files in this way: the link to the folder is replaced."""
    first, second = tmp_path / "..1", tmp_path / "..2"
    for folder, text in ((first, "1"), (second, "2")):
        folder.mkdir()
        (folder / "file").write_text(text)
    (tmp_path / "..data").symlink_to(first)
    made = WatchedFile(str(tmp_path / "..data" / "file"), read, lambda *_: None, "u")
    made.look()
    assert made.value == "1"
    (tmp_path / "new").symlink_to(second)
    os.replace(tmp_path / "new", tmp_path / "..data")
    made.look()
    assert made.value == "2"


def test_broken_file_keeps_previous_content(watched):
    made, path, lines = watched
    path.write_text("bad")
    for _ in range(3):
        made.look()
    assert made.value == "one"
    assert made.problem == f"{path}: line 1: bad"
    assert [level for level, _ in lines] == ["error"]
    assert lines[0][1].endswith("the values read before stay in force")
    path.unlink()
    made.look()
    made.look()
    assert made.problem == f"{path}: No such file or directory"
    path.write_text("two")
    made.look()
    assert (made.value, made.problem, len(lines)) == ("two", None, 3)


def test_missing_file_is_read_later(tmp_path):
    made = WatchedFile(str(tmp_path / "file"), read, lambda *_: None, "u")
    made.look()
    assert made.get() is None
    assert made.problem
    (tmp_path / "file").write_text("now")
    made.look()
    assert made.get() == "now"


def test_watcher_reads_changed_file(watched):
    made, path, _ = watched
    watcher = FileWatcher(every=0.01)
    watcher.watch([made])
    path.write_text("two")
    until(lambda: made.value == "two")
    watcher.watch([])
    watcher.stop()
