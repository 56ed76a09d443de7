"""Table `types.txt` beside this file, and the Python types that proton returns for AMQP types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proton

from tests.interop.dispatch.node import PREFIX

_TABLE = Path(__file__).with_name("types.txt")
#: Attributes that every type has besides its own, in this order.
COMMON = ["name", "identity", "type"]

#: Exact class of the value that proton returns, by AMQP type of a column.
_CLASSES: dict[str, type] = {
    "string": str,
    "boolean": bool,
    "int": proton.int32,
    "uint": proton.uint,
    "long": int,
    "ulong": proton.ulong,
    "map": dict,
}


@dataclass
class EntityKind:
    """Entity type. `name` is its short name."""

    name: str
    bases: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    @property
    def long_name(self) -> str:
        """Name of the type with the prefix."""
        return PREFIX + self.name

    @property
    def column_names(self) -> list[str]:
        """Columns of a QUERY, without their types."""
        return [column.partition(":")[0] for column in self.columns]

    def type_errors(self, row: dict[str, Any]) -> list[str]:
        """Return a text for each value of a row that has a wrong type."""
        wrong = []
        for column in self.columns:
            name, _, written = column.partition(":")
            if not has_type(row[name], written):
                wrong.append(f"{name}: {row[name]!r} ({type(row[name]).__name__}) is no {written}")
        return wrong


def has_type(value: Any, written: str) -> bool:
    """True if a value returned by proton has the type `written`, in the notation of `types.txt`."""
    if value is None:
        return written.endswith("?")
    written = written.rstrip("?")
    if written.startswith("list-of-"):
        members = _CLASSES[written.removeprefix("list-of-")]
        return type(value) is list and all(type(item) is members for item in value)
    return type(value) is _CLASSES[written]


def _read() -> dict[str, EntityKind]:
    kinds: dict[str, EntityKind] = {}
    current: list[str] = []
    for line in _TABLE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            kind = kinds[line] = EntityKind(line)
            continue
        words = line.split()
        if words[0].rstrip(":") in ("bases", "operations", "attributes", "columns") and words[0].endswith(":"):
            current = getattr(kind, words.pop(0).rstrip(":"))
        current.extend(words)
    return kinds


KINDS = _read()
#: Types whose rows come from live state.
CORE = [kind for kind in KINDS.values() if kind.columns]
