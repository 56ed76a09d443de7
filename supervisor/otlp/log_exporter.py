"""Log records for a collector: conversion of entries of the log to records of OpenTelemetry's SDK.

Severity numbers are those of the levels of syslog (OpenTelemetry, Logs Data Model, appendix B). Attributes follow the
semantic conventions where these have one (`code.`), and begin with `sluice.` otherwise, as those of spans.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sluice.router.log.entry import LogEntry
from sluice.router.log.formats import link_numbers, whole_text
from sluice.supervisor.otlp.exporter import Exporter

# Names of the SDK's SeverityNumber by level.
SEVERITIES: Final[Mapping[str, str]] = {
    "trace": "TRACE", "debug": "DEBUG", "info": "INFO", "notice": "INFO2", "warning": "WARN", "error": "ERROR",
    "critical": "ERROR2",
}  # fmt: skip
RECORD_OCTETS: Final = 500  # memory of an entry that waits, without its text
_SECOND_NS: Final = 1_000_000_000


class ExportedEntry(NamedTuple):
    """Entry of the log, with the worker that wrote it; None: the supervisor."""

    entry: LogEntry
    worker: int | None


class LogExporter(Exporter[ExportedEntry]):
    """Exporter of log records."""

    SUBJECT = "Log records"
    BATCH = 512
    MOST_WAITING = 16 << 20  # octets

    @staticmethod
    def weight(item: ExportedEntry) -> int:
        return RECORD_OCTETS + len(item.entry.text)

    def _made(self, **options: Any) -> Any:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        return OTLPLogExporter(**options)

    def _rejected(self) -> Callable[[bytes], int]:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

        return lambda content: ExportLogsServiceResponse.FromString(content).partial_success.rejected_log_records

    def _send(self, batch: Sequence[ExportedEntry]) -> bool:
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        return self._exporter.export([self._converted(line) for line in batch]) is LogRecordExportResult.SUCCESS

    def _converted(self, line: ExportedEntry) -> Any:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import ReadableLogRecord

        entry = line.entry
        record = LogRecord(
            timestamp=entry.seconds * _SECOND_NS + entry.nanoseconds,
            severity_text=entry.level,
            severity_number=SeverityNumber[SEVERITIES[entry.level]],
            body=whole_text(entry),
            attributes=_attributes(line),
        )
        return ReadableLogRecord(record, self.resource, self.scope)


def _attributes(line: ExportedEntry) -> dict[str, str | int]:
    """Return the attributes of a record: module, numbers of worker, connection and link, and the place in the code."""
    entry = line.entry
    connection, link = link_numbers(entry)
    found = {
        "sluice.module": entry.module,
        "sluice.worker": line.worker,
        "sluice.connection": connection,
        "sluice.link": link,
        "code.file.path": entry.file,
        "code.line.number": entry.line,
    }
    return {name: value for name, value in found.items() if value is not None}
