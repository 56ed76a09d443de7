from collections.abc import Iterable
from typing import Any, Final

from typing_extensions import Buffer

BODY_KINDS: Final[tuple[str, ...]]
COLUMNS: Final[dict[str, tuple[int, int, int]]]

class ColumnBuilder:
    def __init__(self, kind: int, origin: int, field: int, rows: int, octets: int) -> None: ...

# Number of nulls, validity, then the buffers that decode.pyx names.
ColumnBuffers = tuple[Any, ...]

def decode(ends: Buffer, octets: Buffer, first: int, count: int, names: Iterable[str]) -> dict[str, ColumnBuffers]: ...
