"""Streaming links of an edge connection: anonymous links, attached when a message needs one (inter-router.md 2.9)."""

import secrets
import string
from typing import TYPE_CHECKING, Final

from sluice.router.amqp.codec import encode_string, encode_ubyte, encode_uint
from sluice.router.amqp.session import Session
from sluice.router.links.data_link import RouterOut, StreamPool
from sluice.workers.links.attach import RCV_FIRST, SENDER, SND_MIXED, TARGET_FIELD
from sluice.workers.links.encoded import NULL
from sluice.workers.links.initiated_link import node
from sluice.workers.links.record import LinkRecord
from sluice.workers.links.streams import StreamLinks
from sluice.workers.links.terminus import SOURCE, TARGET, PeerTerminus

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

_NAME_CHARACTERS: Final = string.ascii_letters + string.digits + "+_"
_RANDOM_PART: Final = 15


class EdgeStreamLinks:
    """Streaming links of one edge connection. Owner: its client."""

    __slots__ = ("client", "refuses", "streams")

    def __init__(self, client: "ConnectionHandler") -> None:
        self.client = client
        self.refuses = False  # the peer has refused a streaming link
        self.streams = StreamLinks(self)

    @property
    def pool(self) -> StreamPool:
        """Pool from which links of addresses take a streaming link."""
        return self.streams.pool

    def attach_stream(self, session: Session) -> "EdgeStreamLink":
        """Attach a streaming link. Raises RemoteError."""
        links = self.client.links
        number = links.next_number()
        record = links.by_number[number] = EdgeStreamLink(self, number, session)
        return record


class EdgeStreamLink(LinkRecord):
    """Record of a streaming link that is unknown to the supervisor. Owner: its client."""

    __slots__ = ("_owner",)

    def __init__(self, owner: EdgeStreamLinks, number: int, session: Session) -> None:
        """Attach the link. Raises RemoteError if there is no room for it."""
        self._owner = owner
        client = owner.client
        source, target = node(SOURCE, None), node(TARGET, None)
        link = RouterOut(capacity=client.profile.link_capacity)
        super().__init__(client, number, link, True, PeerTerminus(source), PeerTerminus(target))
        name = "qdlink." + "".join(secrets.choice(_NAME_CHARACTERS) for _ in range(_RANDOM_PART))
        self.enter(session, name, None)
        self.advance("attach")
        modes = [encode_ubyte(SND_MIXED), encode_ubyte(RCV_FIRST)]
        head = [encode_string(name), encode_uint(self.link.handle), SENDER, *modes, source, target]
        session.send_attach([*head, NULL, NULL, encode_uint(0), NULL, NULL, NULL, NULL])

    def answered(self, items: list[bytes]) -> None:
        """Handle the peer's attach. If its terminus is missing, a detach follows."""
        if len(items) <= TARGET_FIELD or items[TARGET_FIELD] == NULL:
            self.advance("decline")
            self._owner.refuses = True
        else:
            self.advance("use")
        self.link.decided()
        self.forget_attach()

    def detached(self) -> bool:
        """Handle the end of the link."""
        self.link.close_on_detach()
        if self.link.detach_error is not None:
            self._owner.refuses = True
        self._owner.streams.gone(self.link.session)
        return super().detached()
