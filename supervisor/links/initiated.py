"""Links that the router initiates: requests to workers, and the owners of these links.

Does no input or output. brokers-and-edge.md 7.2.
"""

import secrets
import string
from collections.abc import Callable
from typing import Final, Literal, Protocol

from msgspec import Struct

from sluice.router.config.roles import BETWEEN_ROUTERS, ROUTE_CONTAINER
from sluice.router.control import messages
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.links.attach import AttachAccepted, AttachRefused
from sluice.supervisor.subsystem import Subsystem

_NAME_CHARACTERS: Final = (string.ascii_letters + string.digits + "+_").encode()  # 64
_CHARACTER_OF: Final = bytes(_NAME_CHARACTERS[octet % len(_NAME_CHARACTERS)] for octet in range(256))
_RANDOM_PART: Final = 15


class InitiatedLinkOptions(Struct, frozen=True, kw_only=True):
    """Properties of a requested link that differ from the default; see `messages.Link`."""

    address: str | None = None
    use: Literal["address", "anonymous", "messages", "heartbeat"] = "address"
    capability: str | None = None
    mirrored: bool = False
    dynamic: bool = False
    bare: bool = False
    second: bool = False
    session: str = ""
    capacity: int | None = None
    service: str = ""
    waits: bool = False


class InitiatedLinkOwner(Protocol):
    """Requester of a link that the router attached."""

    def begun(self, link: RegisteredLink) -> None:
        """Take note that the attach has been sent."""

    def answered(
        self, link: RegisteredLink, active: bool, address: str | None
    ) -> AttachAccepted | AttachRefused | None:
        """Return what the link is attached to after the peer's answer, or the reason to close the link.

        active: the peer's answer has an address. address: an address that the peer has generated. Returns None if the
        peer's detach is to follow, or if the link is attached to nothing.
        """

    def ended(self, error: str | None) -> None:
        """Take note that the peer has detached, or that there was no room for the link; `error` is the reason.

        Not called when the connection is lost.
        """


class InitiatedLinks(Subsystem):
    """All links that the router attached. Owner: the core."""

    __slots__ = ("_asked", "_owners", "_send", "_take_identity")

    roles = (ROUTE_CONTAINER, *BETWEEN_ROUTERS)  # the router attaches no links to clients

    def __init__(
        self, take_identity: Callable[[], int], send: Callable[[RegisteredConnection, messages.Order], None]
    ) -> None:
        """send: sends a message to the worker of a connection."""
        self._take_identity = take_identity
        self._send = send
        self._owners: dict[int, InitiatedLinkOwner] = {}  # by identity of the link
        self._asked: dict[int, set[int]] = {}  # identities of requested links, by connection number

    def attach(
        self, connection: RegisteredConnection, outgoing: bool, wanted: InitiatedLinkOptions, owner: InitiatedLinkOwner
    ) -> int:
        """Attach a link and return its identity. outgoing: the router sends."""
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
                session=wanted.session,
                capacity=wanted.capacity,
                service=wanted.service,
                waits=wanted.waits,
            ),
        )
        return identity

    def detach(self, connection: RegisteredConnection, identity: int, *, quiet: bool = False) -> None:
        """Close a link without further calls to its owner. quiet: close only after its deliveries are settled."""
        self._forget(connection, identity)
        self._close(connection, identity, quiet=quiet)

    def _close(
        self,
        connection: RegisteredConnection,
        identity: int,
        error: AttachRefused | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        condition, description = (None, None) if error is None else error
        self._send(connection, messages.Unlink(connection.number, identity, condition, description, quiet))

    def begun(self, link: RegisteredLink) -> None:
        """Notify the owner that the attach has been sent."""
        owner = self._owners.get(link.identity)
        if owner is not None:
            owner.begun(link)

    def answered(self, link: RegisteredLink, active: bool, address: str | None) -> AttachAccepted | None:
        """Notify the owner of the peer's answer, and return what the link is attached to, or None."""
        owner = self._owners.get(link.identity)
        decision = None if owner is None else owner.answered(link, active, address)
        if not isinstance(decision, AttachRefused):
            return decision
        self._close(link.connection, link.identity, decision)
        self.ended(link.connection, link.identity, decision.description)
        return None

    def ended(self, connection: RegisteredConnection, identity: int, error: str | None) -> None:
        """Notify the owner that a link has ended or was never attached."""
        owner = self._owners.get(identity)
        if owner is not None:
            self._forget(connection, identity)
            owner.ended(error)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        for identity in self._asked.pop(connection.number, ()):
            self._owners.pop(identity, None)

    def _forget(self, connection: RegisteredConnection, identity: int) -> None:
        self._owners.pop(identity, None)
        asked = self._asked.get(connection.number)
        if asked is not None:
            asked.discard(identity)
            if not asked:
                del self._asked[connection.number]


def make_name() -> str:
    """Return a unique random link name."""
    return "qdlink." + secrets.token_bytes(_RANDOM_PART).translate(_CHARACTER_OF).decode()


def initiated_link(
    worker: WorkerProcess, connection: RegisteredConnection, message: messages.Initiated
) -> RegisteredLink:
    """Return the link that an `initiated` message describes."""
    outgoing = message.dir == "out"
    return RegisteredLink(message.ref, message.name, outgoing, message.slot, message.gen, connection, worker.index)
