"""Types of the Python interface of records.pyx."""

from typing import Any

def transfer(
    flags: int,
    kind: int,
    phase: int,
    message_format: int,
    key: int,
    targets: list[tuple[int, int]],
    to: bytes,
    served: bytes,
    state: bytes,
    data: bytes,
) -> bytes: ...
def read_transfer(octets: bytes) -> dict[str, Any] | None: ...
def delivery(code: int, flags: int, kind: int, key: int, count: int, body: bytes, stated: bool = True) -> bytes: ...
def window(key: int, octets: int) -> bytes: ...
def read_delivery(octets: bytes) -> dict[str, Any] | None: ...
def link(
    code: int, flags: int, kind: int, slot: int, generation: int, key: int, tag: bytes, state: bytes, data: bytes
) -> bytes: ...
def read_link(octets: bytes) -> dict[str, Any] | None: ...
