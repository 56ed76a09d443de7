"""Export process: `python -P -m sluice.supervisor.tracing.process SOCKET PARENT NAME`.

The supervisor sends `setup`, then spans. The process converts them to those of OpenTelemetry's SDK and exports them by
OTLP over HTTP, in a thread, so that a slow collector never delays the supervisor. Spans wait in a bounded queue; spans
that do not fit are counted as dropped. The process ends when its socket is closed, after a last export.
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
from sluice.supervisor.tracing.export_messages import MAX_REQUEST
from sluice.supervisor.tracing.otlp import Exporter, ExportError

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
        self._dropped = 0
        self._complaint = ""

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
        for fields in message.get("spans", ()):
            try:
                self._spans.put_nowait(DeliverySpan(*fields))
            except queue.Full:
                self._dropped += 1

    def _export(self) -> None:
        """Export batches until the supervisor closes its end and the queue is empty, or the collector refuses."""
        assert self._exporter is not None
        while True:
            batch = self._take()
            if batch:
                try:
                    self._exporter.export(batch)
                    self._exported += len(batch)
                    self._complaint = ""
                except ExportError as error:
                    self._dropped += len(batch)
                    self._complain(str(error))
                    if self._closing.is_set():
                        return
                self._send({"exported": self._exported, "dropped": self._dropped})
            elif self._closing.is_set():
                return

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
        if text != self._complaint:
            self._complaint = text
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
