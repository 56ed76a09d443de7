"""Files of a local store that are written around the page cache."""

import errno
import mmap
import os
from pathlib import Path

import pytest

from sluice.pipeline.stores import DIRECT_OCTETS, LocalStore

LENGTHS = [0, 1, DIRECT_OCTETS - 1, DIRECT_OCTETS, DIRECT_OCTETS + 1, 3 * DIRECT_OCTETS, (1 << 20) + 5]


def page_aligned(octets: bytes) -> memoryview:
    memory = mmap.mmap(-1, len(octets) + 1)
    memory[: len(octets)] = octets
    return memoryview(memory)[: len(octets)]


def is_cached(path: Path) -> bool:
    """True if the first octet of a file can be read without the disk. Skips where the system does not answer that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return bool(os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system does not tell what is in the page cache")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_uncached_file_of_any_length_has_its_octets(tmp_path, length, aligned):
    content = os.urandom(length)
    octets = page_aligned(content) if aligned else page_aligned(b"x" + content)[1:]
    LocalStore(str(tmp_path)).publish("folder/file", octets, cached=False)
    assert (tmp_path / "folder" / "file").read_bytes() == content
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_uncached_file_is_not_in_the_page_cache(tmp_path):
    store = LocalStore(str(tmp_path))
    octets = page_aligned(os.urandom(4 * DIRECT_OCTETS))
    store.publish("cached", octets)
    if not is_cached(tmp_path / "cached"):
        pytest.skip("the kernel has freed the page cache")
    store.publish("uncached", octets, cached=False)
    try:
        os.close(os.open(tmp_path / "uncached", os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no direct I/O")
    assert not is_cached(tmp_path / "uncached")
