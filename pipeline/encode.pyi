from typing import Any, Final

from sluice.pipeline.bulk_sender import MessageBatch

HEADER: Final[tuple[tuple[str, int], ...]]
PROPERTIES: Final[tuple[tuple[str, int], ...]]
DUPLICATE_IDS: Final[dict[str, tuple[int, bytes]]]
STORED: Final[dict[str, int]]

class ColumnReader:
    def __init__(self, name: str, array: Any, kind: int = ..., field: int = 0) -> None: ...

class MapColumn:
    def __init__(self, name: str, array: Any) -> None: ...

class DuplicateId:
    def __init__(self, broker: str, prefix: str, identity: ColumnReader | None) -> None: ...

# Row, and why it is no valid message.
BadRow = tuple[int, str]

def encode(
    columns: dict[str, Any],
    count: int,
    prefix: str,
    first: int,
    *,
    addressed: bool = False,
    duplicate_ids: str = "",
    bad: list[BadRow] | None = None,
) -> MessageBatch: ...
def encoded_messages(array: Any, count: int, bad: list[BadRow]) -> MessageBatch: ...
