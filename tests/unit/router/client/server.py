"""Small broker on the engine for client tests: queues by address, real sockets, its own thread."""

import select
import socket
import threading
import time
from collections import defaultdict, deque
from typing import Any

from sluice.router.amqp import codec, sasl
from sluice.router.amqp.session import Session
from sluice.router.client import outcome
from sluice.router.client.receiver import Receiver
from sluice.router.client.sender import Sender
from tests.unit.router.amqp.stub import NULL, RecordingHandler, attach_items

ACCEPTED = codec.encode_described(0x24, [])
NANOSECONDS = 1_000_000_000
TICK = 0.02  # seconds until the thread notices a change by its test
CREDIT = 100
COORDINATOR = 0x30
#: Stands for the address of a link to the transaction coordinator.
TRANSACTIONS = "(coordinator)"


class TwoStepPlain(sasl.Mechanism):
    """PLAIN with one password and an additional challenge."""

    def __init__(self) -> None:
        self.first: bytes | None = None

    def step(self, response: bytes) -> bytes | None:
        if self.first is None:
            self.first = response
            return b"sure?"
        self.user = "u" if (self.first, response) == (b"\0u\0secret", b"yes") else None
        return None


class BrokerConnection(RecordingHandler):
    """Connection to the broker."""

    def __init__(self, broker: "EngineBroker", transport: socket.socket) -> None:
        super().__init__(idle_ms=broker.idle_ms, max_frame=broker.max_frame)
        self.broker = broker
        self.socket = transport

    def authenticator(self) -> Any:
        return sasl.SaslServer(self.broker.mechanisms)

    def on_attach(self, session: Session, items: list[bytes]) -> Any:
        name, handle, receiver = (codec.decode_one(item) for item in items[:3])
        code, terminus = codec.described_list(items[5 if receiver else 6])
        address = TRANSACTIONS if code == COORDINATOR else codec.decode_one(terminus[0]) or "made-up"
        link = Sender(self) if receiver else Receiver(self, initial_delivery_count=codec.decode_one(items[9]))
        link.context = address
        session.add_link(link, name, handle, not receiver)
        answer = attach_items(name, link.handle, not receiver, address)
        if address in self.broker.refused:
            answer[5 if receiver else 6] = NULL
        session.send_attach(answer)
        if address in self.broker.refused:
            link.detach(True, "amqp:not-found", f"no {address}")
        elif isinstance(link, Receiver):
            link.flow(self.broker.credit)
        self.links.append(link)
        return link

    def on_delivery(self, receiver: Receiver, delivery: Any) -> None:
        super().on_delivery(receiver, delivery)
        within = outcome.decode(delivery.state)
        plain = receiver.context != TRANSACTIONS and not (
            isinstance(within, outcome.Transactional) and self.broker.takes_part
        )
        if plain:
            self.broker.queues[receiver.context].append(delivery.octets)
        state = self.broker.outcomes.get(receiver.context, ACCEPTED)
        if receiver.context == TRANSACTIONS:
            state = self.broker.coordinate(delivery.octets, state)
        elif isinstance(within, outcome.Transactional) and not plain:
            state = self.broker.take_part(within.txn_id, receiver.context, delivery.octets, state)
        if state is not None:
            receiver.settle(delivery, state, settled=not self.broker.second)
        if receiver.credit <= self.broker.credit // 2:
            receiver.flow(self.broker.credit)
        self.broker.give()

    def on_credit(self, sender: Sender) -> None:
        self.broker.give()

    def on_outcome(self, sender: Sender, delivery: Any, state: bytes, settled: bool) -> None:
        super().on_outcome(sender, delivery, state, settled)
        self.broker.heard.append((delivery.context, state))

    def on_detached(self, link: Any) -> bool:
        if not link.incoming:
            for sent in link.unsettled.values():
                self.broker.queues[link.context].append(sent.context)
        return super().on_detached(link)


