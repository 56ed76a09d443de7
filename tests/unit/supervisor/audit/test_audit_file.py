"""File of audit lines: creation, writing, rotation, and the effects of a full disk."""

import errno
import os
import stat
from pathlib import Path

import pytest

from sluice.supervisor.audit.audit_file import RETRY_SECONDS, AuditFile
from tests.unit.supervisor.adjustable_clock import AdjustableClock


def lines(*numbers: int) -> list[bytes]:
    return [b"%09d\n" % number for number in numbers]


def open_file(path: Path, most: int = 1000, keep: int = 2, clock: AdjustableClock | None = None) -> AuditFile:
    return AuditFile(str(path), most, keep, clock or AdjustableClock(0.0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def test_new_file_is_for_owner_and_group(path: Path) -> None:
    before = os.umask(0)
    try:
        open_file(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_lines_are_appended(path: Path) -> None:
    path.write_text("before\n")
    file = open_file(path)
    assert file.write(lines(1, 2)) == (2, None, None)
    file.close()
    assert path.read_bytes() == b"before\n" + b"".join(lines(1, 2))


def test_symbolic_link_is_refused(path: Path) -> None:
    path.with_name("other").write_text("")
    path.symlink_to(path.with_name("other"))
    with pytest.raises(OSError) as caught:
        open_file(path)
    assert caught.value.errno == errno.ELOOP


def test_publicly_writable_file_is_refused(path: Path) -> None:
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(OSError, match="writable for everybody"):
        open_file(path)


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)


def test_full_file_is_rotated_and_oldest_dropped(path: Path) -> None:
    file = open_file(path, most=20, keep=2)
    for number in range(9):
        assert file.write(lines(number)) == (1, None, None)
    file.close()
    found = {each.name: each.read_bytes().split() for each in path.parent.iterdir()}
    assert found == {
        "audit.log": [b"000000008"],
        "audit.log.1": [b"000000006", b"000000007"],
        "audit.log.2": [b"000000004", b"000000005"],
    }


def test_size_of_an_existing_file_counts(path: Path) -> None:
    path.write_bytes(b"".join(lines(1, 2)))
    file = open_file(path, most=20)
    file.write(lines(3))
    file.close()
    assert path.read_bytes() == lines(3)[0]


def test_file_without_rename_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = AdjustableClock(0.0)
    file = open_file(path, most=20, clock=clock)
    file.write(lines(1, 2))
    monkeypatch.setattr(os, "rename", lambda old, new: (_ for _ in ()).throw(PermissionError(errno.EACCES, "no")))
    written = file.write(lines(3))
    assert (written.lines, written.fault) == (1, None)
    assert written.warning is not None
    assert file.write(lines(4)).warning is None  # no attempt before the retry time
    monkeypatch.undo()
    clock.now += RETRY_SECONDS
    assert file.write(lines(5)) == (1, None, None)
    file.close()
    assert path.read_bytes() == lines(5)[0]
    assert path.with_name("audit.log.1").read_bytes() == b"".join(lines(1, 2, 3, 4))


def test_unopenable_new_file_shifts_old_files_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = AdjustableClock(0.0)
    file = open_file(path, most=20, keep=5, clock=clock)
    file.write(lines(1, 2))
    whole = os.open

    def refuse(name: str, *words: int) -> int:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "open", refuse)
    for number in range(3, 6):
        assert file.write(lines(number)).lines == 1
        clock.now += RETRY_SECONDS
    monkeypatch.setattr(os, "open", whole)
    file.write(lines(6))
    file.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["audit.log", "audit.log.1"]
    assert path.with_name("audit.log.1").read_bytes() == b"".join(lines(1, 2, 3, 4, 5))


def test_reopen_continues_in_new_file(path: Path) -> None:
    file = open_file(path)
    file.write(lines(1))
    path.rename(path.with_name("moved"))
    file.write(lines(2))
    assert file.reopen() is None
    file.write(lines(3))
    file.close()
    assert path.with_name("moved").read_bytes() == b"".join(lines(1, 2))
    assert path.read_bytes() == lines(3)[0]


def test_failed_reopen_keeps_present_file(path: Path) -> None:
    file = open_file(path)
    path.rename(path.with_name("moved"))
    path.mkdir()
    assert "its lines still go to the old file" in str(file.reopen())
    assert file.write(lines(1)) == (1, None, None)
    file.close()
    assert path.with_name("moved").read_bytes() == lines(1)[0]


@pytest.mark.parametrize("taken", range(31))
def test_full_disk_leaves_whole_lines_only(path: Path, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_file(path)
    file.write(lines(1))
    whole = os.write
    left = [taken]

    def write(descriptor: int, octets: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = whole(descriptor, octets[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)
    wanted = lines(2, 3, 4)
    written = file.write(wanted)
    assert (written.lines, written.fault) == (taken // 10, "No space left on device" if taken < 30 else None)
    monkeypatch.undo()
    assert path.read_bytes() == b"".join(lines(1) + wanted[: taken // 10])
    file.write(wanted[written.lines :])
    file.close()
    assert path.read_bytes() == b"".join(lines(1, 2, 3, 4))


def test_full_device_is_not_renamed() -> None:
    file = AuditFile("/dev/full", 10, 1)
    for _ in range(5):
        assert file.write(lines(1, 2)) == (0, os.strerror(errno.ENOSPC), None)
    file.close()
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_pipe_marks_cut_line(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = open_file(pipe, most=10)
    long = b"x" * 50_000 + b"\n"
    done = 0
    while (written := file.write([long])).fault is None:
        done += written.lines
    received = b""
    while len(received) < done * len(long):
        received += os.read(reader, 1 << 20)
    while chunk := _read(reader):
        received += chunk
    assert file.write(lines(1)).lines == 1
    received += os.read(reader, 1 << 20)
    os.close(reader)
    file.close()
    assert received.endswith(b"\n" + lines(1)[0])
    assert received.count(long) == done


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""
