"""The router's log: modules, levels, line format and sinks of Dispatch 1.19, for supervisor and workers alike.

A line is `[TIMESTAMP ]MODULE (level) TEXT[ (FILE:LINE)]`, written with one write(2) to a file opened for append, so
that several processes may share the file. TEXT may come from peers: what could pass for another line is made harmless.
Owner of a Log: the one process (one thread) that created it. Settings travel between processes as plain dictionaries
(`LogSettings.to_dict`).
"""

import errno
import os
import re
import socket
import sys
import syslog
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any

# Levels are bits, so that a module's enabled levels are one mask.
TRACE, DEBUG, INFO, NOTICE, WARNING, ERROR, CRITICAL = (1 << bit for bit in range(7))
LEVEL_NAMES = ("trace", "debug", "info", "notice", "warning", "error", "critical")
LEVELS: dict[str, int] = {name: 1 << bit for bit, name in enumerate(LEVEL_NAMES)}
ALL_LEVELS = (1 << len(LEVEL_NAMES)) - 1

DEFAULT = "DEFAULT"  # not a source of lines: holds what other modules fall back to
MODULES = (
    "ROUTER", "ROUTER_CORE", "ROUTER_HELLO", "ROUTER_LS", "ROUTER_MA", "MESSAGE", "SERVER", "AGENT", "AUTHSERVICE",
    "CONTAINER", "ERROR", "POLICY", "HTTP", "CONN_MGR", "PYTHON", "PROTOCOL", DEFAULT,
)  # fmt: skip
SOURCES_WITHOUT_SETTINGS = ("MAIN", "DISPLAYNAME")  # always as DEFAULT

MAX_TEXT = 2047  # octets of a line's text; the rest is cut, as 1.19 does
KEPT_LINES = 1000  # lines that management can ask for (operation GET-LOG)
REPEAT_AFTER = 10.0  # seconds between two lines about failures of one kind
MOST_REPEATS = 64  # kinds at a time; all further ones of a module count as one
FILE_MODE = 0o666  # of a new log file, before the umask
DEFAULT_FORMAT = "%Y-%m-%d %H:%M:%S.%%06lu %z"

SYSLOG_PATH = "/dev/log"

_DEFAULT_MASK = ALL_LEVELS & ~(TRACE | DEBUG)  # info+
_SYSLOG_PRIORITIES = {
    TRACE: syslog.LOG_DEBUG, DEBUG: syslog.LOG_DEBUG, INFO: syslog.LOG_INFO, NOTICE: syslog.LOG_NOTICE,
    WARNING: syslog.LOG_WARNING, ERROR: syslog.LOG_ERR, CRITICAL: syslog.LOG_CRIT,
}  # fmt: skip
# What a peer could forge lines or steer terminals with: control characters, and lines that are not indented.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\n(?! )")
_MICROSECONDS = re.compile(r"%(0?)([0-9]{0,2})l{0,2}[diu]")


class LogError(Exception):
    """Settings that cannot be applied, such as a file that cannot be opened."""


def parse_enable(text: str) -> int | None:
    """Return the mask of levels that an `enable` text names; None means as module DEFAULT.

    Tokens are separated by blanks, `,`, `;` or `:`; each is a level, matched without case by prefix, with `+` for "and
    all higher". Raises ValueError for anything else.
    """
    mask = 0
    inherit = False
    for token in re.split(r"[ ,;:]+", text.strip(" ,;:")):
        if not token:
            continue
        name = token.removesuffix("+").lower()
        match = next((level for level in ("default", "none", *LEVEL_NAMES) if name and level.startswith(name)), None)
        if match is None:
            levels = ", ".join(("none", *LEVEL_NAMES))
            raise ValueError(f"'{text}' is not a valid log level. Should be one of {{{levels}}}.")
        if match == "default":
            inherit = True
        elif match != "none":
            bit = LEVELS[match]
            mask |= ALL_LEVELS & -bit if token.endswith("+") else bit
    return None if inherit else mask


