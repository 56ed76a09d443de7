"""Thread that writes the lines of one audit log."""

import threading
from collections.abc import Callable
from typing import Final

from sluice.supervisor.audit.line_queue import LineQueue
from sluice.supervisor.audit.output import AuditOutput

RETRY_SECONDS: Final = 0.5  # delay before a failed write is tried again


class AuditWriter:
    """Thread that moves lines from a queue to an output until the queue is closed and empty.

    Lines that cannot be written stay in the queue and are tried again. If writing fails after the queue was closed,
    the thread ends and the remaining lines stay in the queue.
    """

    def __init__(
        self,
        queue: LineQueue,
        output: AuditOutput,
        report: Callable[[str | None, str | None], object],
        ended: Callable[[], object],
        retry: float = RETRY_SECONDS,
    ) -> None:
        """Create the thread, which `start` starts.

        report(fault, warning): called in the thread when the fault changes (None: no fault) or there is a warning.
        ended: called in the thread as its last action.
        """
        self._queue: Final = queue
        self._output: Final = output
        self._report: Final = report
        self._ended: Final = ended
        self._retry: Final = retry
        self._fault: str | None = None
        self._reopens = False
        self.lines = 0  # number of lines written
        self._thread: Final = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reopen(self) -> None:
        """Make the thread open its output again."""
        self._reopens = True
        self._queue.interrupt_wait()

    # The thread

    def _run(self) -> None:
        try:
            while (lines := self._queue.wait()) is not None:
                if self._reopens:
                    self._reopens = False
                    self._said(self._fault, self._output.reopen())
                if not lines:
                    continue
                last = self._queue.closed
                written = self._output.write(lines)
                self._queue.remove(written.lines)
                self.lines += written.lines
                self._said(written.fault, written.warning)
                if written.fault is not None:
                    if last:
                        break
                    self._queue.pause(self._retry)
        finally:
            self._output.close()
            self._ended()

    def _said(self, fault: str | None, warning: str | None) -> None:
        """Report a changed fault or a warning."""
        if fault != self._fault or warning is not None:
            self._fault = fault
            self._report(fault, warning)
