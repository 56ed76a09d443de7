"""Links of clients: from the attach, through the supervisor's decision, to the engine's link and its route."""

from typing import TYPE_CHECKING, Any, Final

from router.amqp.codec import decode_one, encode_ubyte, encode_uint, encode_ulong
from router.amqp.incoming_link import IncomingLink
from router.amqp.outgoing_link import OutgoingLink
from router.amqp.session import Session
from router.amqp.source_link import SourceLink
from router.routing.routes import AnonymousRoute, TargetedRoute

from router.amqp.errors import INVALID_FIELD, RESOURCE_LIMIT, RemoteError
from router.ipc import control
from router.log import INFO
from workers.link_way import PROPERTIES, way_of
from workers.terminus import NULL, TARGET, Terminus

if TYPE_CHECKING:
    from workers.client import Client
    from workers.routed import RoutedEnd

(
    NAME, HANDLE, ROLE, SND_MODE, RCV_MODE, SOURCE_FIELD, TARGET_FIELD, UNSETTLED, INCOMPLETE, INITIAL_COUNT,
) = range(10)  # fmt: skip
SENDER: Final = b"\x42"  # role false: whoever says so sends
RECEIVER: Final = b"\x41"
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_SECOND: Final = 1

# Counters of a link's slot in the line about its end, as 1.19 names them there.
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

INTER_ROUTER: Final = "inter-router"
IN: Final = "in"
OUT: Final = "out"


class LinkRecord:
    """A link as this worker and the supervisor know it. Owner: the client connection."""

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

    def __init__(self, client: "Client", number: int, session: Session, items: list[bytes]) -> None:
        """An attach has come: make the engine's link and ask the supervisor. Raises RemoteError."""
        self._begin(client, number, items)
        name, handle = decode_one(items[NAME]), decode_one(items[HANDLE])
        self.slot = client.worker.enter_link(
            session, self.link, name, handle, incoming=not self.outgoing, container=client.route_container
        )
        client.worker.control.tell(self._question())

    def _begin(self, client: "Client", number: int, items: list[bytes]) -> None:
        items = items + [NULL] * (INITIAL_COUNT + 1 - len(items))
        self.client = client
        self.number = number
        self.items = items
        self.address: int | None = None
        self.route: Any = None
        self.gone = False
        self.identity = 0  # in the log, once attached
        self.ends: tuple[str, str] | None = None  # addresses of source and target, where messages are logged
        self.outgoing = decode_one(items[ROLE]) is True
        self.source: Terminus | None = Terminus(items[SOURCE_FIELD])
        self.target: Terminus | None = Terminus(items[TARGET_FIELD])
        offer = client.offer
        if self.outgoing:
            kind = SourceLink if client.worker.router["testHooks"] else OutgoingLink
            self.link = kind(
                capacity=offer["linkCapacity"],
                settles=self._mode(SND_MODE) == SND_SETTLED,
                annotations=not offer["stripAnnotationsOut"],
            )
        else:
            count = decode_one(items[INITIAL_COUNT])
            if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 0xFFFFFFFF:
                count = 0
            self.link = IncomingLink(capacity=offer["linkCapacity"], initial_delivery_count=count)
        self.link.context = self

    def _mode(self, index: int) -> int:
        value = decode_one(self.items[index])
        return value if isinstance(value, int) and 0 <= value <= SND_MIXED else 0 if index == RCV_MODE else SND_MIXED

    def _question(self) -> control.Message:
        assert self.source is not None
        assert self.target is not None
        terminus = self.source if self.outgoing else self.target
        question = {
            "t": control.ATTACH,
            "conn": self.client.number,
            "link": self.number,
            "slot": self.slot.index,
            "gen": self.slot.generation,
            "dir": OUT if self.outgoing else IN,
            "name": self.link.name,
            "address": terminus.address,
            "dynamic": terminus.dynamic,
            "dynamic_address": terminus.dynamic_address,
            "caps": [terminus.capabilities, terminus.array],
            "coordinator": terminus.coordinator,
            "expiry": terminus.expiry,
            "timeout": terminus.timeout,
            "tenant": self.client.tenant,
            "channel": self.link.session.local_channel,
            "text": f"source={self.source} target={self.target}",
        }
        if self.client.offer["role"] == INTER_ROUTER and len(self.items) > PROPERTIES:
            way = way_of(self.items[PROPERTIES])
            if way:
                question["route"] = way
        return question

    # -- the decision -------------------------------------------------------------------------------------------------

    def attached(self, answer: control.Message) -> None:
        """Yes: reply, and let deliveries flow."""
        worker = self.client.worker
        link = self.link
        address = None
        self.identity = answer["identity"]
        if answer["kind"] == "address":
            address = worker.table.get(answer["addr"])
            self.address = answer["addr"]
        self._reply(answer.get("generated"), anonymous=address is None)
        self._remember_ends(answer.get("generated"))
        if self.outgoing or address is not None:
            self._bind(address, answer)
            if answer["kind"] == "source":
                link.produce(answer["settled"])
        else:
            self._route(
                AnonymousRoute(
                    worker.table,
                    honour=not self.client.offer["stripAnnotationsIn"],
                    tenant=self.client.tenant,
                    container=self.client.route_container,
                )
            )
            link.decided()
            link.set_flowing(True)
        self._forget_attach()

    def _bind(self, address: Any, answer: control.Message) -> None:
        """Let deliveries flow, to or from an address (None: from any)."""
        link, client = self.link, self.client
        if self.outgoing:
            link.decided()
            return
        self._route(
            TargetedRoute(
                client.worker.table,
                address,
                to=answer.get("to"),
                phase=answer.get("phase") or 0,
                honour=not client.offer["stripAnnotationsIn"],
                tenant=client.tenant,
                from_fallback=answer.get("fallback") is False,
                container=client.route_container,
            )
        )
        link.decided()
        client.worker.table.bind_producer(address, link, answer.get("fallback") is not False)

    def _remember_ends(self, generated: str | None) -> None:
        if self.client.components:
            source, target = (end.address or "" for end in (self.source, self.target) if end is not None)
            if generated:
                source, target = (generated, target) if self.outgoing else (source, generated)
            self.ends = (source, target)
            self.client.worker.tracing.attached(self)

    def _route(self, route: AnonymousRoute | TargetedRoute) -> None:
        self.route = route
        self.link.use(route)

    def _forget_attach(self) -> None:
        """An idle link keeps nothing of its attach."""
        self.items = []
        self.source = self.target = None

    def rebind(self, address: Any) -> None:
        """The table was replaced."""
        self.address = address.id
        self.route.rebind(address, self.link)

    def confirmed(self) -> None:
        """No worker knows the link any more."""
        self.link.answer_detach()

    def refused(self, condition: str, description: str) -> None:
        """No: an attach whose terminus of ours is null, then a detach (2.6.3)."""
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
                encode_ulong(0),
                NULL,
                NULL,
                NULL,
            ]
        )

    def detached(self) -> bool:
        """The link is gone: nothing finds it any more.

        True: the peer's detach is to be answered when the supervisor says so: then no worker knows the consumer.
        """
        self.gone = True
        try:
            self._unbind()
            last = log_end(self)
        finally:
            self.client.worker.release_slot(self.slot)
            self.link.context = None  # it knew us, as we know it
        return self.client.forget(self, last, confirm=self.outgoing and self.client.worker.setup.workers > 1)

    def _unbind(self) -> None:
        """Nothing goes to the link any more, and no credit to its peer."""
        table = self.client.worker.table
        if self.outgoing:
            table.drop_consumer(self.slot.index, self.slot.generation)
        elif self.address is not None and (address := table.get(self.address)) is not None:
            table.unbind_producer(address, self.link)


