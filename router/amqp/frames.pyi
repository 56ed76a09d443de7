from typing import Any

def transfer_dict(body: bytes) -> dict[str, Any]: ...
def flow_dict(body: bytes) -> dict[str, Any]: ...
def disposition_dict(body: bytes) -> dict[str, Any]: ...
def build_transfer(
    channel: int,
    handle: int,
    delivery_id: int,
    tag: bytes,
    message_format: int,
    settled: bool,
    more: bool,
    aborted: bool,
    state: bytes,
    payload: bytes,
) -> bytes: ...
def build_short_transfer(
    channel: int, handle: int, delivery_id: int, tag: bytes, message_format: int, settled: bool, payload: bytes
) -> bytes: ...
def build_disposition(channel: int, role: bool, first: int, last: int, settled: bool, state: bytes) -> bytes: ...
