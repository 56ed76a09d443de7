"""Links of clients: the attach, the supervisor's decision, the engine's link and its handler.

routing-semantics.md 4, brokers-and-edge.md LR-30.
"""

from typing import TYPE_CHECKING, Any, Final

from router.amqp.codec import decode_one, encode_described, encode_ubyte, encode_uint, encode_ulong
from router.amqp.session import Session
from router.delivery.anonymous_handler import AnonymousHandler
from router.delivery.peer_message_handler import PeerMessageHandler
from router.delivery.targeted_handler import TargetedHandler
from router.links.limited_link import LimitedConsumerLink
from router.links.producer_link import ProducerLink

from router.amqp.errors import INVALID_FIELD, RESOURCE_LIMIT, RemoteError
from router.config.roles import INTER_ROUTER
from router.control import messages as control
from router.log import INFO
from workers.connections.heartbeats import HeartbeatWatch
from workers.links.attach_fields import MAX_SIZE, PROPERTIES, route_of
from workers.links.terminus import NULL, SOURCE, TARGET, PeerTerminus

if TYPE_CHECKING:
    from router.policy.messages import MessageRules
    from workers.connections.handler import ConnectionHandler
    from workers.links.routed import RoutedEnd

(
    NAME, HANDLE, ROLE, SND_MODE, RCV_MODE, SOURCE_FIELD, TARGET_FIELD, UNSETTLED, INCOMPLETE, INITIAL_COUNT,
) = range(10)  # fmt: skip
SENDER: Final = b"\x42"  # role false: the peer sends
RECEIVER: Final = b"\x41"
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_SECOND: Final = 1
NO_SOURCE: Final = encode_described(SOURCE, [])
NO_TARGET: Final = encode_described(TARGET, [])

# Counters of a link's slot, with their names in the log line of 1.19 about the end of a link.
FIGURES: Final = (
    ("del", "deliveries"),
    ("presett", "presettled"),
    ("psdrop", "dropped_presettled"),
    ("acc", "accepted"),
    ("rej", "rejected"),
    ("rel", "released"),
    ("mod", "modified"),
    ("delay1", "delayed_1s"),
    ("delay10", "delayed_10s"),
)

IN: Final[control.Direction] = "in"
OUT: Final[control.Direction] = "out"


