"""Export of one signal: its queue, and the thread that exports what waits in it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic

from sluice.supervisor.otlp.exporter import Exporter, ExportError
from sluice.supervisor.otlp.signal_queue import Item, SignalQueue


class ExportCounts:
    """Numbers of spans, records or data points since the start of the process. Writers: all threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._exported = 0
        self._dropped = 0

    def add(self, exported: int, dropped: int) -> None:
        """Count. dropped: without room, or not accepted by the collector."""
        with self._lock:
            self._exported += exported
            self._dropped += dropped

    def get(self) -> tuple[int, int]:
        """Return the numbers of exported and dropped ones."""
        with self._lock:
            return self._exported, self._dropped


class SignalExport(Generic[Item]):
    """Export of one signal to one collector. Owner: the export process.

    Failures are logged when exports begin to fail and when they succeed again, and end nothing.
    """

    def __init__(
        self,
        exporter: Exporter[Item],
        counts: ExportCounts,
        report: Callable[[], None],
        log: Callable[[str, str], None],
    ) -> None:
        """report(): report the counts, in any thread. log(level, text)."""
        self._exporter: Final = exporter
        self._counts: Final = counts
        self._report: Final = report
        self._log: Final = log
        self._queue: Final[SignalQueue[Item]] = SignalQueue(
            exporter.MOST_WAITING, exporter.weight, newest=exporter.NEWEST
        )
        self._failing = False
        self._thread: Final = threading.Thread(target=self._run)
        self._thread.start()

    def put(self, items: Sequence[Item]) -> None:
        """Let items wait for the export; report those without room, as the export itself may be waiting for long."""
        if dropped := self._queue.put(items):
            self._counts.add(0, self._number(dropped))
            self._report()

    def close(self) -> None:
        """End after the export of what waits, or at the first failure."""
        self._queue.close()

    def join(self) -> None:
        """Wait for the end, after `close`."""
        self._thread.join()

    def _number(self, items: Sequence[Item]) -> int:
        return sum(map(self._exporter.number, items))

    def _run(self) -> None:
        while batch := self._queue.take(self._exporter.BATCH):
            count = self._number(batch)
            accepted = self._export(batch, count)
            if not accepted and self._queue.closed:
                while batch := self._queue.take(self._exporter.BATCH):
                    count += self._number(batch)
            self._counts.add(accepted, count - accepted)
            self._report()

    def _export(self, batch: Sequence[Item], count: int) -> int:
        """Export a batch of `count` spans, records or data points. Returns the number of accepted ones."""
        try:
            rejected = self._exporter.export(batch)
        except ExportError as error:
            self._complain(error)
            return 0
        except Exception as error:  # noqa: BLE001 - logged; a batch that the SDK cannot handle does not end the export
            self._complain(self._exporter.failure(type(error).__name__))
            return 0
        if rejected:
            self._complain(self._exporter.failure("the collector rejects some of them"))
        elif self._failing:
            self._failing = False
            self._log("info", f"{self._exporter.SUBJECT} are exported to {self._exporter.endpoint} again")
        return count - rejected

    def _complain(self, error: Any) -> None:
        """Log a failure, once until an export succeeds."""
        if not self._failing:
            self._failing = True
            self._log("error", str(error))
