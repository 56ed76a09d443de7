"""Files opened for writing with root's rights, and the symbolic links that are followed."""

import errno
import os
import stat

import pytest

from sluice.router.files import create_new, open_trusted

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root has links of other users")
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def write(path, octets=b"line"):
    descriptor = open_trusted(str(path), APPEND, 0o600)
    os.write(descriptor, octets)
    os.close(descriptor)


def test_new_file_is_created(tmp_path):
    write(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"line"


@pytest.mark.parametrize("target", ["real", "{}/real"])
def test_link_of_the_same_user_is_followed(tmp_path, target):
    (tmp_path / "second").symlink_to(target.format(tmp_path))
    (tmp_path / "log").symlink_to("second")
    write(tmp_path / "log")
    assert (tmp_path / "real").read_bytes() == b"line"


@as_root
@pytest.mark.parametrize("exists", [True, False])
def test_link_of_another_user_is_not_followed_by_root(tmp_path, exists):
    victim = tmp_path / "victim"
    if exists:
        victim.write_bytes(b"own")
    link = tmp_path / "log"
    link.symlink_to(victim)
    os.lchown(link, 65534, 65534)
    with pytest.raises(OSError, match="It is a symbolic link that root has not made") as caught:
        write(link)
    assert caught.value.errno == errno.ELOOP
    assert (victim.read_bytes() if exists else victim.exists()) == (b"own" if exists else False)


@as_root
def test_link_of_another_user_behind_one_of_root_is_not_followed(tmp_path):
    (tmp_path / "log").symlink_to("theirs")
    (tmp_path / "theirs").symlink_to("victim")
    os.lchown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(OSError, match="It is a symbolic link"):
        write(tmp_path / "log")


def test_descriptor_path_is_written_to(tmp_path):
    reading, writing = os.pipe()
    write(f"/proc/self/fd/{writing}")
    (tmp_path / "log").symlink_to(f"/dev/fd/{writing}")
    write(tmp_path / "log", b"again")
    assert os.read(reading, 100) == b"lineagain"
    os.close(reading)
    os.close(writing)


def test_link_to_itself_is_refused(tmp_path):
    (tmp_path / "log").symlink_to("log")
    with pytest.raises(OSError, match="symbolic links") as caught:
        write(tmp_path / "log")
    assert caught.value.errno == errno.ELOOP


def test_create_new_replaces_link_but_not_its_target(tmp_path):
    (tmp_path / "victim").write_bytes(b"own")
    (tmp_path / "new").symlink_to("victim")
    os.close(create_new(str(tmp_path / "new"), 0o640))
    assert (tmp_path / "victim").read_bytes() == b"own"
    status = (tmp_path / "new").lstat()
    assert stat.S_ISREG(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o640
