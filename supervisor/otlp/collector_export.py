"""Export to a collector of OpenTelemetry: the process that exports, and the way of spans, lines and metrics to it.

Owner of the sections `openTelemetry` and `tracing`. Without them there is no process. Whatever comes while the process
does not run, or does not reach it, is counted as dropped, and so is what a process that exits has not reported.
"""

import asyncio
import time
from functools import partial
from typing import Final

from sluice.router.config.build_open_telemetry import SIGNAL_PATHS
from sluice.router.config.build_tracing import NO_COLLECTOR
from sluice.router.config.collector_tls import CollectorTls
from sluice.router.config.entities import Configuration, OpenTelemetryConfig, TracingConfig
from sluice.router.log import ERROR, LEVELS, ProcessLog
from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.children.child_process import ChildProcess, ChildProgram, module_command
from sluice.supervisor.children.framing import MessageError
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.otlp.export_messages import LOGS, MAX_REPORT, MAX_REQUEST, METRICS, SIGNALS, TRACES
from sluice.supervisor.otlp.log_lines import Line, LogLines
from sluice.supervisor.otlp.metric_pages import MakeSource, MetricPages
from sluice.supervisor.subsystem import Subsystem
from sluice.supervisor.telemetry.logging import Logging
from sluice.supervisor.tracing.delivery_traces import DeliveryTraces

MODULE: Final = "sluice.supervisor.otlp.process"
LOG_MODULE: Final = "SERVER"
MOST_PAUSE: Final = 60.0  # maximum seconds before a restart; nobody waits for the process
END_SECONDS: Final = 5.0  # time limit for the last export
MOST_UNSENT: Final = MAX_REQUEST // 2  # octets that wait for the process; with more, messages are dropped
STALL_SECONDS: Final = 10.0  # time of dropped messages after which the process hangs

_Target = tuple[str, CollectorTls]  # URL and files


