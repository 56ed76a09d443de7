"""Base class of immutable records with fields that are hidden from texts or ignored by comparisons."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar

from msgspec import Struct


class Record(Struct, frozen=True):
    """Immutable record. `HIDDEN` names fields that its repr omits, `UNCOMPARED` fields that equality and hash ignore.

    A subclass that sets `HIDDEN` or `UNCOMPARED` repeats the names of its base class.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset()
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.HIDDEN)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        compared = _compared(type(self))
        return bool(compared(self) == compared(other))

    def __hash__(self) -> int:
        return hash(_compared(type(self))(self))


@cache
def _compared(record: type[Record]) -> Callable[[Record], Any]:
    return attrgetter(*(name for name in record.__struct_fields__ if name not in record.UNCOMPARED))