@dataclass(frozen=True, slots=True)
class ModuleSettings:
    """Settings of one module; None means as module DEFAULT. `mask`: enabled levels, `output`: name of the sink."""

    mask: int | None = None
    timestamp: bool | None = None
    source: bool | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of a whole log: by module, and the timestamps' format (None: the default) and zone."""

    modules: Mapping[str, ModuleSettings] = field(default_factory=dict)
    timestamp_format: str | None = None
    utc: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary of plain values, for another process."""
        modules = {name: [m.mask, m.timestamp, m.source, m.output] for name, m in self.modules.items()}
        return {"modules": modules, "timestampFormat": self.timestamp_format, "utc": self.utc}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "LogSettings":
        """Return the settings that `to_dict` made `plain` of."""
        modules = {name: ModuleSettings(*values) for name, values in plain["modules"].items()}
        return cls(modules, plain["timestampFormat"], plain["utc"])


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept line. `seconds` since the epoch; `file` and `line` of the code that wrote it, where known."""

    module: str
    level: str
    text: str
    file: str | None
    line: int | None
    seconds: int

    def as_list(self) -> list[str | int | None]:
        """Return the line in the order of the management operation GET-LOG."""
        return [self.module, self.level, self.text, self.file, self.line, self.seconds]


class Clock:
    """Timestamps in one format: strftime once a second, then the microseconds in their place."""

    def __init__(self, pattern: str | None, utc: bool) -> None:
        self._pattern = DEFAULT_FORMAT if pattern is None else pattern
        self._broken_down = time.gmtime if utc else time.localtime
        self._second = -1
        self._before = self._after = ""
        self._digits: str | None = None

    def stamp(self, nanoseconds: int) -> str:
        """Return the timestamp of a time since the epoch. Raises ValueError if the format cannot be used."""
        second, rest = divmod(nanoseconds, 1_000_000_000)
        if second != self._second:
            self._renew(second)
        if self._digits is None:
            return self._before
        return f"{self._before}{rest // 1000:{self._digits}}{self._after}"

    def _renew(self, second: int) -> None:
        text = time.strftime(self._pattern, self._broken_down(second))
        match = _MICROSECONDS.search(text)
        if match is None:
            self._before, self._digits = text.replace("%%", "%"), None
        else:
            self._before = text[: match.start()].replace("%%", "%")
            self._after = text[match.end() :].replace("%%", "%")
            self._digits = match.group(1) + match.group(2)
        self._second = second


