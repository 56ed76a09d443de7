"""Links that the router attaches itself: what the workers are asked for, and who asked. No input or output here."""
import secrets
import string
from collections.abc import Callable
from typing import Final, Protocol

from router.ipc.control import LINK, UNLINK, Message
from supervisor.attach import Accepted, Refused
from supervisor.connections import Connection, Link
from supervisor.worker import Worker

_NAME_CHARACTERS: Final = string.ascii_letters + string.digits + "+_"
_RANDOM_PART: Final = 15


class Owner(Protocol):
    """Who asked for a link of ours."""

    def begun(self, link: Link) -> None:
        """The attach has gone out."""

    def answered(self, link: Link, active: bool) -> Accepted | Refused | None:
        """The peer has answered, with an address (`active`) or not: what the link is bound to, or why it is closed.

        None: the peer's detach is to come.
        """

    def ended(self, error: str | None) -> None:
        """The peer has detached, or there was no room for the link: why. Not called when the connection is gone."""


class OwnLinks:
    """All links of ours. Owner: the core."""

    __slots__ = ("_asked", "_owners", "_take_identity", "_tell")

    def __init__(self, take_identity: Callable[[], int], tell: Callable[[Connection, Message], None]) -> None:
        """tell: sends a message to the worker of a connection."""
        self._take_identity = take_identity
        self._tell = tell
        self._owners: dict[int, Owner] = {}  # by identity
        self._asked: dict[int, set[int]] = {}  # identities by number of the connection

    def attach(self, connection: Connection, outgoing: bool, address: str, owner: Owner) -> int:
        """Have a link attached; its identity. outgoing: the router sends. address: of the peer's terminus."""
        identity = self._take_identity()
        self._owners[identity] = owner
        self._asked.setdefault(connection.number, set()).add(identity)
        self._tell(
            connection,
            {
                "t": LINK,
                "conn": connection.number,
                "ref": identity,
                "dir": "out" if outgoing else "in",
                "name": make_name(),
                "address": address,
            },
        )
        return identity

    def detach(self, connection: Connection, identity: int) -> None:
        """Have a link closed. Its owner hears nothing of it any more."""
        self._forget(connection, identity)
        self._close(connection, identity)

    def _close(self, connection: Connection, identity: int, **error: str) -> None:
        self._tell(connection, {"t": UNLINK, "conn": connection.number, "ref": identity, **error})

    def begun(self, link: Link) -> None:
        """The attach of a link has gone out."""
        owner = self._owners.get(link.identity)
        if owner is not None:
            owner.begun(link)

    def answered(self, link: Link, active: bool) -> Accepted | None:
        """The peer has answered: what the link is bound to, if to anything."""
        owner = self._owners.get(link.identity)
        decision = None if owner is None else owner.answered(link, active)
        if not isinstance(decision, Refused):
            return decision
        self._close(link.connection, link.identity, condition=decision.condition, description=decision.description)
        self.ended(link.connection, link.identity, decision.description)
        return None

    def ended(self, connection: Connection, identity: int, error: str | None) -> None:
        """A link is gone, or never was."""
        owner = self._owners.get(identity)
        if owner is not None:
            self._forget(connection, identity)
            owner.ended(error)

    def gone(self, connection: Connection) -> None:
        """A connection is gone, with all its links."""
        for identity in self._asked.pop(connection.number, ()):
            self._owners.pop(identity, None)

    def _forget(self, connection: Connection, identity: int) -> None:
        self._owners.pop(identity, None)
        asked = self._asked.get(connection.number)
        if asked is not None:
            asked.discard(identity)
            if not asked:
                del self._asked[connection.number]


def make_name() -> str:
    """The name of a link, which nothing else has."""
    return "qdlink." + "".join(secrets.choice(_NAME_CHARACTERS) for _ in range(_RANDOM_PART))


def own_link(worker: Worker, connection: Connection, message: Message) -> Link:
    """The link that an `initiated` message tells of."""
    outgoing = message["dir"] == "out"
    place = (message["slot"], message["gen"], connection, worker.index)
    return Link(message["ref"], message["name"], outgoing, *place)
