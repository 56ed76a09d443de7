"""Routed links: pairs of links that are end to end (brokers-and-edge.md, chapter 5), and what is said to make them.

The supervisor decides that a client's attach is for a container. The container's worker gets `pair` and makes a link
without attaching it (`pairable`); the client's worker gets `paired`, makes its link a routed one and sends the attach
through the pair. From then on both ends tell each other everything, in order, and the supervisor only what it shows.
In the place of the container, or of the client, there may be a router: the link goes over several routers.
"""

from typing import TYPE_CHECKING, Any, Final

from router.amqp.codec import (
    decode_one,
    encode_described,
    encode_error,
    encode_list,
    encode_string,
    encode_uint,
    fields,
)
from router.amqp.routed_in import RoutedIn
from router.amqp.routed_link import Told
from router.amqp.routed_out import RoutedOut
from router.routing.far_end import PortEnd

from router.amqp.errors import RESOURCE_LIMIT, AmqpError
from router.ipc import control
from workers.link_way import PROPERTIES, leave_out, padded, with_node_address, with_way
from workers.links import (
    HANDLE,
    INCOMPLETE,
    INITIAL_COUNT,
    NAME,
    ROLE,
    SOURCE_FIELD,
    TARGET_FIELD,
    UNSETTLED,
    LinkRecord,
    log_end,
)
from workers.terminus import ADDRESS, COORDINATOR, EXPIRY, NODE_PROPERTIES, NULL, SESSION_END, TRUE, Terminus

if TYPE_CHECKING:
    from workers.client import Client
    from workers.worker import Worker

LOST_CONDITION: Final = "qd:routed-link-lost"
LOST_DESCRIPTION: Final = "Connectivity to the peer container was lost"
TOO_LONG: Final = "the attach is too long for a frame of the next connection"
FRAME_HEAD: Final = 32  # octets of a frame around an encoded attach, at most


