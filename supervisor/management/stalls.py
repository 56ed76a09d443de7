"""Stalls of links for users: reason, responsible peer, and duration (docs/user/operate.md, "Stalls")."""

from typing import Any, Final, NamedTuple

from sluice.router.config import roles
from sluice.router.stalls.reason import StallReason, StallWord
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink

_OF_PEERS: Final = {
    StallReason.CREDIT: StallWord.CREDIT,
    StallReason.WINDOW: StallWord.WINDOW,
    StallReason.UNREAD: StallWord.UNREAD,
}
_CAUSES: Final = {
    StallWord.CREDIT: "grants no credit",
    StallWord.WINDOW: "takes no transfers: the incoming window of its session is shut",
    StallWord.UNREAD: "does not read its connection",
}
_NS: Final = 1e9


class LinkStall(NamedTuple):
    """Reason for which no delivery moves on a link."""

    reason: StallWord
    text: str  # sentence that names the peer
    seconds: float

    @property
    def described(self) -> str:
        """Return the sentence with the duration."""
        return f"{self.text}, for {self.seconds:.0f} s"


def find_stall(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], now: int) -> LinkStall | None:
    """Return the stall of a link, or None. counters: of its slot. now: monotonic ns."""
    reason, since = counters["stall"], counters["stall_since"]
    if reason not in _FINDERS:
        reason = None  # found by one check only
    blocked = counters["blocked_since"]
    if link.consumer and blocked and reason is None:
        reason, since = StallReason.CREDIT, blocked
    if reason is None or (reason == StallReason.CREDIT and not blocked):
        return None  # the slot may show an outdated check
    word, text = _FINDERS[reason](core, link, counters, reason)
    return LinkStall(word, text, max(now - since, 0) / _NS)


def peer_of(connection: RegisteredConnection) -> str:
    """Return a description of the peer of a connection for users."""
    kind = "client"
    if connection.origin.role in roles.BETWEEN_ROUTERS:
        kind = "router"
    elif connection.origin.role == roles.ROUTE_CONTAINER:
        kind = "container"
    return f"{kind} '{connection.container}' ({connection.peer}, connection {connection.number})"


def _word(connection: RegisteredConnection, word: StallWord) -> StallWord:
    """Return the word for a stall caused by the peer of a connection."""
    if connection.origin.role in roles.BETWEEN_ROUTERS:
        return StallWord.HOP
    return StallWord.BROKER if connection.origin.role == roles.ROUTE_CONTAINER else word


def _of_peer(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    word = _OF_PEERS[StallReason(reason)]
    return _word(link.connection, word), f"{peer_of(link.connection)} {_CAUSES[word]}"


def _routed(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    other = None if link.other is None else core.links.by_identity.get(link.other)
    if other is None:
        return StallWord.CREDIT, "the receiver at the other end of its link route grants no credit"
    text = f"{peer_of(other.connection)}, at the other end of its link route, {_CAUSES[StallWord.CREDIT]}"
    return _word(other.connection, StallWord.CREDIT), text


def _unsettled(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    consumer = core.links.by_identity.get(counters["stall_detail"])
    count = counters["held"]
    held = "1 delivery" if count == 1 else f"{count} deliveries"
    if consumer is not None:
        text = f"{held} of {peer_of(link.connection)} wait for {peer_of(consumer.connection)}, link {consumer.identity}"
        return _word(consumer.connection, StallWord.UNSETTLED), text
    record = link.record
    if record is not None and record.remotes and not record.consumers:
        return StallWord.HOP, f"{held} of {peer_of(link.connection)} wait for consumers at other routers"
    return StallWord.UNSETTLED, f"{held} of {peer_of(link.connection)} wait for consumers, which have not settled them"


def _no_consumer(
    core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int
) -> tuple[StallWord, str]:
    return (
        StallWord.NO_CONSUMER,
        f"{peer_of(link.connection)} gets no credit: no consumer of the address can be reached",
    )


def _memory(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    return StallWord.MEMORY, (
        f"{peer_of(link.connection)} has to wait: its connection, or worker {link.worker}, holds as many octets of "
        "messages as it may"
    )


def _quota(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    user = link.connection.user or "anonymous"
    return StallWord.QUOTA, f"{peer_of(link.connection)} has to wait: a quota of the vhost of user '{user}' is used up"


def _ring(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    return StallWord.RING, (
        f"frames of {peer_of(link.connection)} have to wait: the ring from worker {link.worker} to another one is full"
    )


def _supervisor(core: RouterCore, link: RegisteredLink, counters: dict[str, Any], reason: int) -> tuple[StallWord, str]:
    return StallWord.SUPERVISOR, f"frames of {peer_of(link.connection)} have to wait for an answer of the supervisor"


_FINDERS: Final = {
    StallReason.UNREAD: _of_peer,
    StallReason.MEMORY: _memory,
    StallReason.RING: _ring,
    StallReason.SUPERVISOR: _supervisor,
    StallReason.CREDIT: _of_peer,
    StallReason.WINDOW: _of_peer,
    StallReason.NO_CONSUMER: _no_consumer,
    StallReason.UNSETTLED: _unsettled,
    StallReason.QUOTA: _quota,
    StallReason.ROUTED: _routed,
}
