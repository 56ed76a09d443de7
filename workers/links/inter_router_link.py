"""Links between routers: control, data and streaming links (inter-router.md 2.6 to 2.9)."""

import secrets
import string
from typing import TYPE_CHECKING, Final, Literal

from sluice.router.amqp.codec import decode_one, encode_described, encode_string, encode_symbol, encode_uint
from sluice.router.amqp.errors import RESOURCE_LIMIT
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.control.names import CONTROL_KEY
from sluice.router.control.ops import Profile
from sluice.router.delivery.control_handler import ControlHandler
from sluice.router.delivery.router_handler import RouterHandler
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.control_link import ControlIn, ControlOut
from sluice.router.links.data_link import RouterIn, RouterOut
from sluice.router.links.producer_link import DeliveryHandler, ProducerLink
from sluice.workers.links.attach import (
    HANDLE,
    NAME,
    RECEIVER,
    SENDER,
    SND_MODE,
    SOURCE_FIELD,
    TARGET_FIELD,
    initial_count,
    padded,
)
from sluice.workers.links.encoded import NULL, SESSION_END
from sluice.workers.links.initiated_link import LINK_DETACH, described
from sluice.workers.links.record import OUT, LinkRecord
from sluice.workers.links.terminus import (
    DURABLE,
    DYNAMIC,
    EXPIRY,
    SOURCE,
    SOURCE_CAPABILITIES,
    TARGET,
    TARGET_CAPABILITIES,
    TIMEOUT,
    PeerTerminus,
    log_text,
)

if TYPE_CHECKING:
    from sluice.workers.connections.router import InterRouterLinks

CONTROL: Final = "qd.router"
DATA: Final = "qd.router-data"
CONTROL_PRIORITY: Final = 9
STREAM_PRIORITY: Final = 4  # priority shown for streaming links
SND_MIXED: Final = b"\x50\x02"
RCV_FIRST: Final = b"\x50\x00"
ZERO: Final = b"\x43"
FALSE: Final = b"\x42"
ULONG_ZERO: Final = b"\x44"
UNREADABLE: Final = ("an error", "that cannot be read")
_NAME_CHARACTERS: Final = string.ascii_letters + string.digits + "+_"
_RANDOM_PART: Final = 15