class RoutedEnd:
    """One link of a pair. Owner: its client connection."""

    __slots__ = (
        "address",
        "client",
        "ends",
        "gone",
        "identity",
        "inbound",
        "items",
        "link",
        "number",
        "order",
        "outgoing",
        "pair",
        "plain",
        "slot",
    )

    def __init__(
        self, client: "Client", number: int, link: Any, slot: Any, outgoing: bool, order: control.Message, inbound: bool
    ) -> None:
        """order: `pair` or `paired` of the supervisor. inbound: the peer attached the link, not the router."""
        self.client = client
        self.number = number
        self.link = link
        self.slot = slot
        self.outgoing = outgoing
        self.order = order
        self.inbound = inbound
        self.identity: int = order["identity"]
        self.pair: int = order["pair"]
        self.plain = order.get("plain") or order.get("route") == []  # the peer is a router that is not ours
        self.items: list[bytes] = []  # of the attach of our peer, until it is answered
        self.address: int | None = None
        self.ends: tuple[str, str] | None = None
        self.gone = False
        link.context = self

    # -- the engine's events ------------------------------------------------------------------------------------------

    def heard(self, what: int, body: bytes) -> None:
        """The other end passes on an attach, or the answer to it."""
        items = fields(body)
        session = self.link.session
        if what == Told.TOLD_ATTACH:
            items[NAME] = encode_string(self.link.name)
            self._rename(items, self.order["address"])
            items[PROPERTIES] = with_way(items[PROPERTIES], self.order.get("route") or [])
        else:
            items[NAME] = self.items[NAME]
        items[HANDLE] = encode_uint(self.link.handle)
        if self.plain:
            leave_out(items)
        if not self._fit(items):
            self._too_long()
            return
        if self.outgoing:
            self._count(items)
        session.send_attach(items)
        self.link.attach_written()
        if what == Told.TOLD_ANSWER:
            self._up()

    def answered(self, items: list[bytes]) -> None:
        """The container's answer to our attach. Raises RemoteError: its own connection ends, not the client's."""
        check(items)
        items = padded(items)
        for field in (SOURCE_FIELD, TARGET_FIELD):
            Terminus(items[field])
        if not self.outgoing:
            self._count(items)
        remove, put = self.order["answer"]
        if remove or put:
            self._edit_answer(items, remove, put)
        self.link.say(Told.TOLD_ANSWER, encode_list(items))
        self._up()

    def null_answer(self) -> bool:
        """The link ends before it was answered: a client gets an attach first, without the terminus it asked for."""
        if not self.inbound:
            return False
        items = padded(self.items[: TARGET_FIELD + 1])
        items[SOURCE_FIELD if self.outgoing else TARGET_FIELD] = NULL
        items[HANDLE] = encode_uint(self.link.handle)
        items[ROLE] = b"\x42" if self.outgoing else b"\x41"
        items[INITIAL_COUNT] = encode_uint(0)
        self.link.session.send_attach(items)
        return True

    def detached(self) -> bool:
        """The link is gone."""
        self.gone = True
        worker = self.client.worker
        last = log_end(self)
        if not self.inbound:
            self.client.routed_sessions.give_back(self.order["group"], self.link.session)
        worker.routed.forget(self)
        worker.release_slot(self.slot)
        self.link.context = None
        return self.client.forget(self, last, confirm=False)

    # -- attaches -----------------------------------------------------------------------------------------------------

    def _up(self) -> None:
        self.items = []
        self.client.worker.control.tell({"t": control.ROUTEDUP, "conn": self.client.number, "link": self.number})

    def _count(self, items: list[bytes]) -> None:
        """Deliveries are counted from where the sender begins."""
        count = decode_one(items[INITIAL_COUNT])
        self.link.count_from(count if isinstance(count, int) and 0 <= count <= 0xFFFFFFFF else 0)

    def _node(self) -> int:
        """The field of the terminus that names the node."""
        return TARGET_FIELD if self.outgoing else SOURCE_FIELD

    def _rename(self, items: list[bytes], address: str | None) -> None:
        """Fill in what a container may rely on, and the address it is to see."""
        for field in (SOURCE_FIELD, TARGET_FIELD):
            terminus = Terminus(items[field])
            if not terminus.code or terminus.code == COORDINATOR:
                continue
            values = list(terminus.items)
            if len(values) > EXPIRY and values[EXPIRY] == NULL:
                values[EXPIRY] = SESSION_END
            if field == self._node() and address is not None:
                if terminus.dynamic:
                    values[NODE_PROPERTIES] = with_node_address(values[NODE_PROPERTIES], address)
                else:
                    values += [NULL] * (ADDRESS + 1 - len(values))
                    values[ADDRESS] = encode_string(address)
            items[field] = encode_described(terminus.code, values)

    def _edit_answer(self, items: list[bytes], remove: str, put: str) -> None:
        """The address as the client is to see it: without `remove` at its front, with `put`."""
        terminus = Terminus(items[self._node()])
        if terminus.address is not None:
            values = list(terminus.items)
            values[ADDRESS] = encode_string(put + terminus.address.removeprefix(remove))
            items[self._node()] = encode_described(terminus.code, values)

    def _fit(self, items: list[bytes]) -> bool:
        """An attach that is too long for its peer's frames leaves out the deliveries to be resumed. False: that is not
        enough."""
        most: int = self.client.connection.remote_max_frame - FRAME_HEAD
        if sum(map(len, items)) > most and items[UNSETTLED] != NULL:
            items[UNSETTLED] = NULL
            items[INCOMPLETE] = TRUE
        return sum(map(len, items)) <= most

    def _too_long(self) -> None:
        """An attach cannot go on: the link ends on both sides."""
        if not self.inbound:
            self.link.say(Told.TOLD_DETACH, b"\x01" + encode_error(RESOURCE_LIMIT, TOO_LONG))
        self.link.close_with(RESOURCE_LIMIT, TOO_LONG)


def check(items: list[bytes]) -> None:
    """Fields that go to another peer are well formed, or this raises RemoteError."""
    for item in items:
        decode_one(item)


