"""Table ops in their wire form: lists that begin with a name."""

from collections.abc import Iterable
from typing import Any

import msgspec

from sluice.router.control.ops import Op


def wire(ops: Iterable[Op]) -> list[list[Any]]:
    """Return ops as they are sent. Omitted fields have their defaults."""
    found: list[list[Any]] = msgspec.to_builtins(list(ops))
    return found


def from_wire(*ops: Any) -> list[Op]:
    """Return ops as they are received. Raises msgspec.ValidationError."""
    return msgspec.convert(list(ops), list[Op])