class LinkRecord:
    """Record of a link. Owner: the connection handler."""

    __slots__ = (
        "address",
        "client",
        "ends",
        "gone",
        "identity",
        "items",
        "link",
        "number",
        "outgoing",
        "route",
        "slot",
        "source",
        "target",
    )

    def __init__(self, client: "ConnectionHandler", number: int, session: Session, items: list[bytes]) -> None:
        """Handle an attach: create the engine's link and request a decision. Raises RemoteError."""
        self._begin(client, number, items)
        name, handle = decode_one(items[NAME]), decode_one(items[HANDLE])
        self.slot = client.worker.enter_link(
            session, self.link, name, handle, incoming=not self.outgoing, container=client.route_container
        )
        if isinstance(self.link, LimitedConsumerLink):
            self.link.limit_messages(message_limit(items))
        client.worker.control.send_event(self._question())

    def _begin(self, client: "ConnectionHandler", number: int, items: list[bytes]) -> None:
        items = items + [NULL] * (INITIAL_COUNT + 1 - len(items))
        self.client = client
        self.number = number
        self.items = items
        self.address: int | None = None
        self.route: Any = None
        self.gone = False
        self.identity = 0  # number in the log, once attached
        self.ends: tuple[str, str] | None = None  # addresses of source and target if messages are logged
        self.outgoing = decode_one(items[ROLE]) is True
        self.source: PeerTerminus | None = PeerTerminus(items[SOURCE_FIELD])
        self.target: PeerTerminus | None = PeerTerminus(items[TARGET_FIELD])
        profile = client.profile
        if self.outgoing:
            self.link = client.outgoing_link(
                profile.link_capacity, settles=self._mode(SND_MODE) == SND_SETTLED, limited=message_limit(items) > 0
            )
        else:
            # The first flow counts from the client's initial-delivery-count (routing-semantics.md A-5).
            count = decode_one(items[INITIAL_COUNT])
            if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 0xFFFFFFFF:
                count = 0
            self.link = ProducerLink(capacity=client.window, initial_delivery_count=count)
            client.set_up_incoming_link(self.link, second=self._mode(RCV_MODE) == RCV_SECOND)
        self.link.context = self

    def _mode(self, index: int) -> int:
        value = decode_one(self.items[index])
        return value if isinstance(value, int) and 0 <= value <= SND_MIXED else 0 if index == RCV_MODE else SND_MIXED

    def _question(self) -> control.Attach:
        assert self.source is not None
        assert self.target is not None
        terminus = self.source if self.outgoing else self.target
        route: list[str] = []
        if self.client.profile.role == INTER_ROUTER and len(self.items) > PROPERTIES:
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
            tenant=self.client.tenant,
            channel=self.link.session.local_channel,
            text=f"source={self.source} target={self.target}",
            route=route or None,
        )

    # -- the decision -------------------------------------------------------------------------------------------------

    def attached(self, answer: control.Attached) -> None:
        """Answer the attach and let deliveries flow, after the supervisor has accepted the link."""
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
            link.limit_capacity(answer.capacity)
        self._reply(answer.generated, anonymous=answer.kind == "anonymous")
        self._remember_ends(answer.generated)
        if self.outgoing or address is not None:
            self._bind(address, answer)
            if answer.kind == "source":
                link.produce(answer.settled)
        elif answer.kind == "heartbeat":
            self._flow(PeerMessageHandler(HeartbeatWatch(self).beat))
        else:
            self._flow(self._anonymous())
        self._forget_attach()

    def _anonymous(self) -> AnonymousHandler:
        client = self.client
        return AnonymousHandler(
            client.worker.table,
            honour=not client.profile.strip_annotations_in,
            tenant=client.tenant,
            container=client.route_container,
            rules=self._rules(),
            edge=client.edge,
            mark=client.edge_mark,
            checks=client.checks,
        )

    def _flow(self, route: AnonymousHandler | PeerMessageHandler) -> None:
        """Let deliveries arrive that do not share an address."""
        self._route(route)
        self.link.decided()
        self.link.set_flowing(True)

    def _bind(self, address: Any, answer: control.Attached) -> None:
        """Let deliveries flow, to or from an address (None: any)."""
        link, client = self.link, self.client
        if self.outgoing:
            link.decided()
            return
        self._route(
            TargetedHandler(
                client.worker.table,
                address,
                to=answer.to,
                phase=answer.phase,
                honour=not client.profile.strip_annotations_in,
                tenant=client.tenant,
                from_fallback=not answer.fallback,
                container=client.route_container,
                rules=self._rules(),
                edge=client.edge,
                mark=client.edge_mark,
                checks=client.checks,
            )
        )
        link.decided()
        client.worker.table.bind_producer(address, link, answer.fallback)

    def _rules(self) -> "MessageRules | None":
        """Return the policy rules for messages on the link; None: there are none."""
        return self.client.message_rules

    def _remember_ends(self, generated: str | None) -> None:
        if self.client.components:
            source, target = (end.address or "" for end in (self.source, self.target) if end is not None)
            if generated:
                source, target = (generated, target) if self.outgoing else (source, generated)
            self.ends = (source, target)
        self.client.worker.tracing.attached(self)

    def _route(self, route: AnonymousHandler | TargetedHandler | PeerMessageHandler) -> None:
        self.route = route
        self.link.use(route)

    def _forget_attach(self) -> None:
        """Drop the fields of the attach."""
        self.items = []
        self.source = self.target = None

    def rebind(self, address: Any) -> None:
        """Rebind the link to its address after the table was replaced."""
        self.address = address.id
        self.route.rebind(address, self.link)

    def confirmed(self) -> None:
        """Answer the peer's detach, since no worker has the link in its table any more."""
        self.link.answer_detach()

    def refused(self, condition: str | None, description: str | None, *, termini: bool = False) -> None:
        """Refuse the link: send an attach with a null terminus, then a detach (2.6.3). termini: send both termini
        instead, without addresses (security.md P-40)."""
        if termini:
            self._send_reply(NO_SOURCE, NO_TARGET)
        else:
            self._reply(None, refuse=True)
        self.link.decided()
        self.link.close_with(condition, description)
        self._forget_attach()

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
        # routing-semantics.md; brokers-and-edge.md W-4.
        self.link.session.send_attach(
            [
                self.items[NAME],
                encode_uint(self.link.handle),
                SENDER if self.outgoing else RECEIVER,
                encode_ubyte(self._mode(SND_MODE)),
                encode_ubyte(self._mode(RCV_MODE)),
                source,
                target,
                NULL,
                NULL,
                encode_uint(0),
                encode_ulong(0 if self.outgoing else self.client.message_limit),
                NULL,
                NULL,
                NULL,
            ]
        )

    def detached(self) -> bool:
        """Handle the end of the link, and drop all references to it.

        True: the peer's detach is answered when the supervisor confirms that no worker has the consumer.

        routing-semantics.md A-17.
        """
        self.gone = True
        try:
            self._unbind()
            last = log_end(self)
        finally:
            if isinstance(self.route, PeerMessageHandler):
                self.route.drop()
            self.client.worker.release_slot(self.slot)
            self.link.context = None  # breaks a reference cycle
        return self.client.forget(self, last, confirm=self.outgoing and self.client.worker.setup.workers > 1)

    def _unbind(self) -> None:
        """Send no more deliveries to the link, and no credit to its peer."""
        table = self.client.worker.table
        if self.outgoing:
            table.drop_consumer(self.slot.index, self.slot.generation)
        elif self.address is not None and (address := table.get(self.address)) is not None:
            table.unbind_producer(address, self.link)


