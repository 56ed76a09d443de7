"""Streaming links of an inter-router connection: attached when a message needs one, kept for the next (2.9)."""

from typing import TYPE_CHECKING, Any, Final

from router.amqp.router_link import StreamPool
from router.amqp.session import Session

from router.amqp.errors import RemoteError

if TYPE_CHECKING:
    from workers.router_links import RouterLinks

SECOND_MS: Final = 1000
# Sessions that a neighbour may always begin: one of 1.19 has one for its streams, and breaks down without it.
SPARE_CHANNELS: Final = 8
MOST: Final = 1024  # of one connection; beyond, streams go to the link of their priority


class StreamLinks:
    """Links that we attach for streams. Each has a session of its own, so that a stream whose consumer does not take it
    fills no window but its own (1.19 has one session for all). Owner: RouterLinks.
    """

    __slots__ = ("_kept", "_links", "_sessions", "_there", "_trim_ms", "_trimming", "pool")

    def __init__(self, links: "RouterLinks") -> None:
        self._links = links
        self._there = 0  # attached, or about to be
        self._sessions: list[Session] = []  # whose link is gone
        self._trimming = False
        router = links.client.worker.router
        self._trim_ms: int = router["scrubSeconds"] * SECOND_MS
        self._kept: int = router["streamsKept"]
        self.pool = StreamPool(self._make, self._kept)

    def _make(self) -> Any:
        """Attach another one; None: there is no room."""
        client = self._links.client
        if client.connection.ended or client.worker.slots.full or self._there >= MOST or self._links.refuses:
            return None
        try:
            session = self._sessions.pop() if self._sessions else client.begin_session(SPARE_CHANNELS)
            link = self._links.attach_stream(session).link
        except RemoteError:  # the peer allows no more sessions, or few, or none with a link
            return None
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
        """One of them is there no more."""
        self._there -= 1
        if self._links.client.connection.ended:
            self.pool.close()
            self._sessions.clear()
        elif not session.ended:
            self._sessions.append(session)
