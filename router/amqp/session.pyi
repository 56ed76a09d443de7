from sluice.router.amqp.connection import Connection
from sluice.router.amqp.session_links import SessionLinks

class Session(SessionLinks):
    def __init__(
        self,
        connection: Connection,
        remote_channel: int | None,
        begin: list[bytes] | None,
        handler: object,  # see session.pyx
        *,
        window: int | None = None,
        routers: bool = False,
    ) -> None: ...
