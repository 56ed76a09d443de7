from sluice.router.amqp.connection import Connection
from sluice.router.tls.context import TlsContext
from sluice.workers.transport.base import Transport, TransportHost

class TlsTransport(Transport):
    def __init__(
        self,
        loop: TransportHost,
        fd: int,
        connection: Connection,
        context: TlsContext,
        host: str | None = None,
        verify_host: bool = True,
    ) -> None: ...
    def expect(self, host: str, verify: bool) -> None: ...
    def reason(self, error: int) -> str: ...
