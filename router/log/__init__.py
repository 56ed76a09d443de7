"""Log of the router, as in Dispatch 1.19 (management.md 4): levels, modules, settings, sinks, `ProcessLog`."""

from sluice.router.log.clock import TimestampFormatter
from sluice.router.log.entry import LogEntry
from sluice.router.log.levels import (
    ALL_LEVELS,
    CRITICAL,
    DEBUG,
    DEFAULT,
    ERROR,
    INFO,
    LEVEL_NAMES,
    LEVELS,
    MODULES,
    NOTICE,
    TRACE,
    WARNING,
)
from sluice.router.log.log import KEPT_LINES, REPEAT_AFTER, LogChange, ProcessLog
from sluice.router.log.settings import LogError, LogSettings, ModuleSettings, parse_enable
from sluice.router.log.sinks import Sink, close_outputs, open_outputs
from sluice.router.log.text import MAX_TEXT, place

__all__ = [
    "ALL_LEVELS",
    "CRITICAL",
    "DEBUG",
    "DEFAULT",
    "ERROR",
    "INFO",
    "KEPT_LINES",
    "LEVELS",
    "LEVEL_NAMES",
    "MAX_TEXT",
    "MODULES",
    "NOTICE",
    "REPEAT_AFTER",
    "TRACE",
    "WARNING",
    "LogChange",
    "LogEntry",
    "LogError",
    "LogSettings",
    "ModuleSettings",
    "ProcessLog",
    "Sink",
    "TimestampFormatter",
    "close_outputs",
    "open_outputs",
    "parse_enable",
    "place",
]
