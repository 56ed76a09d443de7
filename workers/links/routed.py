"""Routed links: end-to-end pairs of links (brokers-and-edge.md 5), and how they are created.

The supervisor decides that a client's attach is routed to a container. The container's worker receives `pair` and
creates a link without attaching it (`pairable`). The client's worker receives `paired`, turns its link into a routed
one, and sends the attach through the pair. From then on the two ends relay everything, in order; the supervisor gets
only what management shows. The container or the client may be another router; the link then passes several routers.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.amqp.codec import (
    decode_one,
    encode_described,
    encode_error,
    encode_list,
    encode_string,
    encode_uint,
    fields,
)
from sluice.router.amqp.errors import RESOURCE_LIMIT, AmqpError
from sluice.router.control import pair_messages
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import ErrorText
from sluice.router.routed.consumer_end import ConsumerEnd
from sluice.router.routed.errors import LINK_LOST
from sluice.router.routed.producer_end import ProducerEnd
from sluice.router.routed.remote_end import RemoteEnd
from sluice.router.routed.routed_link import LinkEvent, RoutedLink
from sluice.workers.links.attach import (
    HANDLE,
    INCOMPLETE,
    INITIAL_COUNT,
    NAME,
    PROPERTIES,
    RECEIVER,
    ROLE,
    SENDER,
    SOURCE_FIELD,
    TARGET_FIELD,
    UNSETTLED,
    initial_count,
    padded,
)
from sluice.workers.links.attach_fields import leave_out, with_node_address, with_route
from sluice.workers.links.encoded import NULL, SESSION_END, TRUE
from sluice.workers.links.initiated_link import described
from sluice.workers.links.record import describe_end
from sluice.workers.links.requested_link import RequestedLink
from sluice.workers.links.terminus import (
    ADDRESS,
    COORDINATOR,
    EXPIRY,
    NODE_PROPERTIES,
    PeerTerminus,
)
from sluice.workers.slots import Slot

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.worker import WorkerRuntime

TOO_LONG: Final = "the attach is too long for a frame at the other end of the link route"
NOT_READ: Final = "the peer at the other end of the link route does not read"
FRAME_HEAD: Final = 32  # octets of a frame around an encoded attach, at most


class RoutedEnd:
    """Routed link, one end of a pair. Owner: its connection handler."""

    __slots__ = (
        "address",
        "client",
        "ends",
        "error",
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
        self,
        client: "ConnectionHandler",
        number: int,
        link: RoutedLink,
        slot: Slot,
        outgoing: bool,
        order: pair_messages.Pair | pair_messages.Paired,
        inbound: bool,
    ) -> None:
        """Create the end. order: `pair` or `paired` of the supervisor. inbound: the peer attached the link, not the
        router."""
        self.client = client
        self.number = number
        self.link = link
        self.slot = slot
        self.outgoing = outgoing
        self.order = order
        self.inbound = inbound
        self.identity = order.identity
        self.pair = order.pair
        # True if the peer is a router of 1.19.
        self.plain = order.plain if isinstance(order, pair_messages.Paired) else order.route == []
        self.items: list[bytes] = []  # of the peer's attach, until it is answered
        self.address: int | None = None
        self.ends: tuple[str, str] | None = None
        self.error: ErrorText | None = None  # error with which the container has ended a link of the router
        link.context = self

    @property
    def _pair_order(self) -> pair_messages.Pair:
        """Order of a link that the router attaches."""
        assert isinstance(self.order, pair_messages.Pair)
        return self.order

    # -- events of the engine -----------------------------------------------------------------------------------------

    def on_event(self, what: int, body: bytes) -> None:
        """Send the attach, or the answer to it, that the other end relays."""
        if self.link.unsent_too_much:
            self._refuse(NOT_READ)
            return
        items = fields(body)
        session = self.link.session
        if what == LinkEvent.EVENT_ATTACH:
            items[NAME] = encode_string(self.link.name)
            order = self._pair_order
            self._rename(items, order.address)
            items[PROPERTIES] = with_route(items[PROPERTIES], order.route or [])
        else:
            items[NAME] = self.items[NAME]
        items[HANDLE] = encode_uint(self.link.handle)
        if self.plain:
            leave_out(items)
        if not self._fit(items):
            self._refuse(TOO_LONG)
            return
        if self.outgoing:
            self._count(items)
        session.send_attach(items)
        self.link.attach_written()
        if what == LinkEvent.EVENT_ANSWER:
            self._up()

    def answered(self, items: list[bytes]) -> None:
        """Relay the container's answer to the attach. Raises RemoteError, which closes the container's connection, not
        the client's."""
        check(items)
        items = padded(items)
        for field in (SOURCE_FIELD, TARGET_FIELD):
            PeerTerminus(items[field])
        if not self.outgoing:
            self._count(items)
        remove, put = self._pair_order.answer
        if remove or put:
            self._edit_answer(items, remove, put)
        self.link.send(LinkEvent.EVENT_ANSWER, encode_list(items))
        self._up()

    def send_null_attach(self) -> bool:
        """Send an attach without the requested terminus to a client whose link ends before it was answered. False: not
        a client's link."""
        if not self.inbound:
            return False
        items = padded(self.items[: TARGET_FIELD + 1])
        items[SOURCE_FIELD if self.outgoing else TARGET_FIELD] = NULL
        items[HANDLE] = encode_uint(self.link.handle)
        items[ROLE] = SENDER if self.outgoing else RECEIVER
        items[INITIAL_COUNT] = encode_uint(0)
        self.link.session.send_attach(items)
        return True

    def note_session_error(self, reason: str) -> None:
        """Pass the reason for which the container has ended the session to the client."""
        if not self.inbound:
            self.error = ("", reason)
            condition, description = LINK_LOST
            self.link.report_loss(condition, f"{description}: {reason}")

    def detached(self) -> bool:
        """Handle the end of the link."""
        worker = self.client.worker
        last, line = describe_end(self)
        if not self.inbound:
            if self.link.detach_error is not None:
                self.error = described(self.link.detach_error)
            self.client.router_sessions.routed.give_back(self._pair_order.group, self.link.session)
        worker.routed.forget(self)
        worker.release_slot(self.slot)
        self.link.context = None
        return self.client.links.forget(self, last, line, confirm=False)

    # -- attaches -----------------------------------------------------------------------------------------------------

    def _up(self) -> None:
        self.items = []
        self.client.worker.control.send_event(pair_messages.RoutedUp(self.client.number, self.number))

    def _count(self, items: list[bytes]) -> None:
        """Start counting deliveries at the sender's initial delivery-count."""
        self.link.set_initial_count(initial_count(items))

    def _node(self) -> int:
        """Return the position of the terminus that names the node."""
        return TARGET_FIELD if self.outgoing else SOURCE_FIELD

    def _rename(self, items: list[bytes], address: str | None) -> None:
        """Fill in defaults for the container, and the address that it sees."""
        for field in (SOURCE_FIELD, TARGET_FIELD):
            terminus = PeerTerminus(items[field])
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
        """Rewrite the address for the client: remove the prefix `remove`, then put `put` in front."""
        terminus = PeerTerminus(items[self._node()])
        if terminus.address is not None:
            values = list(terminus.items)
            values[ADDRESS] = encode_string(put + terminus.address.removeprefix(remove))
            items[self._node()] = encode_described(terminus.code, values)

    def _fit(self, items: list[bytes]) -> bool:
        """Shorten an attach that is too long for the peer's frames, by dropping the deliveries to resume. False: it is
        still too long."""
        most = self.client.connection.remote_max_frame - FRAME_HEAD
        if sum(map(len, items)) > most and items[UNSETTLED] != NULL:
            items[UNSETTLED] = NULL
            items[INCOMPLETE] = TRUE
        return sum(map(len, items)) <= most

    def _refuse(self, reason: str) -> None:
        """End the link on both sides, because an attach or the answer to it cannot be relayed."""
        if not self.inbound:
            self.link.send(LinkEvent.EVENT_DETACH, b"\x01" + encode_error(RESOURCE_LIMIT, reason))
        self.link.close_with(RESOURCE_LIMIT, reason)


