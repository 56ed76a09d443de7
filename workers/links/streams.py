"""Streaming links between two routers. They are attached when a message needs one, and kept for the next
(inter-router.md 2.9)."""

from typing import TYPE_CHECKING, Final, Protocol

from sluice.router.amqp.errors import RemoteError
from sluice.router.amqp.session import Session
from sluice.router.links.data_link import RouterOut, StreamPool

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.links.record import LinkRecord

SECOND_MS: Final = 1000
# Sessions that a neighbour may always begin: 1.19 needs one for its streams.
SPARE_CHANNELS: Final = 8
MAX_STREAM_LINKS: Final = 1024  # most streaming links of one connection; further streams use the link of their priority


class StreamLinkOwner(Protocol):
    """Owner of a StreamLinks, which attaches the links."""

    client: "ConnectionHandler"
    refuses: bool  # the peer refuses streaming links

    def attach_stream(self, session: Session) -> "LinkRecord":
        """Attach another streaming link; return its record. Raises RemoteError."""


class StreamLinks:
    """Streaming links that the router attaches. Each has its own session, so that a stalled stream fills only its own
    window (1.19 uses one session for all). Owner: the object that attaches them. inter-router-protocol.md 3.4.
    """

    __slots__ = ("_kept", "_links", "_sessions", "_there", "_trim_ms", "_trimming", "pool")

    def __init__(self, links: StreamLinkOwner) -> None:
        self._links = links
        self._there = 0  # number of links attached or being attached
        self._sessions: list[Session] = []  # sessions whose link has ended
        self._trimming = False
        router = links.client.worker.router
        self._trim_ms: int = router.scrub_seconds * SECOND_MS
        self._kept: int = router.streams_kept
        self.pool = StreamPool(self._make, self._kept)

    def _make(self) -> RouterOut | None:
        """Attach another link; None: there is no room."""
        client = self._links.client
        if (
            client.connection.ended
            or client.worker.slots.full
            or self._there >= MAX_STREAM_LINKS
            or self._links.refuses
        ):
            return None
        try:
            session = self._sessions.pop() if self._sessions else client.begin_session(SPARE_CHANNELS)
            link = self._links.attach_stream(session).link
        except RemoteError:  # the peer allows no further session or link
            return None
        assert isinstance(link, RouterOut)
        self._there += 1
        if self._there > self._kept and not self._trimming:
            self._trimming = True
            self._trim_later()
        return link

    def _trim_later(self) -> None:
        client = self._links.client
        loop = client.worker.loop
        loop.call_at(loop.scheduler.now + self._trim_ms, self._trim, client.connection)

    def _trim(self) -> None:
        self.pool.trim()
        self._trimming = self._there > self._kept and not self.pool.closed
        if self._trimming:
            self._trim_later()

    def gone(self, session: Session) -> None:
        """Handle the end of a streaming link."""
        self._there -= 1
        if self._links.client.connection.ended:
            self.pool.close()
            self._sessions.clear()
        elif not session.ended:
            self._sessions.append(session)