class CollectorExport(Subsystem):
    """Export to a collector. Owner: the supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        traces: DeliveryTraces,
        logging: Logging,
        log: ProcessLog,
        name: str,
        make_source: MakeSource,
    ) -> None:
        """name: of the program. make_source: of the metrics."""
        self._loop: Final = loop
        self._traces: Final = traces
        self._logging: Final = logging
        self._log: Final = log
        self._program: Final = ChildProgram(
            label="OpenTelemetry",
            command=module_command(MODULE, f"{name}-otel"),
            log_module=LOG_MODULE,
            log_level=ERROR,
            most_message=MAX_REPORT,
            most_unsent=MAX_REQUEST,
            most_pause=MOST_PAUSE,
        )
        self._lines: Final = LogLines(loop, self._send_lines, partial(self._count_unpassed, LOGS))
        self._pages: Final = MetricPages(loop, make_source, self._send, self._count_points, log)
        self._began: Final = time.time_ns()
        self._targets: dict[str, _Target] = {}  # by signal
        self._tracing: TracingConfig | None = None
        self._router = ""
        self._process: ChildProcess | None = None  # None: nothing is exported
        self._stalled: float | None = None  # time of the first of the dropped messages, on the clock of the loop
        self._counts: Final = {signal: _Counts() for signal in SIGNALS}

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the numbers of spans, log records and data points since the start of the router.

        By signal and result: `exported`, and `unexported` if the collector did not get them. Neither has those that
        wait.
        """
        found: dict[tuple[str, str], int] = {}
        for signal, counts in self._counts.items():
            found[signal, "exported"] = counts.exported_before + counts.exported
            found[signal, "unexported"] = counts.dropped_before + counts.dropped
        return found

    def _count_unpassed(self, signal: str, number: int) -> None:
        """Count what did not reach the process."""
        self._counts[signal].dropped_before += number
        if signal == TRACES:
            self._note_spans()

    def _count_points(self, number: int, passed: bool) -> None:
        """Count the data points of a page."""
        if passed:
            self._counts[METRICS].passed += number
        else:
            self._count_unpassed(METRICS, number)

    def _note_spans(self) -> None:
        counts = self.counts()
        self._traces.note_export(counts[TRACES, "exported"], counts[TRACES, "unexported"])

    # Life and configuration

    def start(self, configuration: Configuration) -> None:
        """Begin, with the lines that the log has already."""
        self._use(configuration)
        if LOGS in self._targets:
            self._lines.add(self._logging.recent(), None, 0)

    def prepare(self, change: ConfigurationChange) -> None:
        """Refuse to remove the collector of a section `tracing`. Raises ChangeError."""
        tracing, collector = _sections(change.new)
        if tracing is not None and tracing.endpoint is None and collector is None:
            raise ChangeError(400, f"{tracing.entity_type.long_name}: {NO_COLLECTOR}")

    def commit(self, change: ConfigurationChange) -> None:
        self._use(change.new)

    async def finish(self) -> None:
        """Export the last spans, lines and metrics, after the workers have exited."""
        await self._pages.finish()
        self._lines.flush()
        self._logging.export(None)
        if self._process is not None:
            await self._process.finish(END_SECONDS)
            self._process = None

    def _use(self, configuration: Configuration) -> None:
        tracing, collector = _sections(configuration)
        before, self._targets = self._targets, _targets(tracing, collector)
        self._router = configuration.router.id
        if tracing != self._tracing:
            self._tracing = tracing
            self._traces.configure(tracing, None if tracing is None else self._export_spans)
        if (LOGS in before) != (LOGS in self._targets):
            self._logging.export(self._lines.add if LOGS in self._targets else None)
        if self._process is not None and not self._targets:
            self._process.stop()
            self._process = None
            self._forget_process()
        elif self._process is not None and self._targets != before:
            self._send_setup(self._process)
        elif self._process is None and self._targets:
            self._process = ChildProcess(self._loop, self._program, self, self._log)
            self._process.start()
        self._pages.use(None if collector is None or not collector.metrics else collector.metrics_interval_seconds)

    # The process

    def _send(self, message: Message) -> bool:
        """Send a message to the process. Returns False if it is dropped, because none runs or it does not read."""
        process = self._process
        if process is None or not process.running:
            return False
        if process.unsent > MOST_UNSENT:
            now = self._loop.time()
            self._stalled = self._stalled or now
            if now - self._stalled > STALL_SECONDS:
                self._stalled = None
                process.fail("it does not read")
            return False
        self._stalled = None
        process.send(encode(message))
        return True

    def _export_spans(self, spans: list[DeliverySpan]) -> None:
        if self._send({"spans": spans}):
            self._counts[TRACES].passed += len(spans)
        else:
            self._count_unpassed(TRACES, len(spans))

    def _send_lines(self, lines: list[Line]) -> None:
        if self._send({"lines": lines}):
            self._counts[LOGS].passed += len(lines)
        else:
            self._count_unpassed(LOGS, len(lines))

    def child_started(self) -> None:
        """Send the addresses of the collectors to a new process."""
        assert self._process is not None
        self._send_setup(self._process)

    def _send_setup(self, process: ChildProcess) -> None:
        setup = {"targets": self._targets, "router": self._router, "began": self._began}
        process.send(encode({"setup": setup}))

    def child_reported(self, content: bytes) -> None:
        """Handle a message of the process. Raises MessageError."""
        message = decode(content)
        try:
            signal = str(message["signal"])
            counts = self._counts[signal]
            if "log" in message:
                # A kind for each level: the line about a recovery is no repetition of the one about the failure. A line
                # about the export of lines is not exported, because it would cause the next one.
                level = str(message["log"])
                kind, local = f"{signal}, {level}", signal == LOGS
                self._log.repeated(LEVELS[level], LOG_MODULE, kind, str(message["text"]), local=local)
            else:
                counts.exported, counts.dropped = int(message["exported"]), int(message["dropped"])
                self._note_spans()
        except (ValueError, KeyError, TypeError) as error:
            raise MessageError(repr(error)) from error

    def child_lost(self, why: str) -> None:
        """Keep the counts of the process that exited."""
        self._forget_process()

    def _forget_process(self) -> None:
        """Count what a process has not reported as dropped."""
        for counts in self._counts.values():
            counts.forget_process()
        self._pages.interrupt()
        self._note_spans()


class _Counts:
    """Numbers of one signal since the start of the router. Owner: the export."""

    __slots__ = ("dropped", "dropped_before", "exported", "exported_before", "passed")

    def __init__(self) -> None:
        self.passed = 0  # to the present process
        self.exported = 0  # reported by it
        self.dropped = 0
        self.exported_before = 0  # by earlier processes
        self.dropped_before = 0  # by earlier processes, and what found none

    def forget_process(self) -> None:
        """Count what the present process has not reported as dropped; there is no present process from here on."""
        self.exported_before += self.exported
        self.dropped_before += max(self.passed - self.exported, self.dropped)
        self.passed = self.exported = self.dropped = 0


def _sections(configuration: Configuration) -> tuple[TracingConfig | None, OpenTelemetryConfig | None]:
    tracing = next((each for each in configuration.others if isinstance(each, TracingConfig)), None)
    collector = next((each for each in configuration.others if isinstance(each, OpenTelemetryConfig)), None)
    return tracing, collector


def _targets(tracing: TracingConfig | None, collector: OpenTelemetryConfig | None) -> dict[str, _Target]:
    """Return the target of each signal that is exported."""
    found: dict[str, _Target] = {}
    if collector is not None:
        wanted = {TRACES: tracing is not None, LOGS: collector.logs, METRICS: collector.metrics}
        for signal, path in SIGNAL_PATHS.items():
            if wanted[signal]:
                found[signal] = collector.endpoint + path, collector.tls
    if tracing is not None and tracing.endpoint is not None:
        found[TRACES] = tracing.endpoint, tracing.tls
    return found
