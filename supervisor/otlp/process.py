"""Export process: `python -P -m sluice.supervisor.otlp.process SOCKET PARENT NAME`.

The supervisor sends `setup`, then spans. The process converts them to those of OpenTelemetry's SDK and exports them by
OTLP over HTTP, in a thread, so that a slow collector never delays the supervisor. Spans wait in a bounded queue; spans
that do not fit, and those that the collector does not accept, are counted as dropped. Whatever fails at the collector
ends neither the thread nor the process, and is logged when exports begin to fail and when they succeed again. The
process ends when its socket is closed, after a last export.
"""

import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.children.framing import MessageSplitter, pack
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.children.zygote import IGNORED, adopt_process
from sluice.supervisor.otlp.export_messages import MAX_REQUEST
from sluice.supervisor.otlp.span_exporter import Exporter, ExportError

READ_SIZE: Final = 1 << 18
QUEUE_MOST: Final = 20_000  # spans that wait for the collector
BATCH: Final = 512  # spans of one request to the collector


class ExportLoop:
    """Export process: the thread that reads from the supervisor. Another thread exports."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket: Final = ours
        self._received: Final = MessageSplitter(MAX_REQUEST)
        self._spans: Final[queue.Queue[DeliverySpan]] = queue.Queue(QUEUE_MOST)
        self._sending: Final = threading.Lock()
        self._exporter: Exporter | None = None
        self._thread: threading.Thread | None = None
        self._closing: Final = threading.Event()
        self._exported = 0
        self._refused = 0  # spans that the collector has not accepted. Writer: the exporting thread
        self._overflowed = 0  # spans without room in the queue or without exporter. Writer: the reading thread
        self._failing = False

    def run(self) -> None:
        """Run until the supervisor closes its end, and export what waits."""
        while octets := self._read():
            for content in self._received.feed(octets):
                self._handle(decode(content))
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _read(self) -> bytes:
        select.select([self._socket], [], [])
        try:
            return self._socket.recv(READ_SIZE)
        except OSError:
            return b""

    def _handle(self, message: Message) -> None:
        if "setup" in message:
            try:
                self._exporter = Exporter(message["setup"])
            except ExportError as error:
                self._complain(str(error))
                return
            self._thread = threading.Thread(target=self._export)
            self._thread.start()
        if spans := message.get("spans"):
            self._enqueue(spans)

    def _enqueue(self, spans: list[list[Any]]) -> None:
        """Let spans wait for the export; report those that cannot, as the export itself may be waiting for long."""
        before = self._overflowed
        for fields in spans:
            try:
                if self._thread is None:
                    self._overflowed += 1
                else:
                    self._spans.put_nowait(DeliverySpan(*fields))
            except queue.Full:
                self._overflowed += 1
        if self._overflowed > before:
            self._report()

    def _report(self) -> None:
        self._send({"exported": self._exported, "dropped": self._refused + self._overflowed})

    def _export(self) -> None:
        """Export batches until the supervisor closes its end and the queue is empty, or the collector fails."""
        assert self._exporter is not None
        while True:
            batch = self._take()
            if batch:
                accepted = self._export_batch(self._exporter, batch)
                self._exported += accepted
                self._refused += len(batch) - accepted
                self._report()
                if not accepted and self._closing.is_set():
                    return
            elif self._closing.is_set():
                return

    def _export_batch(self, exporter: Exporter, batch: list[DeliverySpan]) -> int:
        """Export a batch. Returns the number of spans that the collector has accepted."""
        try:
            rejected = exporter.export(batch)
        except ExportError as error:
            self._complain(str(error))
            return 0
        except Exception as error:  # noqa: BLE001 - logged; a batch that the SDK cannot handle does not end the export
            self._complain(f"Spans cannot be exported to {exporter.endpoint}: {type(error).__name__}")
            return 0
        if rejected:
            self._complain(f"Spans cannot be exported to {exporter.endpoint}: the collector rejects some of them")
        elif self._failing:
            self._failing = False
            self._send({"log": "info", "text": f"Spans are exported to {exporter.endpoint} again"})
        return len(batch) - rejected

    def _take(self) -> list[DeliverySpan]:
        """Return the next spans, and wait for the first one for a second."""
        batch: list[DeliverySpan] = []
        try:
            batch.append(self._spans.get(timeout=0 if self._closing.is_set() else 1))
            while len(batch) < BATCH:
                batch.append(self._spans.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _complain(self, text: str) -> None:
        """Log a problem, once until an export succeeds."""
        if not self._failing:
            self._failing = True
            self._send({"log": "error", "text": text})

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            try:
                self._socket.sendall(pack(encode(message)))
            except OSError:
                self._closing.set()  # the supervisor has closed its end


def main(words: Sequence[str]) -> int:
    """Run the process. words: descriptor of the socket, pid of the supervisor, name."""
    descriptor, parent, name = int(words[0]), int(words[1]), words[2]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopt_process(parent, name, "tracing")
    os.umask(0o077)
    ExportLoop(socket.socket(fileno=descriptor)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
