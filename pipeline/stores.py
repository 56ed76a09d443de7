"""Stores for landing folders: file systems in which a published file appears whole or not at all.

    store = open_store("/var/lib/landing")             a local disk
    store = open_store("s3://bucket/landing?region=…")  any file system of pyarrow.fs, by its URL

Paths are relative to the store's root, with slashes. Failures raise the file system's OSError.
"""

import contextlib
import errno
import fcntl
import os
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Any, Protocol

from sluice.pipeline.errors import LandingError, LockedError
from sluice.pipeline.prerequisites import require
from sluice.router import json_codec

LEASE = 60.0  # seconds that a lock of an object store is valid without renewal
#: Octets. Direct I/O writes multiples of it, from memory that begins at one, on all usual disks.
DIRECT_OCTETS = 4096
SETTLE = 1.0  # seconds after which a new lock is read again: the last of two concurrent writers owns it
OBJECT_STORES = ("s3", "gcs", "gs", "abfs", "abfss")  # an object appears when its upload is complete


class StoreLock(Protocol):
    """Exclusive lock, held until `release`."""

    def renew(self) -> None:
        """Renew the lock; due at least every LEASE / 3 seconds. Raises LockedError if another process has taken it."""

    def release(self) -> None: ...


class LandingStore(ABC):
    """Store rooted at one folder."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def entries(self, folder: str, first: str = "") -> tuple[list[tuple[str, int]], list[str]]:
        """Return names and sizes of the files in a folder, and the names of its folders, sorted by name.

        Both are empty if the folder does not exist. first: smaller names are left out.
        """

    def names(self, folder: str) -> list[str]:
        """Return the names of all files and folders in a folder, sorted."""
        files, folders = self.entries(folder)
        return sorted([*(name for name, _ in files), *folders])

    def files(self, folder: str) -> list[tuple[str, int]]:
        """Return names and sizes of the files in a folder; nothing if it does not exist."""
        return self.entries(folder)[0]

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted."""
        return self.entries(folder)[1]

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return the content of a small file. None: it does not exist."""

    @abstractmethod
    def open(self, path: str) -> Any:
        """Open a file for random access by pyarrow.parquet. Raises FileNotFoundError."""

    @abstractmethod
    def publish(self, path: str, octets: Any, *, cached: bool = True) -> None:
        """Write `octets` (an object with the buffer protocol) to a file, durable when this returns.

        Readers see the whole file or nothing. An existing file of that name is replaced. The folder is made if it is
        missing; its parent must exist. cached False: the octets need not be in this machine's page cache afterwards,
        which saves the processor most of the time of a write, if they begin at a page.
        """

    @abstractmethod
    def publish_first(self, path: str, octets: bytes) -> bytes:
        """Publish a small file unless it exists. Return the content of the file that exists then."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; no error if it does not exist."""

    @abstractmethod
    def delete_folder(self, folder: str) -> None:
        """Delete a folder; no error if it does not exist or has files. Nobody may write to it any more."""

    @abstractmethod
    def make_folder(self, folder: str) -> None: ...

    def clear(self, folder: str) -> None:
        """Remove temporary files of a publisher that was killed, also in the folders of `folder`.

        Only the owner of the folder may call this.
        """
        files, folders = self.entries(folder)
        for name, _ in files:
            if name.startswith(".") and name.endswith(".tmp"):
                self.delete(f"{folder}/{name}")
        for name in folders:
            self.clear(f"{folder}/{name}")

    @abstractmethod
    def lock(self, path: str) -> StoreLock:
        """Take a lock for the life of this process. Raises LockedError if another process holds it."""


def open_store(url: str) -> LandingStore:
    """Return the store of a URL.

    Raises LandingError for a URL that pyarrow.fs does not understand, MissingError without the extra.
    """
    if "://" not in url:
        return LocalStore(url)
    if url.startswith("file://"):
        return LocalStore(url.removeprefix("file://"))
    require("pyarrow")
    return ArrowStore(url)


def lock_owner() -> str:
    """Return a readable description of this process as the owner of a lock."""
    return f"process {os.getpid()} on {os.uname().nodename}"


# -- local disks -------------------------------------------------------------------------------------------------------


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_directly(descriptor: int, octets: memoryview) -> int:
    """Write octets around the page cache, up to the last multiple of DIRECT_OCTETS. Return the number written.

    The number is smaller, or 0, if the file system or the place of the octets in memory does not permit it.
    """
    whole = len(octets) - len(octets) % DIRECT_OCTETS
    if not hasattr(os, "O_DIRECT") or not whole:
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    written = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        while written < whole and not written % DIRECT_OCTETS:
            written += os.write(descriptor, octets[written:whole])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return written


