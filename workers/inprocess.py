"""Messages to and from the router itself, relayed between clients and the supervisor and bounded in both directions.

routing-semantics.md 10.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.names import CONTROL_KEY
from sluice.router.delivery.internal_producer import InternalProducer
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.delivery_link import DeliveryLink
from sluice.router.links.pause import RouterPause
from sluice.router.links.producer_link import ProducerLink

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.worker import WorkerRuntime

# A connection with this many messages that the supervisor has not handled is not read until it has handled half of
# them.
CONNECTION_MESSAGES: Final = 32
# Octets of unhandled messages of all connections. At or above this, any connection that sends another message is
# paused likewise.
HELD_OCTETS: Final = 4 << 20
# Octets above which messages are released; one read of each connection may still bring some.
MOST_OCTETS: Final = 4 * HELD_OCTETS
MESSAGE_OVERHEAD: Final = 512  # octets that each message counts in addition to its own
# Unhandled messages above which further ones from another router are released. Connections to routers must be read, so
# they are not paused.
RELAYED_MESSAGES: Final = 1000
# The supervisor is notified of forwarded octets after CONFIRM_MS, or earlier if there are CONFIRM_OCTETS. It waits for
# that only when far more octets are on their way.
CONFIRM_MS: Final = 100
CONFIRM_OCTETS: Final = 256 << 10
# Octets of unhandled control messages of one neighbour above which its connection is not read.
CONTROL_OCTETS: Final = 16 << 20


class InProcessRelay:
    """Relay of messages to and from the router itself. Owner: the worker."""

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._origin = InternalProducer(worker.loop.scheduler)
        self._octets = 0  # octets sent to the supervisor and not acknowledged
        self._messages: dict[int, int] = {}  # unacknowledged messages by connection
        self._paused: dict[int, ConnectionHandler] = {}
        self._control: dict[int, int] = {}  # octets of unacknowledged control messages, by connection
        self._early: deque[tuple[control.Send, bytes]] = deque()  # messages that wait for an epoch
        self._forwarded = 0  # forwarded octets that the supervisor was not notified of

    def messages(self, handlers: HandlerTable[bytes | None]) -> None:
        """Register the handlers of orders about messages of the router itself."""
        handlers.on(control.Send, self._on_send)
        handlers.on(control.Control, self._on_control)
        handlers.on(control.Taken, self._on_taken)

    def _on_send(self, octets: bytes | None, order: control.Send) -> None:
        assert octets is not None
        self.send(order, octets)

    def _on_control(self, octets: bytes | None, order: control.Control) -> None:
        assert octets is not None
        self.send_control(order, octets)

    def _on_taken(self, octets: bytes | None, order: control.Taken) -> None:
        del octets
        self.taken(order.counts)
        self.control_taken(order.control)

    # -- messages to the router itself --------------------------------------------------------------------------------

    def accept(self, link: ProducerLink, key: str, octets: bytes) -> bool:
        """Pass a client's message for the in-process address `key` to the supervisor. False: refused, because the
        supervisor is behind."""
        client = link.context.client
        number = client.number
        if key == CONTROL_KEY:
            self._accept_control(client, octets)
            return True
        if self._octets > MOST_OCTETS:
            return False
        if client.role.relays and self._messages.get(number, 0) >= RELAYED_MESSAGES:
            return False
        self._octets += len(octets) + MESSAGE_OVERHEAD
        messages = self._messages[number] = self._messages.get(number, 0) + 1
        self._worker.control.send_event(control.Local(key, number), octets)
        if not client.role.relays and (messages >= CONNECTION_MESSAGES or self._octets >= HELD_OCTETS):
            client.connection.pause(RouterPause.PAUSE_LOCAL)
            self._paused[number] = client
        return True

    def accept_service(self, link: DeliveryLink, key: str, octets: bytes) -> bool:
        """Pass a message of the other router, from an edge connection's link for the supervisor, to it. False: the
        supervisor is behind."""
        if self._octets > MOST_OCTETS:
            return False
        number = link.context.client.number
        self._octets += len(octets) + MESSAGE_OVERHEAD
        self._messages[number] = self._messages.get(number, 0) + 1
        self._worker.control.send_event(control.Local(key, number), octets)
        return True

    def taken(self, counts: list[control.Count]) -> None:
        """Note messages that the supervisor has handled, and resume connections. counts: (connection, messages,
        octets)."""
        for number, messages, octets in counts:
            self._octets -= octets + messages * MESSAGE_OVERHEAD
            left = self._messages[number] - messages
            if left:
                self._messages[number] = left
            else:
                del self._messages[number]
        if self._octets <= HELD_OCTETS // 2:
            for number, client in list(self._paused.items()):
                if self._messages.get(number, 0) <= CONNECTION_MESSAGES // 2:
                    del self._paused[number]
                    client.connection.resume(RouterPause.PAUSE_LOCAL)

    def _accept_control(self, client: "ConnectionHandler", octets: bytes) -> None:
        """Pass a control message of another router to the supervisor."""
        number = client.number
        held = self._control[number] = self._control.get(number, 0) + len(octets) + MESSAGE_OVERHEAD
        self._worker.control.send_event(control.Local(CONTROL_KEY, number), octets)
        if held >= CONTROL_OCTETS:
            client.connection.pause(RouterPause.PAUSE_CONTROL)

    def control_taken(self, counts: list[control.Count]) -> None:
        """Note control messages that the supervisor has handled. counts: (connection, messages, octets)."""
        for number, messages, octets in counts:
            held = self._control[number] - octets - messages * MESSAGE_OVERHEAD
            if held:
                self._control[number] = held
            else:
                del self._control[number]
            client = self._worker.clients.get(number)
            if held <= CONTROL_OCTETS // 2 and client is not None:
                client.connection.resume(RouterPause.PAUSE_CONTROL)

    def forget(self, number: int) -> None:
        """Forget a closed connection. Its messages are still handled."""
        self._paused.pop(number, None)

    def held(self) -> tuple[int, int, int, int]:
        """Return unacknowledged octets, connections paused for them, messages that wait for an epoch, and octets in
        flight, for tests.
        """
        return self._octets + sum(self._control.values()), len(self._paused), len(self._early), self._origin.held()[1]

    # -- between routers ----------------------------------------------------------------------------------------------

    def send_by(self, link: DeliveryLink, octets: bytes) -> None:
        """Send a message of the router itself to the peer of a link."""
        try:
            assert isinstance(link, ConsumerLink)
            self._origin.send_by(link, octets)
        except Exception as fault:  # noqa: BLE001 - error net of one message
            self._worker.report_fault("A message from the router itself was dropped after an internal error", fault)

    def send_control(self, message: control.Control, octets: bytes) -> None:
        """Send a control message to the neighbour of a connection."""
        client = self._worker.clients.get(message.conn)
        if client is not None and message.link is not None:
            record = client.links.by_number.get(message.link)
            if record is not None:
                self.send_by(record.link, octets)
        elif client is not None and client.router is not None:
            link = client.router.control_out
            if link is not None:
                self._origin.send_on(link, octets)
        self._confirm(len(octets))

    # -- messages from the router itself ------------------------------------------------------------------------------

    def send(self, message: control.Send, octets: bytes) -> None:
        """Forward a message of the router itself, as soon as the epoch that may announce its consumer was applied."""
        if self._early or self._worker.table.epoch < message.epoch:
            self._early.append((message, octets))
        else:
            self._forward(message, octets)

    def table_changed(self) -> None:
        """Forward the messages that waited for the epoch just applied."""
        while self._early and self._worker.table.epoch >= self._early[0][0].epoch:
            self._forward(*self._early.popleft())

    def _forward(self, message: control.Send, octets: bytes) -> None:
        address = self._worker.table.by_name(message.key)
        if address is not None:
            try:
                self._origin.send(address, octets)
            except Exception as fault:  # noqa: BLE001 - error net of one message
                self._worker.report_fault("A message from the router itself was dropped after an internal error", fault)
        self._confirm(len(octets))

    def _confirm(self, octets: int) -> None:
        """Count a message of the router itself that was forwarded or dropped."""
        loop = self._worker.loop
        if not self._forwarded:
            loop.call_at(loop.scheduler.now + CONFIRM_MS, self._send_forwarded)
        self._forwarded += octets
        if self._forwarded >= CONFIRM_OCTETS:
            self._send_forwarded()

    def _send_forwarded(self) -> None:
        if self._forwarded:
            self._worker.control.send_event(control.Forwarded(self._forwarded))
            self._forwarded = 0