class EngineBroker:
    """Broker that runs within its `with` block. Tests change its attributes before a client connects, or under
    `lock`."""

    def __init__(self, port: int = 0, **options: Any) -> None:
        self.mechanisms: dict[str, Any] = {"ANONYMOUS": sasl.Anonymous}
        self.idle_ms = 0
        self.max_frame = 16384
        self.credit = CREDIT
        self.second = False
        self.takes_part = True  # messages with a transactional state belong to their transactions
        self.refused: set[str] = set()
        self.outcomes: dict[str, bytes | None] = {}
        for name, value in options.items():
            assert hasattr(self, name)
            setattr(self, name, value)
        self.queues: dict[str, deque[bytes]] = defaultdict(deque)
        self.heard: list[tuple[bytes, bytes]] = []  # outcomes of the broker's own messages
        #: Messages of the transactions that are not discharged, by txn-id: address and message.
        self.transactions: dict[bytes, list[tuple[str, bytes]]] = {}
        self.discharged: list[tuple[bytes, bool]] = []  # txn-id and fail of each discharge
        self.declared = 0  # number of transactions so far
        self.connected = 0  # number of connections so far
        self.sides: list[BrokerConnection] = []
        self.faults: list[BaseException] = []
        self.lock = threading.Lock()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    def __enter__(self) -> "EngineBroker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for side in self.sides:
            side.socket.close()
        self._listener.close()
        assert not self.faults

    def give(self) -> None:
        """Send queued messages to receivers with credit."""
        for side in self.sides:
            for link in side.links:
                while not link.incoming and not link.ended and link.credit > link.queued and self.queues[link.context]:
                    octets = self.queues[link.context].popleft()
                    link.send(octets, context=octets)

    def coordinate(self, octets: bytes, state: bytes | None) -> bytes | None:
        """Declare or discharge a transaction, as a message to the coordinator requests. Return the outcome.

        state: outcome that a test has chosen for a discharge. Transactions with another one are rolled back; None: the
        coordinator discharges the transaction, and does not answer.
        """
        code, fields = codec.described_list(octets[3:])
        if code == 0x31:
            self.declared += 1
            txn_id = b"t%d" % self.declared
            self.transactions[txn_id] = []
            return outcome.encode(outcome.Declared(txn_id))
        assert code == 0x32
        txn_id, fail = (codec.decode_one(field) for field in fields)
        self.discharged.append((txn_id, fail))
        messages = self.transactions.pop(txn_id, None)
        if messages is None:
            return outcome.encode(outcome.Rejected("amqp:transaction:unknown-id", "no such transaction"))
        if fail:
            return ACCEPTED
        if state is None or state == ACCEPTED:
            for address, message in messages:
                self.queues[address].append(message)
        return state

    def take_part(self, txn_id: bytes, address: str, message: bytes, state: bytes | None) -> bytes | None:
        """Keep a message until its transaction is discharged. Return its transactional state. state: its outcome."""
        if state == ACCEPTED:
            self.transactions[txn_id].append((address, message))
        if state is None:
            return None
        how: Any = outcome.decode(state)
        return outcome.encode(outcome.Transactional(txn_id, how))

    def cut(self) -> None:
        """Close all sockets without an AMQP close."""
        with self.lock:
            for side in self.sides:
                side.connection.transport_lost()
                side.socket.close()
            self.sides.clear()

    def say(self, condition: str, description: str) -> None:
        """Close all connections with an error."""
        with self.lock:
            for side in self.sides:
                side.connection.close(condition, description)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                with self.lock:
                    sockets = [self._listener, *(side.socket for side in self.sides)]
                readable = select.select(sockets, [], [], TICK)[0]
                with self.lock:
                    self._step(readable)
        except BaseException as fault:
            self.faults.append(fault)
            raise

    def _step(self, readable: list[socket.socket]) -> None:
        if self._listener in readable:
            self.sides.append(BrokerConnection(self, self._listener.accept()[0]))
            self.connected += 1
        for side in list(self.sides):
            side.scheduler.set_time(time.monotonic_ns())
            if side.socket in readable:
                octets = side.socket.recv(1 << 20)
                if octets:
                    side.feed(octets)
                    while side.scheduler.go_on():
                        side.feed(b"")
                else:
                    side.connection.transport_lost()
            side.connection.tick(side.scheduler.now)
        for side in list(self.sides):
            while out := side.connection.take_output():
                side.connection.last_sent = side.scheduler.now
                try:
                    side.socket.sendall(out)
                except OSError:
                    side.connection.transport_lost()
                    break
            if side.connection.finished:
                side.socket.close()
                self.sides.remove(side)
                side.connection.release()