class NoRoom(LinkRecord):
    """A link of another router for which this worker has no room. The connection stays; a client's would end."""

    __slots__ = ()

    def __init__(self, client: "Client", session: Session, items: list[bytes]) -> None:
        self._begin(client, 0, items)
        session.add_link(self.link, decode_one(items[NAME]), decode_one(items[HANDLE]), not self.outgoing)
        self.refused(RESOURCE_LIMIT, "this worker has no room for another link")

    def detached(self) -> bool:
        self.link.context = None
        return False


def log_end(record: "LinkRecord | RoutedEnd") -> int:
    """Log how a link ended, with its counters (management.md 7.6); returns when it had its last delivery."""
    worker = record.client.worker
    link = record.link
    counters = worker.region.link_counters(worker.setup.worker, record.slot.index)
    assert counters is not None
    if record.identity and worker.log.enabled("ROUTER_CORE", INFO):
        how = "lost" if link.session.ended else "closed" if link.answer_closed else "detached"
        figures = " ".join(f"{short}={counters[name]}" for short, name in FIGURES)
        blocked = "yes" if counters["blocked"] else "no"
        worker.tell_log(
            "info",
            "ROUTER_CORE",
            f"[C{record.client.number}][L{record.identity}] Link {how}: {figures} blocked={blocked}",
        )
    last: int = counters["last_delivery"]
    return last


def check_attach(items: list[bytes]) -> None:
    """Fields that the engine does not look at. Raises RemoteError."""
    for index, name in ((SND_MODE, "snd-settle-mode"), (RCV_MODE, "rcv-settle-mode")):
        value = decode_one(items[index]) if index < len(items) else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value > SND_MIXED):
            raise RemoteError("link", INVALID_FIELD, f"attach: {name} is not valid")
