from enum import IntEnum
from typing import Final, TypedDict

from typing_extensions import Buffer

from sluice.router.amqp.codec import AmqpValue
from sluice.router.amqp.connection_channels import ConnectionChannels
from sluice.router.amqp.errors import AmqpError
from sluice.router.amqp.quota import Quota
from sluice.router.amqp.scheduler import Scheduler

STATES: Final[tuple[str, ...]]
IDLE: Final[tuple[str, str]]
AWAITED: Final[tuple[str, ...]]
NO_HEADER: Final[tuple[str, str]]
ABORTED: Final[tuple[str, str]]
MALFORMED_SASL: Final[tuple[str, str]]
TLS_HEADER_REFUSED: Final[tuple[str, str]]

class Pause(IntEnum):
    PAUSE_ATTACH = 1
    PAUSE_TURN = 2
    PAUSE_SASL = 4
    PAUSE_OPEN = 8
    PAUSE_SLICE = 16
    PAUSE_MEMORY = 32

class RemoteOpen(TypedDict):
    container: str
    hostname: str | None
    properties: dict[AmqpValue, AmqpValue]
    offered: list[str]
    desired: list[str]
    raw_properties: bytes  # encoded

class Connection(ConnectionChannels):
    owner: object  # the transport
    local_idle: int  # ms
    last_received: int  # ms
    last_sent: int  # ms
    def __init__(
        self,
        scheduler: Scheduler,
        handler: object,  # see connection.pyx
        *,
        max_frame: int = 16384,
        channel_max: int = ...,
        idle_ms: int = 0,
        initiator: bool = False,
        content_limit: int = ...,
        relays: bool = False,
    ) -> None: ...
    @property
    def initiator(self) -> bool: ...
    @property
    def state(self) -> int: ...
    @property
    def local_max_frame(self) -> int: ...
    @property
    def remote_max_frame(self) -> int: ...
    @property
    def remote_idle(self) -> int: ...
    @property
    def handshake_deadline(self) -> int: ...
    @property
    def paused(self) -> int: ...
    @property
    def close_received(self) -> bool: ...
    @property
    def silent(self) -> bool: ...
    @property
    def remote_open(self) -> RemoteOpen | None: ...
    @property
    def ended(self) -> bool: ...
    def start(self) -> None: ...
    def limit(self, max_frame: int, channel_max: int) -> None: ...
    def limit_handshake(self, ms: int) -> None: ...
    def share(self, quota: Quota | None) -> None: ...
    def send_open(
        self,
        container: str,
        *,
        hostname: str | None = None,
        properties: list[bytes] | None = None,
        offered: bytes = b"\x40",
        desired: bytes = b"\x40",
    ) -> None: ...
    def answer_sasl(self, answer: bytes) -> None: ...
    def answer_close(self) -> None: ...
    def feed(self, data: Buffer) -> int: ...
    def tick(self, now: int) -> int: ...
    def pause(self, reason: int) -> None: ...
    def resume(self, reason: int) -> None: ...
    def fail(self, error: AmqpError) -> None: ...
    def drop_by(self, error: BaseException) -> None: ...
    def close(
        self, condition: str | None = None, description: str | None = None, info: bytes | None = None
    ) -> None: ...
    def drop_silently(self) -> None: ...
    def transport_failed(self, text: str, what: str = "SSL Failure") -> None: ...
    def transport_lost(self) -> None: ...
    def release(self) -> None: ...