class LocalStore(LandingStore):
    """Store in a folder of this machine, or of a network file system mounted on it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.root = Path(url).absolute()

    def entries(self, folder: str, first: str = "") -> tuple[list[tuple[str, int]], list[str]]:
        files: list[tuple[str, int]] = []
        folders: list[str] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            for entry in entries:
                if entry.name < first:
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                else:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        files.append((entry.name, entry.stat().st_size))
        return sorted(files), sorted(folders)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / folder))
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes | None:
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        return open(self.root / path, "rb")

    def publish(self, path: str, octets: Any, *, cached: bool = True) -> None:
        final = self.root / path
        temporary = final.with_name(f".{final.name}.tmp")
        try:
            descriptor = self._create(temporary)
            try:
                left = memoryview(octets).cast("B")
                if not cached:
                    left = left[_write_directly(descriptor, left) :]
                while left:
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self.rename(temporary, final)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(final.parent)

    def publish_first(self, path: str, octets: bytes) -> bytes:
        final = self.root / path
        written = f"{path}.{uuid.uuid4().hex}.new"
        self.publish(written, octets)
        try:
            os.link(self.root / written, final)  # in contrast to a rename, it replaces no file
        except FileExistsError:
            pass
        except OSError:
            if not final.exists():  # a file system without hard links
                self.publish(path, octets)
        finally:
            self.delete(written)
        _sync_folder(final.parent)
        return final.read_bytes()

    def _create(self, temporary: Path) -> int:
        """Create a file, and its folder if that is missing; return the descriptor."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            temporary.parent.mkdir(exist_ok=True)
            _sync_folder(temporary.parent.parent)
            return os.open(temporary, flags, 0o644)

    def rename(self, temporary: Path, final: Path) -> None:
        """Move a written file to its final name: from now on readers see it."""
        os.rename(temporary, final)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.root / path).unlink()

    def delete_folder(self, folder: str) -> None:
        try:
            (self.root / folder).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise

    def make_folder(self, folder: str) -> None:
        path = self.root / folder
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in missing:
            _sync_folder(each.parent)

    def lock(self, path: str) -> StoreLock:
        return _FileLock(self.root / path)


class _FileLock:
    """Kernel file lock. It ends with its process, however that exits."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - the open file is the lock
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise LockedError(f"{path} is locked by {holder}") from None
        self._file.truncate(0)
        self._file.write(lock_owner())
        self._file.flush()

    def renew(self) -> None:
        """Do nothing: the kernel's lock needs no renewal."""

    def release(self) -> None:
        self._file.close()


# -- pyarrow.fs --------------------------------------------------------------------------------------------------------


class ArrowStore(LandingStore):
    """Store in a file system of pyarrow.fs. Object stores publish a completed upload; others rename a file."""

    def __init__(self, url: str) -> None:
        from pyarrow import fs

        super().__init__(url)
        try:
            self.fs, self.root = fs.FileSystem.from_uri(url)
        except (ValueError, OSError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise LandingError(f"{url}: {error}") from error
        self.renames = self.fs.type_name not in OBJECT_STORES

    def _at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    def entries(self, folder: str, first: str = "") -> tuple[list[tuple[str, int]], list[str]]:
        from pyarrow import fs

        found = self.fs.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True))
        infos = [info for info in found if info.base_name >= first]
        files = [(info.base_name, info.size) for info in infos if info.is_file]
        return sorted(files), sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)

    def read(self, path: str) -> bytes | None:
        try:
            with self.fs.open_input_stream(self._at(path)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def open(self, path: str) -> Any:
        return self.fs.open_input_file(self._at(path))

    def publish(self, path: str, octets: Any, *, cached: bool = True) -> None:
        folder, _, name = path.rpartition("/")
        written = f"{folder}/.{name}.tmp" if self.renames else path
        if self.renames:
            self.make_folder(folder)
        # Closed only without an error: a `with` statement would complete the upload after an error as well.
        file = self.fs.open_output_stream(self._at(written))
        file.write(octets)
        file.close()
        if self.renames:
            self.fs.move(self._at(written), self._at(path))

    def publish_first(self, path: str, octets: bytes) -> bytes:
        """Publish a small file unless it exists. Of two publishers at the same instant the last one prevails."""
        found = self.read(path)
        if found is None:
            self.publish(path, octets)
            found = self.read(path)
        if found is None:
            raise FileNotFoundError(f"{self.url}: {path} was deleted as soon as it was written")
        return found

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.delete_file(self._at(path))

    def delete_folder(self, folder: str) -> None:
        files, folders = self.entries(folder)
        if not files and not folders:
            with contextlib.suppress(FileNotFoundError):
                self.fs.delete_dir(self._at(folder))

    def make_folder(self, folder: str) -> None:
        if self.renames:
            self.fs.create_dir(self._at(folder), recursive=True)

    def lock(self, path: str) -> StoreLock:
        return _Lease(self, path)


class _Lease:
    """Lock file with an expiry time, because pyarrow.fs has no locks.

    An owner that does not renew it within LEASE seconds loses it. Clocks of hosts that land into one folder must agree
    within LEASE / 3.
    """

    def __init__(self, store: ArrowStore, path: str) -> None:
        self.store = store
        self.path = path
        self.token = uuid.uuid4().hex
        self._check(self._holder())
        self._write()
        time.sleep(SETTLE)
        self._check(self._holder())

    def _holder(self) -> dict[str, Any]:
        octets = self.store.read(self.path)
        return json_codec.decode(octets) if octets else {}

    def _check(self, holder: dict[str, Any]) -> None:
        if holder and holder["token"] != self.token and time.time() < holder["until"]:
            left = holder["until"] - time.time()
            raise LockedError(
                f"{self.store.url}: {self.path} is locked by {holder['owner']}, for {left:.0f} s at least"
            )

    def _write(self) -> None:
        lease = {"token": self.token, "owner": lock_owner(), "until": time.time() + LEASE}
        self.store.publish(self.path, json_codec.encode(lease))

    def renew(self) -> None:
        holder = self._holder()
        if holder.get("token") != self.token:
            raise LockedError(
                f"{self.store.url}: the lock {self.path} was taken over by {holder.get('owner', 'somebody')}"
            )
        self._write()

    def release(self) -> None:
        if self._holder().get("token") == self.token:
            self.store.delete(self.path)
