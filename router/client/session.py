"""A session of a client: its links are attached again whenever it begins again."""

from typing import TYPE_CHECKING, Any

from router.amqp.connection import Connection
from router.amqp.errors import NOT_ALLOWED, RemoteError
from router.amqp.session import Session
from router.client.bulk import BulkState
from router.client.links import LinkState, ReceiverState, SenderState

if TYPE_CHECKING:
    from router.client.core import Core


class SessionState:
    """Owner: the core of its connection. Handler of its engine's session."""

    def __init__(self, core: "Core", window: int | None = None) -> None:
        """window: frames that the peer may send before it hears from us again; None: some MB."""
        self.core = core
        self.window = window
        self.session: Session | None = None
        self.links: list[LinkState] = []
        self.begun = False

    def begin(self, connection: Connection) -> None:
        """On a connection that has opened."""
        self.session = Session(connection, None, None, self, window=self.window)

    def add(self, link: LinkState) -> None:
        """Attach it, now or when the session has begun."""
        self.links.append(link)
        if self.session is not None and self.session.ended:
            self.begun = False  # the peer has ended it: another one takes its place
            self.begin(self.core.connection)
        elif self.begun:
            link.attach(self.session)

    def forget(self, link: LinkState) -> None:
        if link in self.links:
            self.links.remove(link)

    def connection_lost(self) -> None:
        """Its transport is gone; links that were not attached hear it here."""
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

    def bulk_receiver(self, **options: Any) -> BulkState:
        """This session is to have no other receiver."""
        link = BulkState(self, **options)
        self.add(link)
        return link

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_begun(self, session: Session) -> None:
        self.begun = True
        for link in self.links:
            link.attach(session)

    def on_miscounted(self, session: Session, next_id: int | None, sent: int) -> None:
        """The peer counts transfers wrongly: what it said of its window counts from what was sent."""

    def on_attach(self, session: Session, items: list[bytes]) -> None:
        raise RemoteError("link", NOT_ALLOWED, "a client takes no links of its peer")

    def on_attached(self, link: Any, items: list[bytes]) -> None:
        link.context.on_attached(items)

    def on_detached(self, link: Any) -> bool:
        link.context.on_detached(link.detach_error)
        return False
