"""Both ends of an AMQP connection in one process, with handlers that only record events."""

from collections.abc import Callable
from typing import Any

from sluice.router.amqp import codec, sasl
from sluice.router.amqp.connection import Connection
from sluice.router.amqp.scheduler import Scheduler
from sluice.router.amqp.session import Session
from sluice.router.client.receiver import Receiver
from sluice.router.client.sender import Sender
from sluice.router.sasl.simple import anonymous_client

MS = 1_000_000  # nanoseconds
NULL = b"\x40"
SOURCE, TARGET = 0x28, 0x29
ROLE_RECEIVER = b"\x41"


def attach_items(name: str, handle: int, receiver: bool, address: str) -> list[bytes]:
    """Return the encoded fields of an attach."""
    return [
        codec.encode_string(name),
        codec.encode_uint(handle),
        b"\x41" if receiver else b"\x42",
        NULL,
        NULL,
        codec.encode_described(SOURCE, [codec.encode_string(address)]),
        codec.encode_described(TARGET, [codec.encode_string(address)]),
        *([] if receiver else [NULL, NULL, codec.encode_uint(0)]),
    ]


#: Ends of the connections that the present test has made. The engine's objects leave the lists they are in when their
#: connection ends; the debug flavour aborts if one is deallocated before.
endings: list[Callable[[], object]] = []


def end_connections() -> None:
    """End the connections of a test that is over."""
    for end in endings:
        end()
    endings.clear()


class RecordingHandler:
    """Recording handler of one end: of its connection, sessions and links. `notes` lists the events in order."""

    def __init__(self, initiator: bool = False, **options: Any) -> None:
        self.notes: list[tuple[Any, ...]] = []
        self.scheduler = Scheduler()
        self.scheduler.set_time(MS)
        self.links: list[Any] = []
        self.deliveries: list[Any] = []
        self.connection = Connection(self.scheduler, self, initiator=initiator, **options)
        self.rest = b""
        endings.append(self.lose)

    def lose(self) -> None:
        """Lose the transport."""
        self.connection.transport_lost()
        while self.scheduler.go_on():
            pass

    # -- connection handler

    def authenticator(self) -> Any:
        if self.connection.initiator:
            return sasl.SaslClient([anonymous_client("here")], "there")
        return sasl.SaslServer({"ANONYMOUS": sasl.Anonymous})

    def refusal(self, connection: Connection, sasl: bool) -> None:
        return None

    def on_authenticated(self, connection: Connection, user: str) -> None:
        self.notes.append(("authenticated", user))
        if connection.initiator:
            connection.send_open("client", hostname="there")

    def on_open(self, connection: Connection, remote: dict[str, Any]) -> None:
        self.notes.append(("open", remote["container"]))
        if not connection.initiator:
            connection.send_open("server")

    def on_begin(self, connection: Connection, channel: int, items: list[bytes]) -> Session | None:
        self.notes.append(("begin",))
        return Session(connection, channel, items, self)

    def on_too_many_sessions(self) -> None:
        self.notes.append(("too many sessions",))

    def on_session_error(self, session: Any, error: Any) -> None:
        self.notes.append(("session error", error))

    def on_closing(self, connection: Connection, error: Any) -> bool:
        return False

    def on_closed(self, connection: Connection, error: Any) -> None:
        self.notes.append(("closed", error))

    def on_fault(self, connection: Connection, fault: BaseException) -> None:
        raise fault

    # -- session handler

    def on_begun(self, session: Session) -> None:
        self.notes.append(("begun",))

    def on_wrong_transfer_count(self, session: Session, next_id: int | None, sent: int) -> None:
        self.notes.append(("miscounted", next_id, sent))

    def on_attach(self, session: Session, items: list[bytes]) -> Any:
        """Answer an attach with a link of the other role."""
        name, handle, receiver = (codec.decode_one(item) for item in items[:3])
        link = Sender(self) if receiver else Receiver(self, initial_delivery_count=codec.decode_one(items[9]))
        session.add_link(link, name, handle, not receiver)
        session.send_attach(attach_items(name, link.handle, not receiver, "server"))
        self.links.append(link)
        self.notes.append(("attach", name))
        return link

    def on_attached(self, link: Any, items: list[bytes]) -> None:
        if link.incoming:
            link.begin_at(codec.decode_one(items[9]))
        self.notes.append(("attached", link.name))

    def on_detached(self, link: Any) -> bool:
        self.notes.append(("detached", link.name, link.detach_error))
        return False

    # -- link handler

    def on_credit(self, sender: Sender) -> None:
        self.notes.append(("credit", sender.credit))

    def on_outcome(self, sender: Sender, delivery: Any, state: bytes, settled: bool) -> None:
        self.notes.append(("outcome", delivery.id, state, settled))

    def on_delivery(self, receiver: Receiver, delivery: Any) -> None:
        self.deliveries.append(delivery)
        self.notes.append(("delivery", delivery.octets))

    def on_settled(self, receiver: Receiver, delivery: Any) -> None:
        self.notes.append(("settled", delivery.id))

    def on_drained(self, receiver: Receiver) -> None:
        self.notes.append(("drained",))

    # -- octets

    def feed(self, octets: bytes) -> None:
        self.rest += octets
        self.rest = self.rest[self.connection.feed(self.rest) :]

    def attach(self, session: Session, name: str, link: Any) -> Any:
        """Attach a link from this end."""
        session.add_link(link, name, None, isinstance(link, Receiver))
        session.send_attach(attach_items(name, link.handle, isinstance(link, Receiver), name))
        self.links.append(link)
        return link


class ConnectionPair:
    """Connected client and server. pieces: splits the octets that one sends to the other."""

    def __init__(self, pieces: Callable[[bytes], list[bytes]] = lambda octets: [octets], **options: Any) -> None:
        self.pieces = pieces
        self.client = RecordingHandler(initiator=True, **options)
        self.server = RecordingHandler(**options)

    def run(self) -> None:
        """Exchange octets until neither end has output."""
        moved = True
        while moved:
            moved = False
            for one, other in ((self.client, self.server), (self.server, self.client)):
                octets = one.connection.take_output()
                for piece in self.pieces(octets) if octets else []:
                    other.feed(piece)
                moved |= bool(octets)

    def session(self) -> Session:
        """Return a session that the client has begun on the opened connection."""
        self.client.connection.start()
        self.run()
        session = Session(self.client.connection, None, None, self.client)
        self.run()
        return session
