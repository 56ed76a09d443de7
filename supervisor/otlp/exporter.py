"""Exporter of one signal to one collector by OTLP over HTTP, through OpenTelemetry's SDK.

Only the export process imports the SDK, an optional dependency (extra `otel`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Generic

from sluice.router.config.collector_tls import CollectorTls
from sluice.router.version import VERSION
from sluice.supervisor.otlp.signal_queue import Item

TIMEOUT_SECONDS: Final = 10
SERVICE: Final = "sluice"  # service.name, and name of the instrumentation scope
MISSING: Final = "are not exported, because the packages of the extra 'otel' are not installed"


class ExportError(Exception):
    """Failure of an export. Its text is for the log."""


class Exporter(ABC, Generic[Item]):
    """Exporter to one collector. Owner: a `SignalExport`."""

    SUBJECT: ClassVar[str]  # name of the items, for the log
    BATCH: ClassVar[int]  # items of one request to the collector
    MOST_WAITING: ClassVar[int]  # limit of the weights of all items that wait for the collector
    NEWEST: ClassVar[bool] = False  # True: the newest items stay if there is no room for all

    def __init__(self, endpoint: str, tls: CollectorTls, router: str) -> None:
        """router: its id. Raises ExportError."""
        # The SDK logs each failure, and without a handler its lines go to stderr. The router logs failures itself.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope

            from sluice.supervisor.otlp.collector_session import CollectorSession

            self._session: Final = CollectorSession(self._rejected())
            self._exporter: Final = self._made(
                endpoint=endpoint,
                certificate_file=tls.ca_cert_file,
                client_certificate_file=tls.cert_file,
                client_key_file=tls.key_file,
                timeout=TIMEOUT_SECONDS,
                session=self._session,
            )
        except ImportError as error:
            raise ExportError(f"{self.SUBJECT} {MISSING}") from error
        self.endpoint: Final = endpoint
        self.resource: Final = Resource({
            "service.name": SERVICE, "service.instance.id": router, "service.version": VERSION
        })  # fmt: skip
        self.scope: Final = InstrumentationScope(SERVICE, VERSION)

    def export(self, batch: Sequence[Item]) -> int:
        """Export items. Returns the number of spans, records or data points that the collector rejects.

        Raises ExportError.
        """
        if not self._send(batch):
            raise self.failure(self._session.failure or "they cannot be encoded")
        return min(self._session.rejected, sum(map(self.number, batch)))

    def failure(self, reason: str) -> ExportError:
        """Return the error of a failed export."""
        return ExportError(f"{self.SUBJECT} cannot be exported to {self.endpoint}: {reason}")

    @staticmethod
    def number(item: Item) -> int:
        """Return the number of spans, records or data points of an item."""
        return 1

    @staticmethod
    def weight(item: Item) -> int:
        """Return the share of an item in MOST_WAITING."""
        return 1

    @abstractmethod
    def _made(self, **options: Any) -> Any:
        """Return the SDK's exporter. options: for its constructor. Raises ImportError."""

    @abstractmethod
    def _rejected(self) -> Callable[[bytes], int]:
        """Return the decoder of answers; see `collector_session.Rejected`. Raises ImportError."""

    @abstractmethod
    def _send(self, batch: Sequence[Item]) -> bool:
        """Convert items and pass them to the SDK's exporter. Returns False if it fails."""
