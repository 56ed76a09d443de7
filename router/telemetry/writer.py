"""Telemetry files: Parquet, or lines of JSON without pyarrow; published by rename and limited by a quota.

A set of files is written under hidden names. Then the state file records the set, and at last the files get their final
names. After a crash, the next process renames the files of a recorded set and deletes those of an unrecorded one. So a
file that a reader has seen stays until it expires, and its rows are never written twice.
"""

import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sluice.router import json_codec
from sluice.router.files import create_new
from sluice.router.telemetry.schema import TABLES, TIME, VERSION, Row, time_column

Encode = Callable[[str, list[Row]], bytes]

FILE_MODE: Final = 0o640  # the tables name users, hosts and addresses
MOST_WAITING: Final = 1_000_000  # rows kept while writing fails; beyond this number the oldest are dropped
_MIB: Final = 1 << 20
_HOUR: Final = 3600.0
_BOOT: Final = 8  # characters of the boot id in file names
_HIDDEN: Final = ".tmp"
_NAME: Final = re.compile(r"\d{6}-(?P<boot>[^-]+)-(?P<number>\d+)\.(?:parquet|jsonl)")


def router_folder(router: str) -> str:
    """Return the name of a router's folder in the folder of each table."""
    return f"router={quote(router, safe='')}"


class TelemetryWriter:
    """Writer of the telemetry files of one router. Owner: the telemetry process."""

    def __init__(
        self,
        path: Path,
        router: str,
        boot: str,
        *,
        max_megabytes: int,
        keep_hours: int,
        encode: Encode | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create a writer for files below the configured `path`.

        `encode` turns rows of a table into Parquet; None: write lines of JSON.
        """
        self._root: Final = path / f"v{VERSION}"
        self._router: Final = router_folder(router)
        self._boot: Final = boot[:_BOOT]
        self._most: Final = max_megabytes * _MIB
        self._keep: Final = keep_hours * _HOUR
        self._encode: Final = encode
        self._clock: Final = clock
        self._waiting: dict[str, list[Row]] = {}
        # Files by age, the oldest first: time of the first row, path, octets. `_unseen` are written and still hidden.
        self._unseen: deque[tuple[float, Path, int]] = deque()
        self._files: deque[tuple[float, Path, int]] | None = None  # None until the first `clean`
        self._octets = 0
        self.dropped = 0  # rows dropped since the start

    @property
    def state_path(self) -> Path:
        """Path of the state file, from which the process continues after a crash."""
        return self._root / f"_state-{self._router}"

    @property
    def waiting(self) -> int:
        """Number of rows that wait for `publish`."""
        return sum(map(len, self._waiting.values()))

    def add(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows to the next files."""
        if rows:
            self._waiting.setdefault(table, []).extend(rows)
            excess = self.waiting - MOST_WAITING
            if excess > 0:
                longest = max(self._waiting.values(), key=len)
                self.dropped += len(longest[:excess])
                del longest[:excess]

    def publish(self, number: int, state: bytes | None = None) -> None:
        """Write and publish a file for each table with rows.

        `number` is that of this set of files. `state` is stored for `load` once the files are written; None: store
        nothing. Raises OSError; rows and files that are not published yet are then kept for the next call.
        """
        self._show()
        written: deque[tuple[float, Path, int]] = deque()
        try:
            for table, rows in self._waiting.items():
                if rows:
                    written.append(self._write(table, rows, number))
            if state is not None:
                path = _hidden(self.state_path)
                _write(path, state)
                path.rename(self.state_path)
        except OSError:
            for _, path, _ in written:
                _hidden(path).unlink(missing_ok=True)
            raise
        self._waiting.clear()
        self._unseen = written
        self._show()

    def _show(self) -> None:
        """Rename the hidden files to their final names. Raises OSError."""
        while self._unseen:
            _, path, size = self._unseen[0]
            _hidden(path).rename(path)
            found = self._unseen.popleft()
            if self._files is not None:
                self._files.append(found)
                self._octets += size

    def recover(self, boot: str, number: int) -> None:
        """Complete the work of a process that crashed.

        Publish the hidden files of its boot up to set `number`, the last one recorded. Delete all other hidden files;
        their rows are written again.
        """
        for path in self._root.glob(f"*/{self._router}/date=*/hour=*/.*"):
            shown = path.with_name(path.name.removeprefix(".").removesuffix(_HIDDEN))
            match = _NAME.fullmatch(shown.name)
            if match and match["boot"] == boot[:_BOOT] and int(match["number"]) <= number:
                path.rename(shown)
            else:
                path.unlink()

    def load(self) -> bytes | None:
        """Return the state stored last, or None."""
        try:
            return self.state_path.read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, table: str, rows: list[Row], number: int) -> tuple[float, Path, int]:
        began = datetime.fromtimestamp(rows[0][time_column(table)] / 1e6, timezone.utc)  # noqa: UP017
        folder = self._root / table / self._router / f"date={began:%Y-%m-%d}" / f"hour={began:%H}"
        name = f"{began:%H%M%S}-{self._boot}-{number:06}"
        if self._encode is None:
            octets = b"".join(json_codec.encode(_plain(table, row)) + b"\n" for row in rows)
            path = folder / f"{name}.jsonl"
        else:
            octets = self._encode(table, rows)
            path = folder / f"{name}.parquet"
        _write(_hidden(path), octets)
        return began.timestamp(), path, len(octets)

    def _found(self) -> deque[tuple[float, Path, int]]:
        """Return the published files of this router, the oldest first."""
        found = []
        for path in self._root.glob(f"*/{self._router}/date=*/hour=*/*"):
            when = _began(path)
            if when is not None:
                found.append((when, path, path.stat().st_size))
        return deque(sorted(found))

    def clean(self) -> None:
        """Delete expired files and files beyond the quota, but keep the latest len(TABLES) files. Raises OSError."""
        if self._files is None:
            self._files = self._found()
            self._octets = sum(size for _, _, size in self._files)
        files, oldest = self._files, self._clock() - self._keep
        while len(files) > len(TABLES) and (self._octets > self._most or files[0][0] < oldest):
            _, path, size = files.popleft()
            path.unlink(missing_ok=True)
            self._octets -= size
            for folder in (path.parent, path.parent.parent):
                try:
                    folder.rmdir()
                except OSError:
                    break  # the folder is not empty


def _began(path: Path) -> float | None:
    """Return the time of a file's first row according to its name, None for a file of another program."""
    if not _NAME.fullmatch(path.name):
        return None
    date = path.parent.parent.name.removeprefix("date=")
    try:
        text = f"{date} {path.name[:6]} +0000"
        return datetime.strptime(text, "%Y-%m-%d %H%M%S %z").timestamp()
    except ValueError:
        return None


def _hidden(path: Path) -> Path:
    """Return the hidden name of a file before it is published."""
    return path.with_name(f".{path.name}{_HIDDEN}")


def _write(path: Path, octets: bytes) -> None:
    """Write a file and sync it to disk; leave no file after an error. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(create_new(str(path), FILE_MODE), "wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _plain(table: str, row: Row) -> Row:
    """Return a row for JSON, with times as text that Spark reads as timestamps."""
    return {name: _time(value) if TABLES[table][name] == TIME else value for name, value in row.items()}


def _time(value: int | None) -> str | None:
    if value is None:
        return None
    return datetime.fromtimestamp(value / 1e6, timezone.utc).isoformat(timespec="microseconds")  # noqa: UP017
