"""Links that the router initiates: requests to workers, and their owners. No input or output here.

brokers-and-edge.md 7.2.
"""

import secrets
import string
from collections.abc import Callable
from typing import Final, Literal, Protocol

from msgspec import Struct

from router.control import messages
from supervisor.connections.connections import Connection, Link
from supervisor.links.attach import Accepted, Refused
from supervisor.processes.worker import Worker
from supervisor.subsystem import Subsystem

_NAME_CHARACTERS: Final = (string.ascii_letters + string.digits + "+_").encode()  # 64
_CHARACTER_OF: Final = bytes(_NAME_CHARACTERS[octet % len(_NAME_CHARACTERS)] for octet in range(256))
_RANDOM_PART: Final = 15


class Wanted(Struct, frozen=True, kw_only=True):
    """What is special about a link; see `messages.Link`."""

    address: str | None = None
    use: Literal["address", "anonymous", "messages", "heartbeat"] = "address"
    capability: str | None = None
    mirrored: bool = False
    dynamic: bool = False
    bare: bool = False
    second: bool = False
    capacity: int | None = None
    service: str = ""


class Owner(Protocol):
    """Who asked for a link that the router attached."""

    def begun(self, link: Link) -> None:
        """The attach has gone out."""

    def answered(self, link: Link, active: bool, address: str | None) -> Accepted | Refused | None:
        """The peer has answered, with an address (`active`) or not: what the link is bound to, or why it is closed.
        address: that the peer has generated.

        None: the peer's detach is to come, or the link is bound to nothing.
        """

    def ended(self, error: str | None) -> None:
        """The peer has detached, or there was no room for the link: why. Not called when the connection is gone."""


class InitiatedLinks(Subsystem):
    """All links that the router attached. Owner: the core."""

    __slots__ = ("_asked", "_owners", "_send", "_take_identity")

    def __init__(self, take_identity: Callable[[], int], send: Callable[[Connection, messages.Order], None]) -> None:
        """send: sends a message to the worker of a connection."""
        self._take_identity = take_identity
        self._send = send
        self._owners: dict[int, Owner] = {}  # by identity
        self._asked: dict[int, set[int]] = {}  # identities by number of the connection

    def attach(self, connection: Connection, outgoing: bool, address: str, owner: Owner) -> int:
        """Attach a link; returns its identity. outgoing: the router sends. address: of the peer's terminus."""
        return self.attach_wanted(connection, outgoing, Wanted(address=address), owner)

    def attach_wanted(self, connection: Connection, outgoing: bool, wanted: Wanted, owner: Owner) -> int:
        """The same for a link between an edge and an interior router."""
        identity = self._take_identity()
        self._owners[identity] = owner
        self._asked.setdefault(connection.number, set()).add(identity)
        self._send(
            connection,
            messages.Link(
                conn=connection.number,
                ref=identity,
                dir="out" if outgoing else "in",
                name=make_name(),
                address=wanted.address,
                use=wanted.use,
                capability=wanted.capability,
                mirrored=wanted.mirrored,
                dynamic=wanted.dynamic,
                bare=wanted.bare,
                second=wanted.second,
                capacity=wanted.capacity,
                service=wanted.service,
            ),
        )
        return identity

    def detach(self, connection: Connection, identity: int, *, quiet: bool = False) -> None:
        """Close a link. Its owner is not called any more. quiet: when its deliveries are settled."""
        self._forget(connection, identity)
        self._close(connection, identity, quiet=quiet)

    def _close(
        self, connection: Connection, identity: int, error: Refused | None = None, *, quiet: bool = False
    ) -> None:
        condition, description = (None, None) if error is None else error
        self._send(connection, messages.Unlink(connection.number, identity, condition, description, quiet))

    def begun(self, link: Link) -> None:
        """The attach of a link has gone out."""
        owner = self._owners.get(link.identity)
        if owner is not None:
            owner.begun(link)

    def answered(self, link: Link, active: bool, address: str | None) -> Accepted | None:
        """The peer has answered; returns what the link is bound to, if anything."""
        owner = self._owners.get(link.identity)
        decision = None if owner is None else owner.answered(link, active, address)
        if not isinstance(decision, Refused):
            return decision
        self._close(link.connection, link.identity, decision)
        self.ended(link.connection, link.identity, decision.description)
        return None

    def ended(self, connection: Connection, identity: int, error: str | None) -> None:
        """A link is gone, or never was."""
        owner = self._owners.get(identity)
        if owner is not None:
            self._forget(connection, identity)
            owner.ended(error)

    def connection_closed(self, connection: Connection) -> None:
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
    """A unique name of a link."""
    return "qdlink." + secrets.token_bytes(_RANDOM_PART).translate(_CHARACTER_OF).decode()


def initiated_link(worker: Worker, connection: Connection, message: messages.Initiated) -> Link:
    """The link of an `initiated` message."""
    outgoing = message.dir == "out"
    return Link(message.ref, message.name, outgoing, message.slot, message.gen, connection, worker.index)
