"""Links that the router attaches itself, for auto links, on a session of their own."""

from typing import TYPE_CHECKING, Any, Final

from router.amqp.codec import (
    decode_one,
    encode_described,
    encode_string,
    encode_symbol,
    encode_ubyte,
    encode_uint,
)
from router.amqp.connection import read_error
from router.amqp.incoming_link import IncomingLink
from router.amqp.outgoing_link import OutgoingLink
from router.amqp.session import Session

from router.amqp.errors import AmqpError
from router.ipc import control
from workers.links import (
    INITIAL_COUNT,
    OUT,
    RECEIVER,
    SENDER,
    SND_MIXED,
    SND_MODE,
    SND_SETTLED,
    SOURCE_FIELD,
    TARGET_FIELD,
    LinkRecord,
)
from workers.terminus import NULL, SOURCE, TARGET, Terminus

if TYPE_CHECKING:
    from workers.client import Client

RCV_FIRST: Final = 0
LINK_DETACH: Final = "link-detach"


class OwnLink(LinkRecord):
    """A link of ours as this worker and the supervisor know it. Owner: the client connection."""

    __slots__ = ("error", "reference")

    def __init__(self, client: "Client", number: int, session: Session, asked: control.Message) -> None:
        """Attach the link that a `link` message asks for, and tell. Raises RemoteError when there is no room for it."""
        worker, offer = client.worker, client.offer
        self.client = client
        self.number = number
        self.reference: int = asked["ref"]
        self.identity = self.reference
        self.error: list[str] | None = None
        self.items = []
        self.address = None
        self.route = None
        self.gone = False
        self.outgoing = asked["dir"] == OUT
        source = node(SOURCE, None if self.outgoing else asked["address"])
        target = node(TARGET, asked["address"] if self.outgoing else None)
        self.source, self.target = Terminus(source), Terminus(target)
        self.ends = None
        if self.outgoing:
            self.link = OutgoingLink(capacity=offer["linkCapacity"], annotations=not offer["stripAnnotationsOut"])
        else:
            self.link = IncomingLink(capacity=offer["linkCapacity"])
        self.link.context = self
        self.slot = worker.enter_link(
            session, self.link, asked["name"], None, incoming=not self.outgoing, container=client.route_container
        )
        self._remember_ends(None)
        session.send_attach(
            [
                encode_string(asked["name"]),
                encode_uint(self.link.handle),
                SENDER if self.outgoing else RECEIVER,
                encode_ubyte(SND_MIXED),
                encode_ubyte(RCV_FIRST),
                source,
                target,
                NULL,
                NULL,
                encode_uint(0) if self.outgoing else NULL,
                NULL,
                NULL,
                NULL,
                NULL,
            ]
        )
        worker.control.tell(
            {
                "t": control.INITIATED,
                "conn": client.number,
                "ref": self.reference,
                "dir": asked["dir"],
                "name": asked["name"],
                "link": number,
                "slot": self.slot.index,
                "gen": self.slot.generation,
                "text": f"source={self.source} target={self.target}",
            }
        )
        self._forget_attach()

    def answered(self, items: list[bytes]) -> None:
        """The peer's attach. One without an address is followed by a detach that says why. Raises RemoteError."""
        items = items + [NULL] * (INITIAL_COUNT + 1 - len(items))
        link = self.link
        active = Terminus(items[TARGET_FIELD if self.outgoing else SOURCE_FIELD]).address is not None
        if not self.outgoing:
            count = decode_one(items[INITIAL_COUNT])
            link.begin_at(count if isinstance(count, int) and 0 <= count <= 0xFFFFFFFF else 0)
        elif decode_one(items[SND_MODE]) == SND_SETTLED:
            link.settle_all()
        if self.outgoing and not active:
            link.decided()
        self.client.worker.control.tell(
            {"t": control.LINKED, "conn": self.client.number, "link": self.number, "active": active}
        )

    def attached(self, answer: control.Message) -> None:
        """The supervisor has bound the link to its address."""
        self.address = answer["addr"]
        self._bind(self.client.worker.table.get(answer["addr"]), answer)

    def detached(self) -> bool:
        """The link is gone: what the peer said about it is told."""
        self.link.close_on_detach()
        error = self.link.detach_error
        if error is not None:
            self.error = described(error)
        return super().detached()


def node(code: int, address: str | None) -> bytes:
    """A terminus as the router attaches it: not durable, gone with the link."""
    name = NULL if address is None else encode_string(address)
    encoded: bytes = encode_described(code, [name, encode_uint(0), encode_symbol(LINK_DETACH), encode_uint(0)])
    return encoded


def described(error: bytes) -> list[str]:
    """Condition and description of an encoded error; one that cannot be read says nothing."""
    try:
        found: Any = read_error(error)
    except AmqpError:
        found = None
    return [] if found is None else list(found)
