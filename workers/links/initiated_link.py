"""Links that the router attaches on its own initiative, such as those of auto links, on a separate session.

brokers-and-edge.md AL-5 to AL-9.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.amqp.codec import (
    decode_one,
    encode_described,
    encode_string,
    encode_symbol,
    encode_ubyte,
    encode_uint,
)
from sluice.router.amqp.errors import AmqpError
from sluice.router.amqp.performatives import read_error
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.delivery.peer_message_handler import PeerMessageHandler
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.limited_link import LimitedConsumerLink
from sluice.router.links.producer_link import ProducerLink
from sluice.workers.links.attach import (
    RCV_FIRST,
    RECEIVER,
    SENDER,
    SND_MIXED,
    SND_MODE,
    SND_SETTLED,
    SOURCE_FIELD,
    TARGET_FIELD,
    initial_count,
    message_limit,
    padded,
)
from sluice.workers.links.encoded import NULL, TRUE
from sluice.workers.links.heartbeats import HeartbeatSender
from sluice.workers.links.record import OUT, LinkRecord
from sluice.workers.links.terminus import (
    SOURCE,
    SOURCE_CAPABILITIES,
    TARGET,
    TARGET_CAPABILITIES,
    PeerTerminus,
    log_text,
)

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

FALSE: Final = b"\x42"
# Period and number of checks of a link that is to be closed when it is quiet; after the last one it is closed in any
# case.
LOOK_MS: Final = 50
LOOKS: Final = 200
LINK_DETACH: Final = "link-detach"
SESSION_ENDED: Final = ("", "the peer has ended the session without a reason")


class InitiatedLink(LinkRecord):
    """Record of a link that the router attached on its own initiative. Owner: the client connection."""

    __slots__ = ("asked", "error", "reference")

    def __init__(self, client: "ConnectionHandler", number: int, session: Session, asked: control.Link) -> None:
        """Attach the link of a `link` order, and report it. Raises RemoteError if there is no room for it."""
        self.asked = asked
        self.reference: int = asked.ref
        self.error: control.ErrorText | None = None
        outgoing = asked.dir == OUT
        own, peers = (SOURCE, TARGET) if outgoing else (TARGET, SOURCE)
        there = node(peers, asked.address, asked.capability, dynamic=asked.dynamic)
        here = NULL if asked.bare else node(own, None, asked.capability if asked.mirrored else None)
        source, target = (here, there) if outgoing else (there, here)
        capacity = asked.capacity
        link: ConsumerLink | ProducerLink
        if outgoing:
            link = client.role.outgoing_link(
                client.profile.link_capacity if capacity is None else capacity, limited=asked.use == "address"
            )
            if asked.waits:
                link.wait_for_return()
        else:
            link = ProducerLink(capacity=client.role.window if capacity is None else capacity)
            client.role.set_up_incoming_link(link, fixed=capacity is not None)
        super().__init__(client, number, link, outgoing, PeerTerminus(source), PeerTerminus(target), identity=asked.ref)
        self.enter(session, asked.name, None)
        self.advance("attach")
        self.remember_ends(None)
        session.send_attach(
            [
                encode_string(asked.name),
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
        begun = control.Initiated(
            conn=client.number,
            ref=self.reference,
            dir=asked.dir,
            name=asked.name,
            link=number,
            slot=self.slot.index,
            gen=self.slot.generation,
            text=log_text(self.source, self.target),
        )
        if client.role.edge:  # the supervisor waits for the answer of the other router, which follows at once
            client.worker.control.send_event_later(begun)
        else:  # a broker may ask management about the link as soon as it has the attach
            client.worker.control.send_event(begun)
        self.forget_attach()

    def answered(self, items: list[bytes]) -> None:
        """Handle the peer's attach. If it has no address, a detach with the reason follows. Raises RemoteError."""
        items = padded(items)
        link = self.link
        there = PeerTerminus(items[TARGET_FIELD if self.outgoing else SOURCE_FIELD])
        nowhere = self.asked.address is None and not self.asked.dynamic
        active = there.address is not None or (nowhere and there.code != 0)
        if isinstance(link, ProducerLink):
            link.begin_at(initial_count(items))
        elif decode_one(items[SND_MODE]) == SND_SETTLED:
            link.settle_all()
        if isinstance(link, LimitedConsumerLink):
            link.limit_messages(message_limit(items))
        if active and self.asked.use != "address":
            self.advance("use")
            self._use_accepted()
        elif self.asked.use != "address" or (self.outgoing and not active):
            self.advance("decline")
            if self.outgoing:
                link.decided()
        else:
            self.advance("peer attach")
        address = there.address if self.asked.dynamic else None
        self.client.worker.control.send_event(control.Linked(self.client.number, self.number, active, address))

    def _use_accepted(self) -> None:
        """Take into use a link that the peer has accepted and that has no address here."""
        if self.outgoing:
            self.link.decided()
            if self.asked.use == "heartbeat":
                HeartbeatSender(self)
        elif self.asked.use == "anonymous":
            self.start_flow(self.anonymous_handler())
        else:
            self.start_flow(PeerMessageHandler(self._take))

    def _take(self, octets: bytes) -> bool:
        """Pass a message to the supervisor. False: the supervisor is behind."""
        return self.client.worker.in_process.accept_service(self.link, self.asked.service, octets)

    def close_when_settled(self, looks: int = LOOKS) -> None:
        """Close the link when its peer has settled all deliveries sent. No new ones are sent to it."""
        client = self.client
        if self.ended or client.connection.ended:
            return
        counters = client.worker.region.link_counters(client.worker.setup.worker, self.slot.index)
        if not looks or not counters or not (counters["undelivered"] or counters["unsettled"]):
            self.link.close_with(None, None)
            return
        loop = client.worker.loop
        loop.call_at(loop.scheduler.now + LOOK_MS, lambda: self.close_when_settled(looks - 1), client.connection)

    def may_suspend(self) -> bool:
        """Return True if deliveries may wait: for a router in any case, for a broker if it is the only consumer."""
        return self.asked.use != "address" or super().may_suspend()

    def rules(self) -> None:
        """Return None: links that the router requests are not subject to policy (security.md P-61)."""

    def attached(self, answer: control.Attached) -> None:
        """Bind the link to its address, as the supervisor has decided."""
        self.advance("use")
        self.address = answer.addr
        self.span_facts = None
        self.client.worker.tracing.attached(self)  # the address decides about spans
        self.bind(self.client.worker.table.get(answer.addr), answer)

    def note_session_error(self, reason: str) -> None:
        self.error = ("", reason)

    def detached(self) -> bool:
        """Handle the end of the link, and keep the peer's error for the report."""
        self.link.close_on_detach()
        error = self.link.detach_error
        if error is not None:
            self.error = described(error)
        elif self.error is None and self.link.session.ended:
            self.error = SESSION_ENDED
        return super().detached()


def node(code: int, address: str | None, capability: str | None = None, *, dynamic: bool = False) -> bytes:
    """Encode a terminus of an initiated link. It is not durable, and expires with the link."""
    name = NULL if address is None else encode_string(address)
    items = [name, encode_uint(0), encode_symbol(LINK_DETACH), encode_uint(0)]
    if dynamic or capability is not None:
        items.append(TRUE if dynamic else FALSE)
    if capability is not None:
        last = SOURCE_CAPABILITIES if code == SOURCE else TARGET_CAPABILITIES
        items += [NULL] * (last - len(items))
        items.append(encode_symbol(capability))
    return encode_described(code, items)


def described(error: bytes) -> control.ErrorText | None:
    """Return condition and description of an encoded error; None if it cannot be read."""
    try:
        return read_error(error)
    except AmqpError:
        return None
