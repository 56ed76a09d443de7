from collections.abc import Callable

from sluice.router.amqp.connection import Connection
from sluice.router.websocket.origins import OriginPolicy
from sluice.workers.transport.base import Transport, TransportHost

class ServerSide:
    site: OriginPolicy
    encrypted: bool
    pages: Callable[[bytes], int] | None
    def __init__(
        self, site: OriginPolicy, encrypted: bool = False, pages: Callable[[bytes], int] | None = None
    ) -> None: ...

class ClientSide:
    encrypted: bool
    key: str
    request: bytes
    def __init__(self, host: str, port: str, path: str, encrypted: bool = False) -> None: ...

class WebSocketTransport(Transport):
    def __init__(
        self, loop: TransportHost, fd: int, connection: Connection, below: Transport, side: ServerSide | ClientSide
    ) -> None: ...
    def too_slow(self) -> None: ...
    def page_ready(self) -> None: ...