class Sink:
    """A place where lines go. A line that cannot be written is counted and reported, never fatal.

    Owner: the Log that opened it.
    """

    def __init__(self, name: str) -> None:
        """Open `stderr`, `stdout` or a file to append to. Raises LogError."""
        self.name = name
        self.lost = 0  # lines since the last one that could be written
        self._cut = False  # the last line could be written in part only
        self._owned = name not in ("stderr", "stdout")
        if not self._owned:
            self._descriptor = 2 if name == "stderr" else 1
            return
        # Neither open nor write wait: of a FIFO that nobody reads, or does not read fast enough.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self._descriptor = os.open(name, flags, FILE_MODE)
        except (OSError, ValueError) as error:
            raise LogError(f"Failed to open log file '{name}'") from error

    @property
    def is_file(self) -> bool:
        """Whether it has a name in the file system."""
        return self._owned

    def become(self, opened: "Sink") -> None:
        """Go on with what another one has opened, which is closed."""
        os.dup2(opened._descriptor, self._descriptor, inheritable=False)
        opened.close()

    def write(self, line: str, level: int) -> None:
        """Write `line` and a newline at once."""
        del level
        try:
            self._write(line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError as error:
            self.lost += 1
            if self.lost == 1 and self._descriptor != 2:
                _complain(f"log file '{self.name}' cannot be written: {error.strerror}")
            return
        if self.lost:
            self._report_lost()

    def _write(self, octets: bytes) -> None:
        if self._cut:
            octets = b"\n" + octets
        written = os.write(self._descriptor, octets)
        while written < len(octets):  # a full disk or pipe took a part
            self._cut = True
            octets = octets[written:]
            written = os.write(self._descriptor, octets)
        self._cut = False

    def _report_lost(self) -> None:
        lost, self.lost = self.lost, 0
        try:
            self._write(f"ERROR (warning) {lost} log lines before the one above were lost\n".encode())
        except OSError:
            self.lost = lost

    def close(self) -> None:
        """Close the file, if it is one."""
        if self._owned:
            os.close(self._descriptor)


class SyslogSink(Sink):
    """The system's log: facility daemon, priority by level.

    In the place of syslog(3), which waits when the daemon does not read.
    """

    def __init__(self) -> None:
        self.name = "syslog"
        self.lost = 0
        self._owned = False
        self._cut = False
        self._socket: socket.socket | None = None
        self._program = os.path.basename(sys.argv[0]) or "sluice"

    def write(self, line: str, level: int) -> None:
        """Send `line` to the daemon, if it takes it now."""
        if self._send(line, level):
            text = f"ERROR (warning) {self.lost} log lines before the one above were lost"
            if self.lost and self._send(text, WARNING):
                self.lost = 0
        else:
            self.lost += 1

    def _send(self, line: str, level: int) -> bool:
        head = f"<{_SYSLOG_PRIORITIES[level] | syslog.LOG_DAEMON}>{time.strftime('%b %e %H:%M:%S')} "
        octets = f"{head}{self._program}[{os.getpid()}]: {line}".encode("utf-8", "backslashreplace")
        for _ in range(2):  # the second time to a daemon that has been started anew
            try:
                if self._socket is None:
                    self._socket = _connect_syslog()
                self._socket.sendall(octets + b"\0" if self._socket.type == socket.SOCK_STREAM else octets)
            except BlockingIOError:
                return False
            except OSError:
                self.close()
            else:
                return True
        return False

    def close(self) -> None:
        """Close the connection to the system's log."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _connect_syslog() -> socket.socket:
    """A connection to the daemon of the system's log that never waits. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.connect(SYSLOG_PATH)
    except OSError as error:
        made.close()
        if error.errno != errno.EPROTOTYPE:
            raise
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.connect(SYSLOG_PATH)
        except OSError:
            made.close()
            raise
    return made


def open_outputs(names: Iterable[str]) -> dict[str, Sink]:
    """Open sinks by their names, for a Log to take over; it takes as long as the file system does, and may be done in
    a thread. Raises LogError, and then opens nothing.
    """
    opened: dict[str, Sink] = {}
    try:
        for name in sorted(names):
            opened[name] = SyslogSink() if name == "syslog" else Sink(name)
    except LogError:
        close_outputs(opened)
        raise
    return opened


def close_outputs(opened: Mapping[str, Sink]) -> None:
    """Close sinks that no Log has taken over."""
    for sink in opened.values():
        sink.close()


class _Source:
    """A module as the log works with it: settings with those of DEFAULT filled in, and counters by level."""

    __slots__ = ("counts", "mask", "module", "show_source", "sink", "timestamp")

    def __init__(self, module: str, sink: Sink) -> None:
        self.module = module
        self.sink = sink
        self.mask = _DEFAULT_MASK
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


class Log:
    """The log of one process. A call for a level that is off costs a dictionary look-up and a count."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        """Open the sinks that `settings` name (default: info and above to stderr). Raises LogError."""
        self._sinks: dict[str, Sink] = {"stderr": Sink("stderr")}
        stderr = self._sinks["stderr"]
        self._sources = {module: _Source(module, stderr) for module in (*MODULES, *SOURCES_WITHOUT_SETTINGS)}
        self._kept: deque[Entry] = deque(maxlen=KEPT_LINES)
        self._fresh = 0  # lines written since `take_news`
        self._told: dict[str, list[int]] = {}  # counters as `take_news` has told them
        self._repeats: dict[tuple[str, str], _Repeats] = {}  # by module and kind
        # Set by the owner of a clock: calls what it is given after so many seconds. Without it `repeated` tells of more
        # when the next one comes.
        self.later: Callable[[float, Callable[[], None]], object] | None = None
        self.on_line: Callable[[], None] | None = None  # called after each line that is written
        self._clock = Clock(None, False)
        self.settings = LogSettings()
        self.apply(LogSettings() if settings is None else settings)

    def apply(self, settings: LogSettings, opened: Mapping[str, Sink] | None = None) -> None:
        """Replace all settings at once. Raises LogError, and then changes nothing.

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
        sinks = {name: fresh.get(name) or self._sinks[name] for name in names}
        unused = [sink for name, sink in self._sinks.items() if name not in sinks]
        self._sinks, self._clock, self.settings = sinks, clock, settings
        for module, plan in plans.items():
            source = self._sources[module]
            source.sink = sinks[str(plan.output)]
            source.mask = _DEFAULT_MASK if plan.mask is None else plan.mask
            source.timestamp = bool(plan.timestamp) and plan.output != "syslog"
            source.show_source = bool(plan.source)
        for sink in unused:
            sink.close()

    def _plans(self, settings: LogSettings) -> dict[str, ModuleSettings]:
        """The settings of each module, with those of DEFAULT filled in."""
        default = settings.modules.get(DEFAULT, ModuleSettings())
        return {module: _merged(settings.modules.get(module), default) for module in self._sources}

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
            self._tell_repeats(found)
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
            self._tell_repeats(found)
            self._call_later(name, found)
        else:
            del self._repeats[name]

    def _tell_repeats(self, found: "_Repeats") -> None:
        if found.more:
            text = found.text.partition("\n")[0]
            source = self._sources[found.module]
            if source.mask & found.level:
                told = f"{found.more} more of this kind in {REPEAT_AFTER:.0f} seconds, the last: {text}"
                self._emit(source, found.level, told)
            found.more = 0

    def always(self, level: int, module: str, text: str) -> None:
        """Write a line whatever levels of its module are on."""
        source = self._sources[module]
        source.counts[level.bit_length() - 1] += 1
        self._emit(source, level, text)

    def _emit(self, source: _Source, level: int, text: str) -> None:
        now = time.time_ns()
        if len(text) > MAX_TEXT // 4:  # below that it fits whatever the characters
            text = _cut(text)
        name = LEVEL_NAMES[level.bit_length() - 1]
        file, number = _caller()
        safe = text
        if not text.isprintable():
            text = text.encode("utf-8", "backslashreplace").decode()  # what is kept is told, and shown, as UTF-8
            safe = _safe(text)
        self._kept.append(Entry(source.module, name, text, file, number, now // 1_000_000_000))
        line = f"{source.module} ({name}) {safe}"
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

    def take_news(self) -> dict[str, Any]:
        """Return what another log needs in order to know of this one's lines, since the last call: see `add_news`."""
        counts = {}
        for module, source in self._sources.items():
            told = self._told.setdefault(module, [0] * len(LEVEL_NAMES))
            if source.counts != told:
                counts[module] = [now - before for now, before in zip(source.counts, told, strict=True)]
                self._told[module] = list(source.counts)
        skipped = max(0, len(self._kept) - self._fresh)
        self._fresh = 0
        return {"counts": counts, "lines": [entry.as_list() for entry in islice(self._kept, skipped, None)]}

    def add_news(self, news: Mapping[str, Any]) -> None:
        """Count and keep what `take_news` of another log said. Raises KeyError, TypeError, ValueError otherwise."""
        for module, counts in news["counts"].items():
            own = self._sources[module].counts
            own[:] = [mine + theirs for mine, theirs in zip(own, counts, strict=True)]
        self._kept.extend(Entry(*line) for line in news["lines"])

    def counters(self) -> dict[str, dict[str, int]]:
        """Return, by module and level, the calls made so far, written or not (management type logStats)."""
        return {module: dict(zip(LEVEL_NAMES, source.counts, strict=True)) for module, source in self._sources.items()}

    def close(self) -> None:
        """Close all files. The log must not be used any more."""
        for found in self._repeats.values():
            self._tell_repeats(found)
        for sink in self._sinks.values():
            sink.close()
        self._sinks = {}


def _merged(own: ModuleSettings | None, default: ModuleSettings) -> ModuleSettings:
    """Return the settings in force for a module, with those of DEFAULT and of the router filled in."""
    own = own or ModuleSettings()

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    return ModuleSettings(
        mask=first(own.mask, default.mask, _DEFAULT_MASK),
        timestamp=first(own.timestamp, default.timestamp, True),
        source=first(own.source, default.source, False),
        output=first(own.output, default.output, "stderr"),
    )


def _cut(text: str) -> str:
    """Return as much of `text` as fits MAX_TEXT octets, without a part of a character at the end."""
    octets = text.encode("utf-8", "backslashreplace")
    return text if len(octets) <= MAX_TEXT else octets[:MAX_TEXT].decode("utf-8", "ignore")


def _safe(text: str) -> str:
    """Return `text` with control characters written as escapes, and further lines indented."""
    return _UNSAFE.sub(lambda match: "\n " if match.group() == "\n" else f"\\x{ord(match.group()):02x}", text)


def place(fault: BaseException) -> str:
    """Where an exception was raised, as the kind of its repetitions."""
    at = fault.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(fault).__name__} {line}"


def _caller() -> tuple[str | None, int | None]:
    """Return file and line of the code that called the log (compiled callers have no frame)."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return (None, None) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _complain(text: str) -> None:
    """Say on stderr what the log itself could not say."""
    try:
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        return  # nowhere left to say it; the sink's count of lost lines remains
