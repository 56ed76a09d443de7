"""Settings of a log: levels, output and line format by module."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from sluice.router.log.formats import TEXT
from sluice.router.log.levels import ALL_LEVELS, DEFAULT_MASK, LEVEL_NAMES, LEVELS


class LogError(Exception):
    """Error for settings that cannot be applied, such as a file that cannot be opened."""


def parse_enable(text: str) -> int | None:
    """Return the mask of the levels named by an `enable` text; None if the module inherits those of DEFAULT.

    Tokens are separated by blanks, `,`, `;` or `:`. Each is a level or a prefix of one, in upper or lower case; a `+`
    at its end includes all higher levels. Raises ValueError for anything else.
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


class ModuleSettings(Struct, frozen=True):
    """Settings of one module; None: inherited from DEFAULT.

    `mask`: enabled levels. `output`: name of the sink. `format`: a name in FORMATS.
    """

    mask: int | None = None
    timestamp: bool | None = None
    source: bool | None = None
    output: str | None = None
    format: str | None = None


class LogSettings(Struct, frozen=True):
    """Settings of a whole log: by module, and format (None: the default) and time zone of the timestamps."""

    modules: Mapping[str, ModuleSettings] = field(default_factory=dict)
    timestamp_format: str | None = None
    utc: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary of plain values, for another process."""
        modules = {name: [m.mask, m.timestamp, m.source, m.output, m.format] for name, m in self.modules.items()}
        return {"modules": modules, "timestampFormat": self.timestamp_format, "utc": self.utc}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "LogSettings":
        """Return the settings from the result of `to_dict`."""
        modules = {name: ModuleSettings(*values) for name, values in plain["modules"].items()}
        return cls(modules, plain["timestampFormat"], plain["utc"])


def merged(own: ModuleSettings | None, default: ModuleSettings) -> ModuleSettings:
    """Return the settings in force for a module, completed from DEFAULT and from the built-in defaults."""
    own = own or ModuleSettings()

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    return ModuleSettings(
        mask=first(own.mask, default.mask, DEFAULT_MASK),
        timestamp=first(own.timestamp, default.timestamp, True),
        source=first(own.source, default.source, False),
        output=first(own.output, default.output, "stderr"),
        format=first(own.format, default.format, TEXT),
    )