def check(items: list[bytes]) -> None:
    """Check fields that are relayed to another peer. Raises RemoteError."""
    for item in items:
        decode_one(item)


class RoutedEnds:
    """All routed links of a worker. Owner: the worker."""

    __slots__ = ("_by_pair", "_early", "_worker", "by_slot")

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._by_pair: dict[int, RoutedEnd] = {}  # links that the router attaches
        # Orders that name a worker that is not up yet in this worker's table.
        self._early: list[pair_messages.Pair | pair_messages.Paired] = []
        self.by_slot: dict[int, RoutedLink] = {}  # for ports

    def messages(self, handlers: HandlerTable[bytes | None]) -> None:
        """Register the handlers of orders about pairs."""
        handlers.on(pair_messages.Pair, lambda _, order: self.pair(order))
        handlers.on(pair_messages.Paired, lambda _, order: self._answer(order))
        handlers.on(pair_messages.Unpair, lambda _, order: self.unpair(order))

    def _answer(self, order: pair_messages.Paired) -> None:
        """Pass the answer to a client's attach on, or report that the client has gone."""
        client = self._worker.clients.get(order.conn)
        if client is not None:
            client.links.answer(order)
        else:
            self.unwanted(order)

    def pair(self, order: pair_messages.Pair) -> None:
        """Create the container's link of a pair. It is attached when the client's attach arrives."""
        client = self._worker.clients.get(order.conn)
        if self._too_early(order):
            return
        try:
            if client is None or client.connection.ended:
                self._unpairable(order, *LINK_LOST)
            else:
                self._make(client, order)
        except AmqpError as error:
            self._unpairable(order, error.condition, error.description)

    def _too_early(self, order: pair_messages.Pair | pair_messages.Paired) -> bool:
        """Keep an order whose epoch is not applied yet; True: kept. Orders and deltas use different sockets."""
        if order.epoch <= self._worker.table.epoch:
            return False
        self._early.append(order)
        return True

    def table_changed(self) -> None:
        """Execute the orders that waited for the epoch just applied."""
        if self._early:
            early, self._early = self._early, []
            for order in early:
                self._worker.on_message(order, None)

    def _make(self, client: "ConnectionHandler", order: pair_messages.Pair) -> None:
        worker = self._worker
        outgoing = order.outgoing
        kind = ConsumerEnd if outgoing else ProducerEnd
        capacity = 0 if outgoing else client.profile.link_capacity
        link = kind(capacity=capacity, remote_survives=order.survives)
        group = order.group
        session = client.router_sessions.for_routed_link(client, group)
        if session is None:
            client.router_sessions.wait(order)
            return
        name = session.free_name(order.name, not outgoing)
        try:
            slot = worker.enter_link(
                session, link, name, None, incoming=not outgoing, container=client.role.route_container
            )
        except AmqpError:
            client.router_sessions.routed.give_back(group, session)
            raise
        end = RoutedEnd(client, client.links.next_number(), link, slot, outgoing, order, False)
        client.links.by_number[end.number] = end
        self._by_pair[end.pair] = end
        self.by_slot[slot.index] = link
        worker.control.send_event(
            pair_messages.Pairable(
                conn=client.number, pair=end.pair, link=end.number, slot=slot.index, gen=slot.generation
            )
        )
        if order.worker != worker.setup.worker and not self._use_port(link, slot, order):
            link.lose()

    def _use_port(self, link: RoutedLink, slot: Slot, order: pair_messages.Pair | pair_messages.Paired) -> bool:
        """Connect a link with its other end on another worker. False: that worker has ended."""
        port = self._worker.ports[order.worker]
        if port is None or not port.alive or (port.generation & 0xFFF) != order.gen >> 20:
            return False
        link.use_remote(RemoteEnd(port, order.slot, order.gen, slot.index, slot.generation))
        return True

    def _unpairable(self, order: pair_messages.Pair, condition: str, description: str) -> None:
        self._worker.control.send_event(pair_messages.Unpairable(order.pair, condition, description))

    def unwanted(self, order: pair_messages.Paired) -> None:
        """Report that the client's link of a pair has ended."""
        self._worker.control.send_event(pair_messages.Unpaired(order.pair))

    def paired(self, record: RequestedLink, order: pair_messages.Paired) -> None:
        """Connect the client's link with the container's link, which exists now, and send the attach to it."""
        worker, client = self._worker, record.client
        if self._too_early(order):
            return
        try:
            check(record.items)
        except AmqpError as error:
            self.unwanted(order)
            client.connection.fail(error)
            return
        old = record.link
        kind = ConsumerEnd if record.outgoing else ProducerEnd
        link = kind(capacity=0 if record.outgoing else client.profile.link_capacity, survives=order.survives)
        old.session.replace_link(old, link)
        record.advance("replace")
        if not record.outgoing:
            link.limit_size(client.message_limit)
        old.context = None
        worker.leave_slot(record.slot)
        worker.slots.adopt(record.slot, link)
        end = RoutedEnd(client, record.number, link, record.slot, record.outgoing, order, True)
        end.items = padded(record.items)
        client.links.by_number[end.number] = end
        self.by_slot[end.slot.index] = link
        if order.worker == worker.setup.worker:
            other = self.by_slot.get(order.slot)
            there = other is not None and other.pairable == order.gen
            if other is not None and there:
                link.pair(other)
        else:
            there = self._use_port(link, end.slot, order)
        if there:
            if not end.outgoing:
                end._count(end.items)
            link.send(LinkEvent.EVENT_ATTACH, encode_list(end.items))
            link.take_credit_from(old)
        else:
            link.lose()

    def unpair(self, order: pair_messages.Unpair) -> None:
        """End the container's link of a pair, since the client's link will never be connected."""
        end = self._by_pair.get(order.pair)
        if end is not None:
            end.link.lose()
            return
        self._early = [early for early in self._early if early.pair != order.pair]
        for client in self._worker.clients.values():
            client.cancel_pair(order.pair)

    def client_of(self, pair: int) -> "ConnectionHandler | None":
        """Return the connection of the link that the router attaches for a pair."""
        end = self._by_pair.get(pair)
        return None if end is None else end.client

    def forget(self, end: RoutedEnd) -> None:
        self.by_slot.pop(end.slot.index, None)
        if self._by_pair.get(end.pair) is end:
            del self._by_pair[end.pair]
