"""Export process: `python -P -m sluice.supervisor.otlp.process SOCKET PARENT NAME`.

The supervisor sends `setup`, then spans, lines of the log and pages of metrics. The process converts them to those of
OpenTelemetry's SDK and exports them by OTLP over HTTP, in one thread for each signal, so that a slow collector delays
neither the supervisor nor other signals. Each signal has a bounded queue; what does not fit, and what the collector
does not accept, is counted as dropped. Whatever fails at the collector ends neither a thread nor the process, and is
logged when exports begin to fail and when they succeed again. The process ends when its socket is closed, after a last
export.
"""

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sluice.router.config.collector_tls import CollectorTls
from sluice.router.log.entry import LogEntry
from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.children.framing import MessageSplitter, pack
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.children.zygote import IGNORED, adopt_process
from sluice.supervisor.otlp.export_messages import LOGS, MAX_REQUEST, METRICS, SIGNALS, TRACES
from sluice.supervisor.otlp.exporter import Exporter, ExportError
from sluice.supervisor.otlp.log_exporter import ExportedEntry, LogExporter
from sluice.supervisor.otlp.metric_exporter import MetricExporter, MetricFamily, MetricPage
from sluice.supervisor.otlp.signal_export import ExportCounts, SignalExport
from sluice.supervisor.otlp.span_exporter import SpanExporter

READ_SIZE: Final = 1 << 18


class ExportLoop:
    """Export process: the thread that reads from the supervisor. Other threads export."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket: Final = ours
        self._received: Final = MessageSplitter(MAX_REQUEST)
        self._sending: Final = threading.Lock()
        self._targets: dict[str, Any] = {}  # endpoint and files of CollectorTls, by signal
        self._exports: Final[dict[str, SignalExport[Any]]] = {}
        self._closed: Final[list[SignalExport[Any]]] = []  # exports to earlier targets
        self._counts: Final = {name: ExportCounts() for name in SIGNALS}
        self._families: list[MetricFamily] | None = None  # page that is being received; None: none is

    def run(self) -> None:
        """Run until the supervisor closes its end, and export what waits."""
        while octets := self._read():
            for content in self._received.feed(octets):
                self._handle(decode(content))
        for name in list(self._exports):
            self._close(name)
        for export in self._closed:
            export.join()

    def _read(self) -> bytes:
        select.select([self._socket], [], [])
        try:
            return self._socket.recv(READ_SIZE)
        except OSError:
            return b""

    def _handle(self, message: Message) -> None:
        if "setup" in message:
            self._set_up(message["setup"])
        elif "spans" in message:
            self._put(TRACES, [DeliverySpan(*fields) for fields in message["spans"]])
        elif "lines" in message:
            self._put(LOGS, [ExportedEntry(LogEntry(*fields), worker) for worker, *fields in message["lines"]])
        elif "family" in message:
            self._add_family(MetricFamily(*message["family"]))
        else:
            self._handle_page(message["page"])

    def _add_family(self, family: MetricFamily) -> None:
        """Add a piece of a metric to the page."""
        if self._families is None:
            return
        if self._families and self._families[-1].name == family.name:
            self._families[-1].samples.extend(family.samples)
        else:
            self._families.append(family)

    def _handle_page(self, time: int | None) -> None:
        """Handle the begin (None) or the end of a page of metrics. A page without its begin is ignored."""
        families, self._families = self._families, [] if time is None else None
        if time is not None and families is not None:
            self._put(METRICS, [MetricPage(time, families)])

    def _set_up(self, setup: dict[str, Any]) -> None:
        """Begin, end and replace exports, so that each signal has its target. setup: targets, router, began."""
        targets = setup["targets"]
        for name in SIGNALS:
            if targets.get(name) == self._targets.get(name):
                continue
            self._close(name)
            if name in targets:
                try:
                    exporter = self._exporter(name, setup)
                except ExportError as error:
                    self._log(name, "error", str(error))
                    continue
                self._exports[name] = SignalExport(
                    exporter, self._counts[name], partial(self._report, name), partial(self._log, name)
                )
        self._targets = targets

    def _exporter(self, name: str, setup: dict[str, Any]) -> Exporter[Any]:
        """Return the exporter of a signal. Raises ExportError."""
        endpoint, files = setup["targets"][name]
        tls = CollectorTls(*files)
        router = setup["router"]
        if name == METRICS:
            return MetricExporter(endpoint, tls, router, setup["began"])
        return LogExporter(endpoint, tls, router) if name == LOGS else SpanExporter(endpoint, tls, router)

    def _close(self, name: str) -> None:
        export = self._exports.pop(name, None)
        if export is not None:
            export.close()
            self._closed.append(export)

    def _put(self, name: str, items: Sequence[Any]) -> None:
        """Let items wait for their export; count them as dropped if there is none."""
        export = self._exports.get(name)
        if export is not None:
            export.put(items)
            return
        number = MetricExporter.number if name == METRICS else Exporter.number
        self._counts[name].add(0, sum(map(number, items)))
        self._report(name)

    def _report(self, name: str) -> None:
        exported, dropped = self._counts[name].get()
        self._send({"signal": name, "exported": exported, "dropped": dropped})

    def _log(self, name: str, level: str, text: str) -> None:
        self._send({"signal": name, "log": level, "text": text})

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            try:
                self._socket.sendall(pack(encode(message)))
            except OSError:
                pass  # the supervisor has closed its end, which the reading thread sees


def main(words: Sequence[str]) -> int:
    """Run the process. words: descriptor of the socket, pid of the supervisor, name."""
    descriptor, parent, name = int(words[0]), int(words[1]), words[2]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopt_process(parent, name, "OpenTelemetry")
    os.umask(0o077)
    ExportLoop(socket.socket(fileno=descriptor)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
