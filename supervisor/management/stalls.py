"""Stalls of links for users: reason, responsible peer, and duration (docs/user/operate.md, "Stalls")."""

from typing import Any, Final, NamedTuple

from router.config import roles
from router.stalls.reason import Reason, Word
from supervisor.composition import RouterCore
from supervisor.connections.connections import RegisteredConnection, RegisteredLink

_OF_PEERS: Final = {Reason.CREDIT: Word.CREDIT, Reason.WINDOW: Word.WINDOW, Reason.UNREAD: Word.UNREAD}
_CAUSES: Final = {
    Word.CREDIT: "grants no credit",
    Word.WINDOW: "takes no transfers: the incoming window of its session is shut",
    Word.UNREAD: "does not read its connection",
}
_NS: Final = 1e9


class Stall(NamedTuple):
    """Reason for which no delivery moves on a link."""

    reason: Word
    text: str  # sentence that names the peer
    seconds: float

    @property
    def described(self) -> str:
        """Return the sentence with the duration."""
        return f"{self.text}, for {self.seconds:.0f} s"


def find_stall(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], now: int) -> Stall | None:
    """Return the stall of a link, or None. counters: of its slot. now: monotonic ns."""
    reason, since = counters["stall"], counters["stall_since"]
    if reason not in _FINDERS:
        reason = None  # found by one check only
    blocked = counters["blocked_since"]
    if link.consumer and blocked and reason is None:
        reason, since = Reason.CREDIT, blocked
    if reason is None or (reason == Reason.CREDIT and not blocked):
        return None  # the slot may show an outdated check
    word, text = _FINDERS[reason](core, link, counters, reason)
    return Stall(word, text, max(now - since, 0) / _NS)


def peer_of(connection: RegisteredConnection) -> str:
    """Return a description of the peer of a connection for users."""
    kind = "client"
    if connection.origin.role in roles.BETWEEN_ROUTERS:
        kind = "router"
    elif connection.origin.role == roles.ROUTE_CONTAINER:
        kind = "container"
    return f"{kind} '{connection.container}' ({connection.peer}, connection {connection.number})"


def _word(connection: RegisteredConnection, word: Word) -> Word:
    """Return the word for a stall caused by the peer of a connection."""
    if connection.origin.role in roles.BETWEEN_ROUTERS:
        return Word.HOP
    return Word.BROKER if connection.origin.role == roles.ROUTE_CONTAINER else word


def _of_peer(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    word = _OF_PEERS[Reason(reason)]
    return _word(link.connection, word), f"{peer_of(link.connection)} {_CAUSES[word]}"


def _routed(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    other = None if link.other is None else core.links.by_identity.get(link.other)
    if other is None:
        return Word.CREDIT, "the receiver at the other end of its link route grants no credit"
    text = f"{peer_of(other.connection)}, at the other end of its link route, {_CAUSES[Word.CREDIT]}"
    return _word(other.connection, Word.CREDIT), text


def _unsettled(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    consumer = core.links.by_identity.get(counters["stall_detail"])
    count = counters["held"]
    held = "1 delivery" if count == 1 else f"{count} deliveries"
    if consumer is not None:
        text = f"{held} of {peer_of(link.connection)} wait for {peer_of(consumer.connection)}, link {consumer.identity}"
        return _word(consumer.connection, Word.UNSETTLED), text
    record = link.record
    if record is not None and record.remotes and not record.consumers:
        return Word.HOP, f"{held} of {peer_of(link.connection)} wait for consumers at other routers"
    return Word.UNSETTLED, f"{held} of {peer_of(link.connection)} wait for consumers, which have not settled them"


def _no_consumer(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    return Word.NO_CONSUMER, f"{peer_of(link.connection)} gets no credit: no consumer of the address can be reached"


def _memory(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    return Word.MEMORY, (
        f"{peer_of(link.connection)} has to wait: its connection, or worker {link.worker}, holds as many octets of "
        "messages as it may"
    )


def _quota(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    user = link.connection.user or "anonymous"
    return Word.QUOTA, f"{peer_of(link.connection)} has to wait: a quota of the vhost of user '{user}' is used up"


def _ring(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    return Word.RING, (
        f"frames of {peer_of(link.connection)} have to wait: the ring from worker {link.worker} to another one is full"
    )


def _supervisor(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[Word, str]:
    return Word.SUPERVISOR, f"frames of {peer_of(link.connection)} have to wait for an answer of the supervisor"


_FINDERS: Final = {
    Reason.UNREAD: _of_peer,
    Reason.MEMORY: _memory,
    Reason.RING: _ring,
    Reason.SUPERVISOR: _supervisor,
    Reason.CREDIT: _of_peer,
    Reason.WINDOW: _of_peer,
    Reason.NO_CONSUMER: _no_consumer,
    Reason.UNSETTLED: _unsettled,
    Reason.QUOTA: _quota,
    Reason.ROUTED: _routed,
}
