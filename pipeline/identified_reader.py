"""Stream reader whose offsets carry the identities of the folder and its logs (identity.py).

`IdentifiedReader` wraps the reader that plans by numbers. The folder's identity is compared at each trigger, that of a
log when a batch has new segments of it, and that of each segment when a task reads it.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from sluice.pipeline.identity import FOLDER, Identities, differ, join_offset, split_offset
from sluice.pipeline.segments import Landing

log = logging.getLogger(__name__)


class NumberedReader(Protocol):
    """Stream reader whose offsets are the numbers of segments."""

    def landing(self) -> Landing: ...

    def lost(self, what: str) -> None: ...

    def initialOffset(self) -> dict[str, Any]: ...

    def getDefaultReadLimit(self) -> ReadLimit: ...

    def prepareForTriggerAvailableNow(self) -> None: ...

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...

    def skip_delay(self) -> None: ...

    def reportLatestOffset(self) -> dict[str, Any] | None: ...

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]: ...

    def read(self, partition: InputPartition, identities: Identities) -> Iterator[pa.RecordBatch]: ...

    def commit(self, end: dict[str, Any]) -> None: ...


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
        end = self.reader.latestOffset(at, limit)
        now = self._read_identities(landing, advanced_logs(at, end))
        anew = [key for key, found in now.items() if key in at and differ(identities.get(key), found)]
        if anew:
            self.reader.lost(f"log {', '.join(anew)} was made anew since the query's last batch")
            at = without(at, anew)
            self.reader.skip_delay()
            end = self.reader.latestOffset(at, limit)
            now = self._read_identities(landing, advanced_logs(at, end))
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
        if differ(identities.get(FOLDER), self.reader.landing().identity):
            # With the old numbers `gc` would delete segments of the new folder that nobody has read.
            self.reader.lost("the landing folder was made anew while a batch ran")
            return
        self.reader.commit(offset)

    def _joined(self, landing: Landing, offset: dict[str, Any], identities: Identities) -> dict[str, Any]:
        if landing.identity is not None:
            identities = {**identities, FOLDER: landing.identity}
        return join_offset(offset, identities)

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
