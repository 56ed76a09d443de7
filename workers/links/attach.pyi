from typing import Final

NAME: Final = 0
HANDLE: Final = 1
ROLE: Final = 2
SND_MODE: Final = 3
RCV_MODE: Final = 4
SOURCE_FIELD: Final = 5
TARGET_FIELD: Final = 6
UNSETTLED: Final = 7
INCOMPLETE: Final = 8
INITIAL_COUNT: Final = 9
MAX_SIZE: Final = 10
OFFERED: Final = 11
DESIRED: Final = 12
PROPERTIES: Final = 13
SENDER: Final = b"\x42"
RECEIVER: Final = b"\x41"
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1

def padded(items: list[bytes]) -> list[bytes]: ...
def check_attach(items: list[bytes]) -> None: ...
def settle_mode(items: list[bytes], index: int) -> int: ...
def initial_count(items: list[bytes]) -> int: ...
def message_limit(items: list[bytes]) -> int: ...
def attach_reply(
    items: list[bytes], handle: int, outgoing: bool, source: bytes, target: bytes, limit: int
) -> list[bytes]: ...