class RoutedEnds:
    """All routed links of a worker. Owner: the worker."""

    __slots__ = ("_by_pair", "_worker", "by_slot")

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._by_pair: dict[int, RoutedEnd] = {}  # those that the router attaches
        self.by_slot: dict[int, Any] = {}  # slot index -> RoutedLink, for ports

    def pair(self, order: control.Message, raw: bytes | None) -> None:
        """Make the container's link of a pair; it is attached when the client's worker says what with."""
        client = self._worker.clients.get(order["conn"])
        try:
            if client is None or client.connection.ended:
                self._unpairable(order, LOST_CONDITION, LOST_DESCRIPTION)
            else:
                self._make(client, order)
        except AmqpError as error:
            self._unpairable(order, error.condition, error.description)

    def _make(self, client: "Client", order: control.Message) -> None:
        worker = self._worker
        outgoing: bool = order["outgoing"]
        kind = RoutedOut if outgoing else RoutedIn
        capacity = 0 if outgoing else client.offer["linkCapacity"]
        link = kind(capacity=capacity, far_survives=order["survives"])
        group = order["group"]
        session = client.routed_sessions.take(group, client.begin_routed_session)
        if session is None:
            client.wait_for_session(order)
            return
        name = session.free_name(order["name"], not outgoing)
        try:
            slot = worker.enter_link(
                session, link, name, None, incoming=not outgoing, container=client.route_container
            )
        except AmqpError:
            client.routed_sessions.give_back(group, session)
            raise
        end = RoutedEnd(client, client.next_link, link, slot, outgoing, order, False)
        client.next_link += 1
        client.links[end.number] = end
        self._by_pair[end.pair] = end
        self.by_slot[slot.index] = link
        worker.control.tell(
            {
                "t": control.PAIRABLE,
                "conn": client.number,
                "pair": end.pair,
                "link": end.number,
                "slot": slot.index,
                "gen": slot.generation,
            }
        )
        if order["worker"] != worker.setup.worker and not self._use_port(link, slot, order):
            link.lose()

    def _use_port(self, link: Any, slot: Any, order: control.Message) -> bool:
        """Tie a link to its other end on another worker. False: that worker is gone."""
        port = self._worker.ports[order["worker"]]
        if port is None or not port.alive or (port.generation & 0xFFF) != order["gen"] >> 20:
            return False
        link.use_far(PortEnd(port, order["slot"], order["gen"], slot.index, slot.generation))
        return True

    def _unpairable(self, order: control.Message, condition: str, description: str) -> None:
        self._worker.control.tell(
            {"t": control.UNPAIRABLE, "pair": order["pair"], "condition": condition, "description": description}
        )

    def unwanted(self, order: control.Message) -> None:
        """The client's link of a pair is gone."""
        self._worker.control.tell({"t": control.UNPAIRED, "pair": order["pair"]})

    def paired(self, record: LinkRecord, order: control.Message) -> None:
        """The container's link is there: the client's becomes the other end, and its attach goes there."""
        worker, client = self._worker, record.client
        try:
            check(record.items)
        except AmqpError as error:
            self.unwanted(order)
            client.connection.fail(error)
            return
        old = record.link
        kind = RoutedOut if record.outgoing else RoutedIn
        link = kind(capacity=0 if record.outgoing else client.offer["linkCapacity"], survives=order["survives"])
        old.session.replace_link(old, link)
        old.context = None
        worker.links.pop(record.slot.index, None)
        worker.slots.adopt(record.slot, link)
        end = RoutedEnd(client, record.number, link, record.slot, record.outgoing, order, True)
        end.items = padded(record.items)
        client.links[end.number] = end
        self.by_slot[end.slot.index] = link
        if order["worker"] == worker.setup.worker:
            other = self.by_slot.get(order["slot"])
            there = other is not None and other.pairable == order["gen"]
            if there:
                link.pair(other)
        else:
            there = self._use_port(link, end.slot, order)
        if there:
            if not end.outgoing:
                end._count(end.items)
            link.say(Told.TOLD_ATTACH, encode_list(end.items))
            link.take_over(old)
        else:
            link.lose()

    def unpair(self, order: control.Message, raw: bytes | None) -> None:
        """The client's link of a pair will never come."""
        end = self._by_pair.get(order["pair"])
        if end is not None:
            end.link.lose()
            return
        for client in self._worker.clients.values():
            client.wait_no_more("pair", order["pair"])

    def client_of(self, pair: int) -> "Client | None":
        """The connection of the link that the router attaches for a pair."""
        end = self._by_pair.get(pair)
        return None if end is None else end.client

    def forget(self, end: RoutedEnd) -> None:
        self.by_slot.pop(end.slot.index, None)
        if self._by_pair.get(end.pair) is end:
            del self._by_pair[end.pair]
