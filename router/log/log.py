"""The log of one process: modules, levels and line format of Dispatch 1.19, for supervisor and workers alike.

management.md 4.

A line is `[TIMESTAMP ]MODULE (level) TEXT[ (FILE:LINE)]`, written with one write(2) to a file opened for append, so
that several processes may share the file. TEXT may come from peers: what could pass for another line is made harmless.
Owner of a Log: the one process (one thread) that created it. Settings travel between processes as plain dictionaries
(`LogSettings.to_dict`).
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import islice
from types import FrameType
from typing import Final, NamedTuple

from msgspec import Struct

from router.log.clock import Clock
from router.log.levels import (
    CRITICAL,
    DEBUG,
    DEFAULT,
    DEFAULT_MASK,
    ERROR,
    INFO,
    LEVEL_NAMES,
    MODULES,
    NOTICE,
    SOURCES_WITHOUT_SETTINGS,
    TRACE,
    WARNING,
)
from router.log.settings import LogError, LogSettings, ModuleSettings, merged
from router.log.sinks import Sink, close_outputs, open_outputs
from router.log.text import MAX_TEXT, cut, safe

KEPT_LINES: Final = 1000  # lines that management can ask for (operation GET-LOG)
REPEAT_AFTER: Final = 10.0  # seconds between two lines about failures of one kind
MOST_REPEATS: Final = 64  # kinds at a time; all further ones of a module count as one


class Entry(NamedTuple):
    """One kept line. `seconds` since the epoch; `file` and `line` of the code that wrote it, where known."""

    module: str
    level: str
    text: str
    file: str | None
    line: int | None
    seconds: int

    def as_list(self) -> list[str | int | None]:
        """Return the line in the order of the management operation GET-LOG."""
        return list(self)


class _Source:
    """A module as the log works with it: settings with those of DEFAULT filled in, and counters by level."""

    __slots__ = ("counts", "mask", "module", "show_source", "sink", "timestamp")

    def __init__(self, module: str, sink: Sink) -> None:
        self.module = module
        self.sink = sink
        self.mask = DEFAULT_MASK
        self.timestamp = True
        self.show_source = False
        self.counts = [0] * len(LEVEL_NAMES)


class _Repeats:
    """What `Log.repeated` has not written of one kind."""

    __slots__ = ("level", "module", "more", "text", "until")

    def __init__(self, module: str) -> None:
        self.module = module
        self.level = 0  # of the last one
        self.text = ""
        self.more = 0
        self.until = 0.0  # seconds of the monotonic clock; then the number is told


class LogChange(Struct, frozen=True):
    """Other settings, ready to be used or discarded. fresh: sinks that were opened for them, by name."""

    settings: LogSettings
    clock: Clock
    plans: Mapping[str, ModuleSettings]
    fresh: Mapping[str, Sink]

    def discard(self) -> None:
        """The settings stay as they are."""
        close_outputs(self.fresh)


class Log:
    """The log of one process. A call for a level that is off costs a dictionary look-up and a count."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        """Open the sinks that `settings` name (default: info and above to stderr). Raises LogError."""
        self._sinks: dict[str, Sink] = {"stderr": Sink("stderr")}
        stderr = self._sinks["stderr"]
        self._sources = {module: _Source(module, stderr) for module in (*MODULES, *SOURCES_WITHOUT_SETTINGS)}
        self._kept: deque[Entry] = deque(maxlen=KEPT_LINES)
        self._fresh = 0  # lines written since `take_news`
        self._reported: dict[str, list[int]] = {}  # counters as `take_news` has told them
        self._repeats: dict[tuple[str, str], _Repeats] = {}  # by module and kind
        self._in_force: dict[str, ModuleSettings] = {}  # in force, by module
        # Set by the owner of a clock: calls what it is given after so many seconds. Without it `repeated` tells of more
        # when the next one comes.
        self.later: Callable[[float, Callable[[], None]], object] | None = None
        self.on_line: Callable[[], None] | None = None  # called after each line that is written
        self._clock = Clock(None, False)
        self.settings = LogSettings()
        self.apply(LogSettings() if settings is None else settings)

    def apply(self, settings: LogSettings, opened: Mapping[str, Sink] | None = None) -> None:
        """Replace all settings at once: `prepare` and `use`. Raises LogError, and then changes nothing."""
        self.use(self.prepare(settings, opened))

    def prepare(self, settings: LogSettings, opened: Mapping[str, Sink] | None = None) -> "LogChange":
        """Open what other settings need, without going by them yet. Raises LogError.

        opened: of the sinks that are needed, those that somebody has opened already, see `missing`. They are taken
        over, or closed, also with an error.
        """
        given = dict(opened or {})
        try:
            clock = Clock(settings.timestamp_format, settings.utc)
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
        """Go by other settings."""
        settings, plans = change.settings, change.plans
        self._forget_repeats({module for module, plan in plans.items() if plan != self._in_force.get(module)})
        self._in_force = dict(plans)
        names = {str(plan.output) for plan in plans.values()}
        sinks = {name: change.fresh.get(name) or self._sinks[name] for name in names}
        unused = [sink for name, sink in self._sinks.items() if name not in sinks]
        self._sinks, self._clock, self.settings = sinks, change.clock, settings
        for module, plan in plans.items():
            source = self._sources[module]
            source.sink = sinks[str(plan.output)]
            source.mask = DEFAULT_MASK if plan.mask is None else plan.mask
            source.timestamp = bool(plan.timestamp) and plan.output != "syslog"
            source.show_source = bool(plan.source)
        for sink in unused:
            sink.close()

    def _plans(self, settings: LogSettings) -> dict[str, ModuleSettings]:
        """The settings of each module, with those of DEFAULT filled in."""
        default = settings.modules.get(DEFAULT, ModuleSettings())
        return {module: merged(settings.modules.get(module), default) for module in self._sources}

    def missing(self, settings: LogSettings) -> set[str]:
        """Return the names of the sinks that `settings` need and that are not open."""
        return {str(plan.output) for plan in self._plans(settings).values()} - self._sinks.keys()

    @property
    def files(self) -> list[str]:
        """Return the names of all open files."""
        return [name for name, sink in self._sinks.items() if sink.is_file]

    def reopen(self) -> None:
        """Open all files anew. Raises LogError for the first that cannot be opened; it is written to as before."""
        failed: LogError | None = None
        for name in self.files:
            try:
                self.go_on_in(open_outputs([name]))
            except LogError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def go_on_in(self, opened: Mapping[str, Sink]) -> None:
        """Write to files that were opened anew, after somebody has renamed those of the same names."""
        for name, sink in opened.items():
            own = self._sinks.get(name)
            if own is None:
                sink.close()
            else:
                own.become(sink)

    def hold(self) -> None:
        """Keep lines, below level error, until `release`: many at once cost one call of the system."""
        for sink in self._sinks.values():
            sink.hold()

    def release(self) -> None:
        """Write what is held."""
        for sink in self._sinks.values():
            sink.release()

    def enabled(self, module: str, level: int) -> bool:
        """Return whether lines of `module` at `level` (INFO, ...) are written."""
        return self._sources[module].mask & level != 0

    def count(self, module: str, level: int) -> None:
        """Count a line that nobody has made because its level is off."""
        self._sources[module].counts[level.bit_length() - 1] += 1

    def trace(self, module: str, text: str) -> None:
        """Write a line at level trace. Raises KeyError for a module that does not exist, as all writers do."""
        source = self._sources[module]
        source.counts[0] += 1
        if source.mask & TRACE:
            self._emit(source, TRACE, text)

    def debug(self, module: str, text: str) -> None:
        """Write a line at level debug."""
        source = self._sources[module]
        source.counts[1] += 1
        if source.mask & DEBUG:
            self._emit(source, DEBUG, text)

    def info(self, module: str, text: str) -> None:
        """Write a line at level info."""
        source = self._sources[module]
        source.counts[2] += 1
        if source.mask & INFO:
            self._emit(source, INFO, text)

    def notice(self, module: str, text: str) -> None:
        """Write a line at level notice."""
        source = self._sources[module]
        source.counts[3] += 1
        if source.mask & NOTICE:
            self._emit(source, NOTICE, text)

    def warning(self, module: str, text: str) -> None:
        """Write a line at level warning."""
        source = self._sources[module]
        source.counts[4] += 1
        if source.mask & WARNING:
            self._emit(source, WARNING, text)

    def error(self, module: str, text: str) -> None:
        """Write a line at level error."""
        source = self._sources[module]
        source.counts[5] += 1
        if source.mask & ERROR:
            self._emit(source, ERROR, text)

    def critical(self, module: str, text: str) -> None:
        """Write a line at level critical."""
        source = self._sources[module]
        source.counts[6] += 1
        if source.mask & CRITICAL:
            self._emit(source, CRITICAL, text)

    def write(self, level: int, module: str, text: str) -> None:
        """Write a line at a level known only at run time."""
        source = self._sources[module]
        source.counts[level.bit_length() - 1] += 1
        if source.mask & level:
            self._emit(source, level, text)

    def repeated(self, level: int, module: str, kind: str, text: str) -> None:
        """Write a line about a failure that may come again and again: the first of its kind, then how many more there
        were every REPEAT_AFTER seconds, with the last of them, until there are none.
        """
        name = (module, kind if (module, kind) in self._repeats or len(self._repeats) < MOST_REPEATS else "")
        found = self._repeats.get(name)
        if found is not None and time.monotonic() < found.until:
            found.more += 1
            found.level, found.text = level, text
            self.count(module, level)
            return
        if found is not None:  # nobody has called us in time
            self._report_repeats(found)
        self.write(level, module, text)
        self._repeats[name] = found = _Repeats(module)
        self._call_later(name, found)

    def _call_later(self, name: tuple[str, str], found: "_Repeats") -> None:
        found.until = time.monotonic() + REPEAT_AFTER
        if self.later is not None:
            self.later(REPEAT_AFTER, lambda: self._repeats_due(name, found))

    def _repeats_due(self, name: tuple[str, str], found: "_Repeats") -> None:
        if self._repeats.get(name) is not found:
            return
        if found.more:
            self._report_repeats(found)
            self._call_later(name, found)
        else:
            del self._repeats[name]

    def _forget_repeats(self, modules: Container[str]) -> None:
        """Write the next failure of each kind of these modules in full: who changes where or what a module logs wants
        to see it there.
        """
        for name, found in list(self._repeats.items()):
            if found.module in modules:
                self._report_repeats(found)
                del self._repeats[name]

    def _report_repeats(self, found: "_Repeats") -> None:
        if found.more:
            text = found.text.partition("\n")[0]
            source = self._sources[found.module]
            if source.mask & found.level:
                line = f"{found.more} more of this kind in {REPEAT_AFTER:.0f} seconds, the last: {text}"
                self._emit(source, found.level, line)
            found.more = 0

    def always(self, level: int, module: str, text: str) -> None:
        """Write a line whatever levels of its module are on."""
        source = self._sources[module]
        source.counts[level.bit_length() - 1] += 1
        self._emit(source, level, text)

    def _emit(self, source: _Source, level: int, text: str) -> None:
        now = time.time_ns()
        if len(text) > MAX_TEXT // 4:  # below that it fits whatever the characters
            text = cut(text)
        name = LEVEL_NAMES[level.bit_length() - 1]
        file, number = _caller()
        if not text.isprintable():  # tools show what is kept as it is, too
            text = safe(text, lines=level == CRITICAL)  # only faults of the router have traces
        self._kept.append(Entry(source.module, name, text, file, number, now // 1_000_000_000))
        line = f"{source.module} ({name}) {text}"
        if source.timestamp:
            line = f"{self._clock.stamp(now)} {line}"
        if source.show_source and file is not None:
            line = f"{line} ({file}:{number})"
        source.sink.write(line, level)
        self._fresh += 1
        if self.on_line is not None:
            self.on_line()

    def recent(self, limit: int | None = None) -> list[Entry]:
        """Return the last lines written, oldest first: at most `limit`, at most KEPT_LINES."""
        skipped = 0 if limit is None else max(0, len(self._kept) - max(0, limit))
        return list(islice(self._kept, skipped, None))

    def take_news(self) -> tuple[dict[str, list[int]], list[Entry]]:
        """Return what another log needs in order to know of this one's lines, since the last call: see `add_news`."""
        counts = {}
        for module, source in self._sources.items():
            before = self._reported.setdefault(module, [0] * len(LEVEL_NAMES))
            if source.counts != before:
                counts[module] = [now - then for now, then in zip(source.counts, before, strict=True)]
                self._reported[module] = list(source.counts)
        skipped = max(0, len(self._kept) - self._fresh)
        self._fresh = 0
        return counts, list(islice(self._kept, skipped, None))

    def add_news(self, news: Mapping[str, list[int]], lines: Iterable[Entry]) -> None:
        """Count and keep what `take_news` of another log said. Raises KeyError, ValueError otherwise."""
        for module, counts in news.items():
            own = self._sources[module].counts
            own[:] = [mine + theirs for mine, theirs in zip(own, counts, strict=True)]
        self._kept.extend(lines)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return, by module and level, the calls made so far, written or not (management type logStats)."""
        return {module: dict(zip(LEVEL_NAMES, source.counts, strict=True)) for module, source in self._sources.items()}

    def close(self) -> None:
        """Close all files. The log must not be used any more."""
        for found in self._repeats.values():
            self._report_repeats(found)
        for sink in self._sinks.values():
            sink.close()
        self._sinks = {}


def _caller() -> tuple[str | None, int | None]:
    """Return file and line of the code that called the log (compiled callers have no frame)."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return (None, None) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
