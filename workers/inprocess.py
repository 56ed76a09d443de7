"""Messages for and from the router itself, at a worker's end: relayed to the supervisor and back, bounded both ways."""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from router.amqp.connection import Pause
from router.routing.origin import Origin

from router.ipc import control

if TYPE_CHECKING:
    from workers.client import Client
    from workers.worker import Worker

# A connection with so many messages that the supervisor has not dealt with is not read; again from half of it on.
CONNECTION_MESSAGES: Final = 32
# The same for any connection that brings a message while those of all together have so many octets.
HELD_OCTETS: Final = 4 << 20
# Beyond this, messages are released: what one read of each connection brings may still come.
MOST_OCTETS: Final = 4 * HELD_OCTETS
MESSAGE_OVERHEAD: Final = 512  # octets that a message counts besides its own
# Messages that other routers relay never stop their connection, which has to be read: beyond so many they are released.
RELAYED_MESSAGES: Final = 1000
# Control messages of one neighbour that the supervisor has not dealt with: above, its connection is not read.
CONTROL_OCTETS: Final = 16 << 20


class InProcess:
    """Owner: the worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._origin = Origin(worker.loop.scheduler)
        self._octets = 0  # told the supervisor, not taken
        self._messages: dict[int, int] = {}  # … by connection
        self._paused: dict[int, Client] = {}
        self._control: dict[int, int] = {}  # octets of control messages that were told and not taken, by connection
        self._early: deque[tuple[control.Message, bytes]] = deque()  # of an epoch that is still to come

    # -- for the router itself ----------------------------------------------------------------------------------------

    def accept(self, link: Any, key: str, octets: bytes) -> bool:
        """A client's message for the in-process address `key`. False: it cannot be taken, the supervisor is behind."""
        client = link.context.client
        number = client.number
        if key == control.CONTROL_KEY:
            self._accept_control(client, octets)
            return True
        if self._octets > MOST_OCTETS:
            return False
        if client.router is not None and self._messages.get(number, 0) >= RELAYED_MESSAGES:
            return False
        self._octets += len(octets) + MESSAGE_OVERHEAD
        messages = self._messages[number] = self._messages.get(number, 0) + 1
        self._worker.control.tell({"t": control.LOCAL, "key": key, "conn": number}, octets)
        if client.router is None and (messages >= CONNECTION_MESSAGES or self._octets >= HELD_OCTETS):
            client.connection.pause(Pause.PAUSE_LOCAL)
            self._paused[number] = client
        return True

    def taken(self, counts: list[list[int]]) -> None:
        """The supervisor has dealt with messages: [connection, messages, octets] each."""
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
                    client.connection.resume(Pause.PAUSE_LOCAL)

    def _accept_control(self, client: "Client", octets: bytes) -> None:
        """What another router says to this one."""
        number = client.number
        held = self._control[number] = self._control.get(number, 0) + len(octets) + MESSAGE_OVERHEAD
        self._worker.control.tell({"t": control.LOCAL, "key": control.CONTROL_KEY, "conn": number}, octets)
        if held >= CONTROL_OCTETS:
            client.connection.pause(Pause.PAUSE_CONTROL)

    def control_taken(self, counts: list[list[int]]) -> None:
        """The supervisor has dealt with control messages: [connection, messages, octets] each."""
        for number, messages, octets in counts:
            held = self._control[number] - octets - messages * MESSAGE_OVERHEAD
            if held:
                self._control[number] = held
            else:
                del self._control[number]
            client = self._worker.clients.get(number)
            if held <= CONTROL_OCTETS // 2 and client is not None:
                client.connection.resume(Pause.PAUSE_CONTROL)

    def forget(self, number: int) -> None:
        """A connection is gone; what it sent is still dealt with."""
        self._paused.pop(number, None)

    def held(self) -> tuple[int, int, int, int]:
        """Octets told and not taken, connections not read for that, messages of ours that wait for an epoch, and octets
        of ours on their way: for tests.
        """
        return self._octets + sum(self._control.values()), len(self._paused), len(self._early), self._origin.held()[1]

    # -- between routers ----------------------------------------------------------------------------------------------

    def send_control(self, message: control.Message, octets: bytes) -> None:
        """A control message for the neighbour at the other end of a connection."""
        client = self._worker.clients.get(message["conn"])
        if client is not None and client.router is not None:
            link = client.router.control_out
            if link is not None:
                self._origin.send_on(link, octets)
        self._worker.control.tell({"t": control.FORWARDED, "octets": len(octets)})

    # -- of the router itself -----------------------------------------------------------------------------------------

    def send(self, message: control.Message, octets: bytes) -> None:
        """A message of the router itself; its consumer may be known only by a change that has not come yet."""
        if self._early or self._worker.table.epoch < message["epoch"]:
            self._early.append((message, octets))
        else:
            self._forward(message, octets)

    def table_changed(self) -> None:
        """A change was applied: messages that waited for it go on."""
        while self._early and self._worker.table.epoch >= self._early[0][0]["epoch"]:
            self._forward(*self._early.popleft())

    def _forward(self, message: control.Message, octets: bytes) -> None:
        address = self._worker.table.by_name(message["key"])
        if address is not None:
            try:
                self._origin.send(address, octets)
            except Exception as fault:  # noqa: BLE001 - whatever it is, nobody but this message is to suffer
                self._worker.report_fault("Message of the router itself dropped", fault)
        self._worker.control.tell({"t": control.FORWARDED, "octets": len(octets)})
