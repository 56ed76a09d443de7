"""Links that a peer requests: the attach, the supervisor's decision, and the answer.

routing-semantics.md 4.
"""

from typing import TYPE_CHECKING

from sluice.router.amqp.codec import decode_one, encode_described
from sluice.router.amqp.errors import RESOURCE_LIMIT
from sluice.router.amqp.session import Session
from sluice.router.config.roles import INTER_ROUTER
from sluice.router.control import messages as control
from sluice.router.control import pair_messages
from sluice.router.delivery.peer_message_handler import PeerMessageHandler
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.limited_link import LimitedConsumerLink
from sluice.router.links.producer_link import ProducerLink
from sluice.router.links.source_link import SourceLink
from sluice.workers.links.attach import (
    HANDLE,
    NAME,
    PROPERTIES,
    RCV_MODE,
    RCV_SECOND,
    ROLE,
    SND_MODE,
    SND_SETTLED,
    SOURCE_FIELD,
    TARGET_FIELD,
    attach_reply,
    initial_count,
    message_limit,
    padded,
    settle_mode,
)
from sluice.workers.links.attach_fields import route_of
from sluice.workers.links.encoded import NULL
from sluice.workers.links.heartbeats import HeartbeatWatch
from sluice.workers.links.record import IN, OUT, LinkRecord
from sluice.workers.links.terminus import SOURCE, TARGET, PeerTerminus, log_text

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

NO_SOURCE = encode_described(SOURCE, [])
NO_TARGET = encode_described(TARGET, [])


class RequestedLink(LinkRecord):
    """Record of a link that the peer has attached. Owner: the connection handler."""

    __slots__ = ("items",)

    def __init__(self, client: "ConnectionHandler", number: int, items: list[bytes]) -> None:
        """Create the engine's link for an attach. Raises RemoteError."""
        items = padded(items)
        self.items = items  # until the attach is answered
        outgoing = decode_one(items[ROLE]) is True
        source, target = PeerTerminus(items[SOURCE_FIELD]), PeerTerminus(items[TARGET_FIELD])
        link: ConsumerLink | ProducerLink
        if outgoing:
            link = client.role.outgoing_link(
                client.profile.link_capacity,
                settles=settle_mode(items, SND_MODE) == SND_SETTLED,
                limited=message_limit(items) > 0,
            )
        else:
            link = ProducerLink(capacity=client.role.window, initial_delivery_count=initial_count(items))
            client.role.set_up_incoming_link(link, second=settle_mode(items, RCV_MODE) == RCV_SECOND)
        super().__init__(client, number, link, outgoing, source, target)

    def request(self, session: Session) -> None:
        """Enter the link in its session, and request the supervisor's decision. Raises RemoteError."""
        self.enter(session, decode_one(self.items[NAME]), decode_one(self.items[HANDLE]))
        self.advance("ask")
        if isinstance(self.link, LimitedConsumerLink):
            self.link.limit_messages(message_limit(self.items))
        self.client.worker.control.send_event(self._question())

    def _question(self) -> control.Attach:
        assert self.source is not None
        assert self.target is not None
        terminus = self.source if self.outgoing else self.target
        route: list[str] = []
        if self.client.profile.role == INTER_ROUTER:
            route = route_of(self.items[PROPERTIES])
        return control.Attach(
            conn=self.client.number,
            link=self.number,
            slot=self.slot.index,
            gen=self.slot.generation,
            dir=OUT if self.outgoing else IN,
            name=self.link.name,
            address=terminus.address,
            dynamic=terminus.dynamic,
            dynamic_address=terminus.dynamic_address,
            caps=(terminus.capabilities, terminus.array),
            coordinator=terminus.coordinator,
            expiry=terminus.expiry,
            timeout=terminus.timeout,
            tenant=self.client.policy.tenant,
            channel=self.link.session.local_channel,
            text=log_text(self.source, self.target),
            route=route or None,
        )

    # -- the decision -------------------------------------------------------------------------------------------------

    def attached(self, answer: control.Attached) -> None:
        """Answer the attach and let deliveries flow, after the supervisor has accepted the link."""
        self.advance("use")
        worker = self.client.worker
        link = self.link
        address = None
        self.identity = answer.identity
        if not self.outgoing:
            link.limit_size(0 if link.initiated else self.client.message_limit)
        if answer.kind == "address":
            address = worker.table.get(answer.addr)
            self.address = answer.addr
        if answer.capacity is not None:
            self.producer_link.limit_capacity(answer.capacity)
        self._reply(answer.generated, anonymous=answer.kind == "anonymous")
        self.remember_ends(answer.generated)
        if self.outgoing or address is not None:
            self.bind(address, answer)
            if answer.kind == "source":
                assert isinstance(link, SourceLink)
                link.produce(answer.settled)
        elif answer.kind == "heartbeat":
            self.start_flow(PeerMessageHandler(HeartbeatWatch(self).beat))
        else:
            self.start_flow(self.anonymous_handler())
        self.forget_attach()

    def refused(self, condition: str | None, description: str | None, *, termini: bool = False) -> None:
        """Refuse the link: send an attach with a null terminus, then a detach (2.6.3). termini: send both termini
        instead, without addresses (security.md P-40)."""
        self.advance("refuse")
        if termini:
            self._send_reply(NO_SOURCE, NO_TARGET)
        else:
            self._reply(None, refuse=True)
        self.link.decided()
        self.link.close_with(condition, description)
        self.forget_attach()

    def detached(self) -> bool:
        """Handle the end of the link, which may be undecided or have a decision that was not executed yet."""
        answer = self.client.links.answers.forget(self)
        if answer is not None and isinstance(answer, pair_messages.Paired):
            self.client.worker.routed.unwanted(answer)
        return LinkRecord.detached(self)  # for each link: `super` costs more

    def _reply(self, generated: str | None, *, refuse: bool = False, anonymous: bool = False) -> None:
        assert self.source is not None
        assert self.target is not None
        if self.outgoing:
            source = NULL if refuse else self.source.reply(generated)
            target = self.target.reply()
        else:
            source = self.source.reply()
            target = NULL if refuse else self.target.empty(TARGET) if anonymous else self.target.reply(generated)
        self._send_reply(source, target)

    def _send_reply(self, source: bytes, target: bytes) -> None:
        link = self.link
        limit = 0 if self.outgoing else self.client.message_limit
        link.session.send_attach(attach_reply(self.items, link.handle, self.outgoing, source, target, limit))

    def forget_attach(self) -> None:
        """Drop the fields of the attach."""
        self.items = []
        self.source = self.target = None


class RefusedLink(RequestedLink):
    """Link of another router for which the worker has no room. Only the link is refused; a client's connection would
    end."""

    __slots__ = ()

    def __init__(self, client: "ConnectionHandler", session: Session, items: list[bytes]) -> None:
        super().__init__(client, 0, items)
        session.add_link(self.link, decode_one(items[NAME]), decode_one(items[HANDLE]), not self.outgoing)
        self.refused(RESOURCE_LIMIT, "this worker has no room for another link")

    def detached(self) -> bool:
        self.advance("end")
        self.link.context = None
        return False
