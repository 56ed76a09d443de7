from typing import Any

from sluice.router.client.plain_link import PlainLink

class SentDelivery:
    context: Any  # object of the sending code
    @property
    def id(self) -> int: ...
    @property
    def tag(self) -> bytes: ...
    @property
    def settled(self) -> bool: ...
    @property
    def started(self) -> bool: ...
    @property
    def written_out(self) -> bool: ...

class Sender(PlainLink):
    def __init__(self, handler: object, *, initial_delivery_count: int = 0) -> None: ...
    @property
    def queued(self) -> int: ...
    def send(
        self,
        octets: bytes,
        *,
        tag: bytes | None = None,
        settled: bool = False,
        message_format: int = 0,
        context: object = None,
        state: bytes = b"",
    ) -> SentDelivery: ...
    def settle(self, delivery: SentDelivery) -> None: ...
