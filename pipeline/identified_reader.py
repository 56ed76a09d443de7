"""Stream reader whose offsets carry the identities of the folder and its logs (identity.py).

`IdentifiedReader` wraps the reader that plans by numbers. The folder's identity is compared at each trigger, and that
of each segment when a task reads it. That of a log is compared when a batch has new segments of it, unless each trigger
since the last comparison has found the segment that was the last one before: then the log is still the one it was.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sluice.pipeline.identity import FOLDER, Identities, differ, join_offset, split_offset
from sluice.pipeline.segments import Landing
from sluice.pipeline.spark_api import ReadLimit, SupportsTriggerAvailableNow

log = logging.getLogger(__name__)


class NumberedReader(Protocol):
    """Stream reader whose offsets are the numbers of segments."""

    def landing(self) -> Landing: ...

    def lost(self, what: str) -> None: ...

    def initialOffset(self) -> dict[str, Any]: ...

    def getDefaultReadLimit(self) -> ReadLimit: ...

    def prepareForTriggerAvailableNow(self) -> None: ...

    def latestOffset(
        self, start: dict[str, Any], limit: ReadLimit, landing: Landing | None = None
    ) -> dict[str, Any]: ...

    def log_breaks(self, key: str) -> int: ...

    def skip_delay(self) -> None: ...

    def reportLatestOffset(self) -> dict[str, Any] | None: ...

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]: ...

    def read(self, partition: InputPartition, identities: Identities) -> Iterator[pa.RecordBatch]: ...

    def commit(self, end: dict[str, Any], landing: Landing | None = None) -> None: ...


class IdentifiedPartition(InputPartition):
    """Partition with the identities that the logs of its segments must have."""

    def __init__(self, partition: InputPartition, identities: Identities) -> None:
        super().__init__(None)
        self.partition = partition
        self.identities = identities


class IdentifiedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader that recognises a folder or log that was made anew."""

    def __init__(self, reader: NumberedReader) -> None:
        self.reader = reader
        self._warned = False
        self._compared: dict[str, tuple[int, str]] = {}  # log: its breaks at the last comparison, and its identity

    def initialOffset(self) -> dict[str, Any]:
        offset = self.reader.initialOffset()
        landing = self.reader.landing()
        return self._joined(landing, offset, self._read_identities(landing, logs_in(offset)))

    def getDefaultReadLimit(self) -> ReadLimit:
        return self.reader.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self.reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        landing = self.reader.landing()
        at, identities = split_offset(start)
        if differ(identities.get(FOLDER), landing.identity):
            self.reader.lost("the landing folder was made anew since the query's last batch")
            at = without(at, logs_in(at))
            identities = {}
        end = self.reader.latestOffset(at, limit, landing)
        now = self._current_identities(landing, advanced_logs(at, end))
        anew = [key for key, found in now.items() if key in at and differ(identities.get(key), found)]
        if anew:
            self.reader.lost(f"log {', '.join(anew)} was made anew since the query's last batch")
            at = without(at, anew)
            self.reader.skip_delay()
            end = self.reader.latestOffset(at, limit, landing)
            now = self._current_identities(landing, advanced_logs(at, end))
        kept = {key: name for key, name in identities.items() if key in end}
        return self._joined(landing, end, {**kept, **now})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.reader.reportLatestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        (first, before), (last, identities) = split_offset(start), split_offset(end)
        folder_anew = differ(before.get(FOLDER), identities.get(FOLDER))
        # Logs that were made anew are read from their oldest segment.
        anew = [key for key in logs_in(first) if folder_anew or differ(before.get(key), identities.get(key))]
        return [IdentifiedPartition(each, identities) for each in self.reader.partitions(without(first, anew), last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, IdentifiedPartition):  # Spark passes another one if there are no partitions
            yield from self.reader.read(partition.partition, partition.identities)

    def commit(self, end: dict[str, Any]) -> None:
        offset, identities = split_offset(end)
        landing = self.reader.landing()
        if differ(identities.get(FOLDER), landing.identity):
            # With the old numbers `gc` would delete segments of the new folder that nobody has read.
            self.reader.lost("the landing folder was made anew while a batch ran")
            return
        self.reader.commit(offset, landing)

    def _joined(self, landing: Landing, offset: dict[str, Any], identities: Identities) -> dict[str, Any]:
        if landing.identity is not None:
            identities = {**identities, FOLDER: landing.identity}
        return join_offset(offset, identities)

    def _current_identities(self, landing: Landing, keys: list[str]) -> Identities:
        """Return the identities of logs that were just planned. Those of logs that go on are not read again."""
        breaks = {key: self.reader.log_breaks(key) for key in keys}
        kept = {key: self._compared[key] for key in keys if self._compared.get(key, (None,))[0] == breaks[key]}
        read = self._read_identities(landing, [key for key in keys if key not in kept])
        self._compared.update({key: (breaks[key], identity) for key, identity in read.items()})
        return {**{key: identity for key, (_, identity) in kept.items()}, **read}

    def _read_identities(self, landing: Landing, keys: list[str]) -> Identities:
        found: Identities = {}
        unknown: list[str] = []
        for key in keys:
            identity = landing.log_identity(key)
            if identity is None:
                unknown.append(key)
            else:
                found[key] = identity
        if unknown and not self._warned:
            self._warned = True
            log.warning(
                "%s: a lander of an earlier release writes %s, so a log made anew in its place would not be recognised",
                landing.url,
                ", ".join(unknown),
            )
        return found


def logs_in(offset: dict[str, Any]) -> list[str]:
    return [key for key in offset if "/" in key]


def advanced_logs(start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [key for key in logs_in(end) if end[key] != start.get(key)]


def without(offset: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    return {key: at for key, at in offset.items() if key not in keys}
