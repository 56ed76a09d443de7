"""Export of spans to a collector: the process that exports them, and their way to it.

Owner of the tracing section. Without one there is no process. Spans that come while the process does not run, and those
that it cannot send, are counted as dropped.
"""

import asyncio
from typing import Final

from sluice.router.config.entities import Configuration, TracingConfig
from sluice.router.log import ERROR, LEVELS, ProcessLog
from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.children.child_process import ChildProcess, ChildProgram, module_command
from sluice.supervisor.children.framing import MessageError
from sluice.supervisor.children.json_messages import decode, encode
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.otlp.export_messages import MAX_REPORT, MAX_REQUEST
from sluice.supervisor.subsystem import Subsystem
from sluice.supervisor.tracing.delivery_traces import DeliveryTraces

MODULE: Final = "sluice.supervisor.otlp.process"
LOG_MODULE: Final = "SERVER"
MOST_PAUSE: Final = 60.0  # maximum seconds before a restart; nobody waits for the process
END_SECONDS: Final = 5.0  # time limit for the last export


class CollectorExport(Subsystem):
    """Export of spans. Owner: the supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, traces: DeliveryTraces, log: ProcessLog, name: str) -> None:
        """name: of the program."""
        self._loop: Final = loop
        self._traces: Final = traces
        self._log: Final = log
        self._program: Final = ChildProgram(
            label="tracing",
            command=module_command(MODULE, f"{name}-otel"),
            log_module=LOG_MODULE,
            log_level=ERROR,
            most_message=MAX_REPORT,
            most_unsent=MAX_REQUEST,
            most_pause=MOST_PAUSE,
        )
        self._config: TracingConfig | None = None
        self._router = ""
        self._process: ChildProcess | None = None  # None: nothing is exported
        self._counts = [0, 0]  # exported and dropped, by the present process
        self._before = [0, 0]  # by earlier processes
        self._unsent = 0  # spans that found no process

    def _note(self) -> None:
        """Report the numbers of spans since the start of the router."""
        exported, dropped = (before + count for before, count in zip(self._before, self._counts, strict=True))
        self._traces.note_export(exported, dropped + self._unsent)

    # Life and configuration

    def start(self, configuration: Configuration) -> None:
        self._use(configuration)

    def commit(self, change: ConfigurationChange) -> None:
        self._use(change.new)

    async def finish(self) -> None:
        """Export the last spans, after the workers have exited."""
        if self._process is not None:
            await self._process.finish(END_SECONDS)
            self._process = None

    def _use(self, configuration: Configuration) -> None:
        found = next((each for each in configuration.others if isinstance(each, TracingConfig)), None)
        before, self._config, self._router = self._config, found, configuration.router.id
        if found == before:
            return
        self._traces.configure(found, None if found is None else self._export)
        if self._process is not None and (found is None or before is None or _target(found) != _target(before)):
            self._process.stop()
            self._process = None
            self._forget_counts()
        if found is not None and self._process is None:
            self._process = ChildProcess(self._loop, self._program, self, self._log)
            self._process.start()

    # The process

    def _export(self, spans: list[DeliverySpan]) -> None:
        if self._process is None or not self._process.running:
            self._unsent += len(spans)
            self._note()
        else:
            self._process.send(encode({"spans": spans}))

    def child_started(self) -> None:
        """Send the address of the collector to a new process."""
        config, process = self._config, self._process
        assert config is not None
        assert process is not None
        setup = {"endpoint": config.endpoint, "ca": config.ca_cert_file, "router": self._router}
        process.send(encode({"setup": setup}))

    def child_reported(self, content: bytes) -> None:
        """Handle a message of the process. Raises MessageError."""
        message = decode(content)
        try:
            if "log" in message:
                # A kind for each level: the line about a recovery is no repetition of the one about the failure.
                level = str(message["log"])
                self._log.repeated(LEVELS[level], LOG_MODULE, f"spans, {level}", str(message["text"]))
            else:
                self._counts = [int(message["exported"]), int(message["dropped"])]
                self._note()
        except (ValueError, KeyError, TypeError) as error:
            raise MessageError(str(error)) from error

    def child_lost(self, why: str) -> None:
        """Keep the counts of the process that exited."""
        self._forget_counts()

    def _forget_counts(self) -> None:
        for at, count in enumerate(self._counts):
            self._before[at] += count
        self._counts = [0, 0]


def _target(config: TracingConfig) -> tuple[str, str | None]:
    """Return what a process knows of its configuration."""
    return config.endpoint, config.ca_cert_file