class RefusedLink(LinkRecord):
    """Link of another router for which the worker has no room. Only the link is refused; a client's connection would
    end."""

    __slots__ = ()

    def __init__(self, client: "ConnectionHandler", session: Session, items: list[bytes]) -> None:
        self._begin(client, 0, items)
        session.add_link(self.link, decode_one(items[NAME]), decode_one(items[HANDLE]), not self.outgoing)
        self.refused(RESOURCE_LIMIT, "this worker has no room for another link")

    def detached(self) -> bool:
        self.link.context = None
        return False


def log_end(record: "LinkRecord | RoutedEnd") -> int:
    """Log how a link ended, with its counters (management.md 7.6); return the time of its last delivery."""
    worker = record.client.worker
    link = record.link
    counters = worker.region.link_counters(worker.setup.worker, record.slot.index)
    assert counters is not None
    if record.identity and worker.log.enabled("ROUTER_CORE", INFO):
        how = "lost" if link.session.ended else "closed" if link.answer_closed else "detached"
        figures = " ".join(f"{short}={counters[name]}" for short, name in FIGURES)
        blocked = "yes" if counters["blocked"] else "no"
        worker.send_log(
            "info",
            "ROUTER_CORE",
            f"[C{record.client.number}][L{record.identity}] Link {how}: {figures} blocked={blocked}",
        )
    last: int = counters["last_delivery"]
    return last


def message_limit(items: list[bytes]) -> int:
    """Return the largest message in octets that the peer of an attach accepts; 0: any size."""
    value = decode_one(items[MAX_SIZE]) if len(items) > MAX_SIZE else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 64 else 0


def check_attach(items: list[bytes]) -> None:
    """Check the fields that the engine does not read. Raises RemoteError."""
    for index, name in ((SND_MODE, "snd-settle-mode"), (RCV_MODE, "rcv-settle-mode")):
        value = decode_one(items[index]) if index < len(items) else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value > SND_MIXED):
            raise RemoteError("link", INVALID_FIELD, f"attach: {name} is not valid")
