"""Log of one process, supervisor or worker, with the modules, levels and line format of Dispatch 1.19.

Specification: management.md 4.

A line is `[TIMESTAMP ]MODULE (level) TEXT[ (FILE:LINE)]`, or JSON or logfmt (`formats`). It is written with one
write(2) to a file opened for append, so several processes may share the file. TEXT may come from peers: characters
that could forge a line are escaped.
Owner of a Log: the process (with one thread) that created it. Processes exchange settings as plain dictionaries
(`LogSettings.to_dict`). management.md 4.2.
"""

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final

from msgspec import Struct

from sluice.router.log.clock import TimestampFormatter
from sluice.router.log.entry import LogEntry
from sluice.router.log.formats import RFC_3339
from sluice.router.log.levels import DEFAULT, DEFAULT_MASK, LEVEL_NAMES, MODULES, SOURCES_WITHOUT_SETTINGS
from sluice.router.log.settings import LogError, LogSettings, ModuleSettings, merged
from sluice.router.log.sinks import Sink, close_outputs, open_outputs
from sluice.router.log.writer import LineWriter, LogSource

KEPT_LINES: Final = 1000  # lines kept for the management operation GET-LOG
REPEAT_AFTER: Final = 10.0  # seconds between two lines about failures of one kind
MOST_REPEATS: Final = 64  # kinds tracked at a time; all further kinds of a module count as one


class _Repeats:
    """Failures of one kind that `ProcessLog.repeated` has counted and not written yet."""

    __slots__ = ("level", "local", "module", "more", "text", "until")

    def __init__(self, module: str) -> None:
        self.module = module
        self.level = 0  # level and text of the last failure
        self.text = ""
        self.more = 0
        self.local = False
        self.until = 0.0  # time at which the number is written, in seconds of the monotonic clock


class LogChange(Struct, frozen=True):
    """Prepared change of settings, to be used or discarded. `fresh` has the sinks opened for it, by name."""

    settings: LogSettings
    clock: TimestampFormatter
    plans: Mapping[str, ModuleSettings]
    fresh: Mapping[str, Sink]

    def discard(self) -> None:
        """Close the sinks opened for this change; the settings stay as they are."""
        close_outputs(self.fresh)