class InterRouterLink(LinkRecord):
    """Record of an inter-router link. Owner: the connection handler."""

    __slots__ = ("capability", "direction", "error", "links", "stream")

    def __init__(
        self,
        links: "InterRouterLinks",
        number: int,
        capability: str,
        direction: control.Direction,
        *,
        stream: bool = False,
    ) -> None:
        """Create the record. stream: the router attaches the link for streams."""
        self.links = links
        self.capability = capability
        self.direction = direction
        self.stream = stream
        self.error: control.ErrorText | None = None  # of the peer's detach
        outgoing = direction == OUT
        super().__init__(links.client, number, self._link(links.client.profile, outgoing), outgoing)

    def _link(self, profile: Profile, outgoing: bool) -> ConsumerLink | ProducerLink:
        """Return the engine's link; its capacity is that of the peer's kind (inter-router-protocol.md 3.2)."""
        capacity = profile.link_capacity
        if self.capability == CONTROL:
            return ControlOut(capacity=capacity) if outgoing else ControlIn(capacity=capacity)
        if outgoing:
            out = RouterOut(capacity=capacity)
            if self.links.checks:
                out.enable_tracking()
            if self.links.client.worker.setup.router.awaits_routers:
                out.wait_for_return()
            return out
        link = RouterIn(capacity=profile.bundle_capacity if self.links.is_ours else capacity)
        if profile.capacity_adapts:
            link.adapt_capacity()
        if self.links.is_ours:
            return link
        # Dispatch 1.19 leaves the settlement to its producers, which leave it to their router
        link.settle_first()
        return link

    # -- attach -------------------------------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Send the attach."""
        name = "qdlink." + "".join(secrets.choice(_NAME_CHARACTERS) for _ in range(_RANDOM_PART))
        self.enter(session, name, None)
        self.advance("attach")
        source, target = node(SOURCE, self.capability), node(TARGET, self.capability)
        self.source, self.target = PeerTerminus(source), PeerTerminus(target)
        self._send(encode_string(name), SND_MIXED, RCV_FIRST, source, target)

    def answered(self, items: list[bytes]) -> None:
        """Handle the peer's attach. If its terminus is missing, a detach with the reason follows."""
        items = padded(items)
        self._begin_count(items)
        if items[TARGET_FIELD if self.outgoing else SOURCE_FIELD] == NULL:
            self.advance("decline")
            self.link.decided()
        else:
            self.up()

    def answer(self, session: Session, items: list[bytes], *, full: bool) -> None:
        """Answer the peer's attach. full: there are too many links. Raises RemoteError."""
        items = padded(items)
        self.source, self.target = PeerTerminus(items[SOURCE_FIELD]), PeerTerminus(items[TARGET_FIELD])
        name, handle = decode_one(items[NAME]), decode_one(items[HANDLE])
        self.enter(session, name, handle)
        source, target = mirrored(self.source), mirrored(self.target)
        if full:
            self.advance("refuse")
            source, target = (NULL, target) if self.outgoing else (source, NULL)
        modes = [items[SND_MODE], items[SND_MODE + 1]]
        snd_mode = SND_MIXED if modes[0] == NULL else modes[0]
        self._send(items[NAME], snd_mode, RCV_FIRST if modes[1] == NULL else modes[1], source, target)
        if full:
            self.link.decided()
            self.link.close_with(RESOURCE_LIMIT, "too many inter-router links")
        else:
            self._begin_count(items)

    def _begin_count(self, items: list[bytes]) -> None:
        if isinstance(self.link, ProducerLink):
            self.link.begin_at(initial_count(items))

    def _send(self, name: bytes, snd_mode: bytes, rcv_mode: bytes, source: bytes, target: bytes) -> None:
        role = SENDER if self.outgoing else RECEIVER
        head = [name, encode_uint(self.link.handle), role, snd_mode, rcv_mode, source, target]
        self.link.session.send_attach([*head, NULL, NULL, ZERO, ULONG_ZERO, NULL, NULL, NULL])

    # -- use ----------------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Take the link into use, after both sides have attached it."""
        self.advance("use")
        links = self.links
        priority: int | None = CONTROL_PRIORITY
        kind: Literal["control", "data", "stream"] = "control"
        if self.capability == DATA:
            priority = None if self.stream else links.number(self)
            kind = "stream" if priority is None else "data"
        if not self.outgoing:
            self.use_route(self._make_route(streaming=priority is None))
        elif kind == "data":
            assert isinstance(self.link, RouterOut)
            self.link.pool = links.streams.pool
        self.link.decided()
        if isinstance(self.link, ProducerLink):
            self.link.set_flowing(True)
        elif kind == "control":
            links.measure()
        self._announce(kind, STREAM_PRIORITY if priority is None else priority)
        self.remember_ends(None)
        self.forget_attach()

    def _make_route(self, *, streaming: bool) -> DeliveryHandler:
        worker = self.client.worker
        if self.capability == CONTROL:
            return ControlHandler(worker.table, CONTROL_KEY, self._too_long)
        return RouterHandler(worker.table, self.client.number, streaming=streaming, checks=self.links.checks)

    def _too_long(self) -> None:
        """Log that a control message was refused, which the network will miss."""
        client = self.client
        text = f"[C{client.number}] A control message of the peer was dropped: it is too large"
        client.worker.send_log("error", "ROUTER", text)

    def _announce(self, kind: Literal["control", "data", "stream"], priority: int) -> None:
        self.client.worker.control.send_event(
            control.RouterLink(
                conn=self.client.number,
                link=self.number,
                dir=self.direction,
                kind=kind,
                priority=priority,
                slot=self.slot.index,
                gen=self.slot.generation,
                name=self.link.name,
                text=log_text(self.source, self.target),
            )
        )

    # -- end ----------------------------------------------------------------------------------------------------------

    def may_suspend(self) -> bool:
        """Return True if the supervisor knows the link: it decides what becomes of the deliveries that wait."""
        return self.state == "in use"

    def detached(self) -> bool:
        """Handle the end of the link."""
        if self.link.initiated:
            self.link.close_on_detach()
        if self.link.detach_error is not None:
            self.error = described(self.link.detach_error) or UNREADABLE
        links = self.links
        links.gone(self)
        if self.state != "in use" and not self.client.connection.ended:
            links.refused(self)
        return super().detached()


def node(code: int, capability: str) -> bytes:
    """Encode a terminus of a link between routers, as the attaching router writes it."""
    last = SOURCE_CAPABILITIES if code == SOURCE else TARGET_CAPABILITIES
    items = [NULL, ZERO, encode_symbol(LINK_DETACH), ZERO, FALSE] + [NULL] * (last - DYNAMIC)
    items[last] = encode_symbol(capability)
    return encode_described(code, items)


def mirrored(terminus: PeerTerminus) -> bytes:
    """Encode the peer's terminus for the answer. Without an address, its expiry policy is session-end."""
    if terminus.code not in (SOURCE, TARGET):
        return NULL
    last = SOURCE_CAPABILITIES if terminus.code == SOURCE else TARGET_CAPABILITIES
    items = terminus.items + [NULL] * (last + 1 - len(terminus.items))
    for index, default in ((DURABLE, ZERO), (TIMEOUT, ZERO), (DYNAMIC, FALSE)):
        if items[index] == NULL:
            items[index] = default
    if terminus.address is None:
        items[EXPIRY] = SESSION_END
    return encode_described(terminus.code, items)
