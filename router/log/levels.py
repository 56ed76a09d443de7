"""Levels and modules of log lines (management.md 4.1)."""

from typing import Final

# Levels are bits: the enabled levels of a module are one mask.
TRACE, DEBUG, INFO, NOTICE, WARNING, ERROR, CRITICAL = (1 << bit for bit in range(7))
LEVEL_NAMES: Final = ("trace", "debug", "info", "notice", "warning", "error", "critical")
LEVELS: Final[dict[str, int]] = {name: 1 << bit for bit, name in enumerate(LEVEL_NAMES)}
ALL_LEVELS: Final = (1 << len(LEVEL_NAMES)) - 1
DEFAULT_MASK: Final = ALL_LEVELS & ~(TRACE | DEBUG)  # info+

DEFAULT: Final = "DEFAULT"  # settings that other modules inherit; never the module of a line
MODULES: Final = (
    "ROUTER", "ROUTER_CORE", "ROUTER_HELLO", "ROUTER_LS", "ROUTER_MA", "MESSAGE", "SERVER", "AGENT", "AUTHSERVICE",
    "CONTAINER", "ERROR", "POLICY", "HTTP", "CONN_MGR", "PYTHON", "PROTOCOL", DEFAULT,
)  # fmt: skip
SOURCES_WITHOUT_SETTINGS: Final = ("MAIN", "DISPLAYNAME")  # modules that always use the settings of DEFAULT