class ProcessLog(LineWriter):
    """Log of one process. A call at a disabled level costs a dictionary look-up and the increment of a counter."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        """Open the sinks named by `settings` (default: info and above to stderr). Raises LogError."""
        self._sinks: dict[str, Sink] = {"stderr": Sink("stderr")}
        stderr = self._sinks["stderr"]
        super().__init__(
            {module: LogSource(module, stderr) for module in (*MODULES, *SOURCES_WITHOUT_SETTINGS)},
            deque(maxlen=KEPT_LINES),
            TimestampFormatter(None, False),
            TimestampFormatter(RFC_3339, True),
            __file__,
        )
        self._reported: dict[str, list[int]] = {}  # counters by module as of the last `take_log_changes`
        self._repeats: dict[tuple[str, str], _Repeats] = {}  # by module and kind
        self._in_force: dict[str, ModuleSettings] = {}  # by module
        # Timer function, set by a process with an event loop: call a function after a number of seconds. Without it,
        # `repeated` reports suppressed lines only when the next failure of the kind occurs.
        self.later: Callable[[float, Callable[[], None]], object] | None = None
        self.settings = LogSettings()
        self.apply(LogSettings() if settings is None else settings)

    def apply(self, settings: LogSettings, opened: Mapping[str, Sink] | None = None) -> None:
        """Replace all settings: `prepare`, then `use`. Raises LogError without having changed anything."""
        self.use(self.prepare(settings, opened))

    def prepare(self, settings: LogSettings, opened: Mapping[str, Sink] | None = None) -> "LogChange":
        """Open the sinks that other settings need, without using these settings yet. Raises LogError.

        `opened` has needed sinks that the caller has opened already (see `missing`). The log takes them over; unneeded
        ones, and all of them in case of an error, are closed.
        """
        given = dict(opened or {})
        try:
            clock = TimestampFormatter(settings.timestamp_format, settings.utc)
            try:
                clock.stamp(time.time_ns())
            except ValueError as error:
                raise LogError(f"Invalid timestampFormat '{settings.timestamp_format}': {error}") from error
            plans = self._plans(settings)
            names = {str(plan.output) for plan in plans.values()}
            fresh = open_outputs(names - self._sinks.keys() - given.keys())
        except LogError:
            close_outputs(given)
            raise
        fresh |= {name: given.pop(name) for name in names - self._sinks.keys() if name in given}
        close_outputs(given)
        return LogChange(settings, clock, plans, fresh)

    def use(self, change: "LogChange") -> None:
        """Put a prepared change of settings into force."""
        settings, plans = change.settings, change.plans
        self._forget_repeats({module for module, plan in plans.items() if plan != self._in_force.get(module)})
        self._in_force = dict(plans)
        names = {str(plan.output) for plan in plans.values()}
        sinks = {name: change.fresh.get(name) or self._sinks[name] for name in names}
        unused = [sink for name, sink in self._sinks.items() if name not in sinks]
        self._sinks, self.clock, self.settings = sinks, change.clock, settings
        for module, plan in plans.items():
            source = self.sources[module]
            source.sink = sinks[str(plan.output)]
            source.mask = DEFAULT_MASK if plan.mask is None else plan.mask
            source.timestamp = bool(plan.timestamp) and plan.output != "syslog"
            source.show_source = bool(plan.source)
            source.format = str(plan.format)
        for sink in unused:
            sink.close()

    def _plans(self, settings: LogSettings) -> dict[str, ModuleSettings]:
        """Return the settings of each module, with those of DEFAULT filled in."""
        default = settings.modules.get(DEFAULT, ModuleSettings())
        return {module: merged(settings.modules.get(module), default) for module in self.sources}

    def missing(self, settings: LogSettings) -> set[str]:
        """Return the names of the sinks that `settings` need and that are not open."""
        return {str(plan.output) for plan in self._plans(settings).values()} - self._sinks.keys()

    @property
    def files(self) -> list[str]:
        """Return the names of all open files."""
        return [name for name, sink in self._sinks.items() if sink.is_file]

    def reopen(self) -> None:
        """Reopen all files, for example after rotation.

        Raises LogError for the first file that cannot be opened; the log continues to write to its old descriptor.
        """
        failed: LogError | None = None
        for name in self.files:
            try:
                self.replace_descriptors(open_outputs([name]))
            except LogError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def replace_descriptors(self, opened: Mapping[str, Sink]) -> None:
        """Replace the descriptors of files by newly opened ones of the same names, for example after rotation."""
        for name, sink in opened.items():
            own = self._sinks.get(name)
            if own is None:
                sink.close()
            else:
                own.become(sink)

    def hold(self) -> None:
        """Buffer lines below level error until `release`, so that many lines cost one system call."""
        for sink in self._sinks.values():
            sink.hold()

    def release(self) -> None:
        """Write the buffered lines."""
        for sink in self._sinks.values():
            sink.release()

    def repeated(self, level: int, module: str, kind: str, text: str, *, local: bool = False) -> None:
        """Write a line about a failure that may repeat often.

        The first line of a kind is written. After that, one line every REPEAT_AFTER seconds has the number of further
        failures and the text of the last one, until an interval has none. local: `on_line` does not get the lines,
        because it may be what fails.
        """
        name = (module, kind if (module, kind) in self._repeats or len(self._repeats) < MOST_REPEATS else "")
        found = self._repeats.get(name)
        if found is not None and time.monotonic() < found.until:
            found.more += 1
            found.level, found.text, found.local = level, text, local
            self.count(module, level)
            return
        if found is not None:  # no timer has called `_flush_repeats` in time
            self._report_repeats(found)
        with self._unreported(local):
            self.write(level, module, text)
        self._repeats[name] = found = _Repeats(module)
        found.local = local
        self._call_later(name, found)

    def _call_later(self, name: tuple[str, str], found: "_Repeats") -> None:
        found.until = time.monotonic() + REPEAT_AFTER
        if self.later is not None:
            self.later(REPEAT_AFTER, lambda: self._flush_repeats(name, found))

    def _flush_repeats(self, name: tuple[str, str], found: "_Repeats") -> None:
        if self._repeats.get(name) is not found:
            return
        if found.more:
            self._report_repeats(found)
            self._call_later(name, found)
        else:
            del self._repeats[name]

    def _forget_repeats(self, modules: Container[str]) -> None:
        """Write the next failure of each kind of these modules in full again.

        A user who changes the output or the levels of a module expects to see the failure there.
        """
        for name, found in list(self._repeats.items()):
            if found.module in modules:
                self._report_repeats(found)
                del self._repeats[name]

    def _report_repeats(self, found: "_Repeats") -> None:
        if found.more:
            text = found.text.partition("\n")[0]
            source = self.sources[found.module]
            if source.mask & found.level:
                line = f"{found.more} more of this kind in {REPEAT_AFTER:.0f} seconds, the last: {text}"
                with self._unreported(found.local):
                    self.write_uncounted(found.level, found.module, line)
            found.more = 0

    @contextmanager
    def _unreported(self, local: bool) -> Iterator[None]:
        """Withhold lines from `on_line`, if they are local."""
        on_line = self.on_line
        if local:
            self.on_line = None
        try:
            yield
        finally:
            self.on_line = on_line

    def recent(self, limit: int | None = None) -> list[LogEntry]:
        """Return the last lines written, oldest first: at most `limit`, at most KEPT_LINES. management.md 4.5."""
        skipped = 0 if limit is None else max(0, len(self.kept) - max(0, limit))
        return list(islice(self.kept, skipped, None))

    def take_log_changes(self) -> tuple[dict[str, list[int]], list[LogEntry]]:
        """Return the increase of the counters, and the lines, since the last call, for `add_log_changes` of a log."""
        counts = {}
        for module, source in self.sources.items():
            before = self._reported.setdefault(module, [0] * len(LEVEL_NAMES))
            if source.counts != before:
                counts[module] = [now - then for now, then in zip(source.counts, before, strict=True)]
                self._reported[module] = list(source.counts)
        skipped = max(0, len(self.kept) - self.fresh)
        self.fresh = 0
        return counts, list(islice(self.kept, skipped, None))

    def add_log_changes(self, news: Mapping[str, list[int]], lines: Iterable[LogEntry]) -> None:
        """Add the counters and lines that `take_log_changes` of another log returned. Raises KeyError, ValueError."""
        for module, counts in news.items():
            own = self.sources[module].counts
            own[:] = [mine + theirs for mine, theirs in zip(own, counts, strict=True)]
        self.kept.extend(lines)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the number of lines by module and level, written or not (management type logStats)."""
        return {module: dict(zip(LEVEL_NAMES, source.counts, strict=True)) for module, source in self.sources.items()}

    def lost_lines(self) -> dict[str, int]:
        """Return the outputs to which this process cannot write now, with the number of lines lost so far."""
        return {name: sink.lost for name, sink in self._sinks.items() if sink.lost}

    def close(self) -> None:
        """Close all files. The log must not be used afterwards."""
        for found in self._repeats.values():
            self._report_repeats(found)
        for sink in self._sinks.values():
            sink.close()
        self._sinks = {}
