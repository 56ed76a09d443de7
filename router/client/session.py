"""Session of a client, whose links are attached again whenever it begins again."""

from typing import TYPE_CHECKING, Any

from sluice.router.amqp.connection import Connection
from sluice.router.amqp.errors import NOT_ALLOWED, RemoteError
from sluice.router.amqp.link import Link
from sluice.router.amqp.session import Session
from sluice.router.client.links import LinkState, ReceiverState, SenderState

if TYPE_CHECKING:
    from sluice.router.client.core import ClientCore


class SessionState:
    """Session that outlives its transports. Handler of the engine's session. Owner: the core of its connection."""

    def __init__(self, core: "ClientCore", window: int | None = None) -> None:
        """Create it. window: frames that the peer may send before this client opens the window again; None: some MB."""
        self.core = core
        self.window = window
        self.session: Session | None = None
        self.links: list[LinkState] = []
        self.begun = False
        self.error: tuple[str, str] | None = None  # condition and description with which the peer has ended it

    def begin(self, connection: Connection) -> None:
        """Begin the session on an open connection."""
        self.error = None
        self.session = Session(connection, None, None, self, window=self.window)

    def add(self, link: LinkState) -> None:
        """Attach a link, now or when the session has begun."""
        self.links.append(link)
        if self.session is not None and self.session.ended:
            self.begun = False  # the peer has ended the session: begin another
            assert self.core.connection is not None
            self.begin(self.core.connection)
        elif self.begun:
            assert self.session is not None
            link.attach(self.session)

    def forget(self, link: LinkState) -> None:
        if link in self.links:
            self.links.remove(link)

    def connection_lost(self) -> None:
        """Note that the transport was lost. Links that were not attached are notified here."""
        self.session = None
        self.begun = False
        for link in self.links:
            link.connection_lost()

    def sender(self, **options: Any) -> SenderState:
        link = SenderState(self, **options)
        self.add(link)
        return link

    def receiver(self, **options: Any) -> ReceiverState:
        link = ReceiverState(self, **options)
        self.add(link)
        return link

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_begun(self, session: Session) -> None:
        self.begun = True
        for link in self.links:
            link.attach(session)

    def on_wrong_transfer_count(self, session: Session, next_id: int | None, sent: int) -> None:
        """Do nothing: the peer's window counts from the transfers sent."""

    def on_attach(self, session: Session, items: list[bytes]) -> None:
        raise RemoteError("link", NOT_ALLOWED, "a client accepts no links from its peer")

    def on_attached(self, link: Link, items: list[bytes]) -> None:
        link.context.on_attached(items)

    def on_detached(self, link: Link) -> bool:
        link.context.on_detached(link.detach_error)
        return False
