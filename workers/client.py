"""A connection of a client: open, sessions and links, and what the supervisor is told of them."""

import socket
from typing import TYPE_CHECKING, Any, Final

from router.amqp.codec import Symbol, encode_int, encode_string, encode_symbol, encode_value
from router.amqp.connection import Connection, Pause
from router.amqp.session import Session

from router.amqp.errors import RESOURCE_LIMIT, RemoteError
from router.amqp.message_text import NONE, components
from router.amqp.sasl import Anonymous, ClientMechanism, Mechanism, SaslClient, SaslServer, anonymous
from router.amqp.sasl import plain as plain_login
from router.ipc import control
from workers.answers import Answers
from workers.links import LinkRecord, NoRoom, check_attach
from workers.own_links import OwnLink
from workers.routed_sessions import RoutedSessions
from workers.router_links import BUNDLE, BUNDLE_CHECKS, COST, VERSION, RouterLinks, announced
from workers.stream_links import SPARE_CHANNELS

if TYPE_CHECKING:
    from workers.routed import RoutedEnd
    from workers.worker import Worker

CAPABILITIES: Final = ("ANONYMOUS-RELAY", "qd.streaming-links")
MECHANISMS: Final[dict[str, type[Mechanism]]] = {"ANONYMOUS": Anonymous}
ANNOTATIONS_VERSION: Final = 1  # of router annotations, as 1.19 has them
DEFAULT_PORT: Final = "5672"
INTER_ROUTER: Final = "inter-router"
OWN_CHANNELS: Final = 1  # kept for the session of auto links


class Client:
    """The handler of one connection and its sessions. Owner: the worker."""

    __slots__ = (
        "answers",
        "components",
        "connection",
        "graceful",
        "had_consumers",
        "initiate",
        "leaving",
        "links",
        "next_link",
        "number",
        "offer",
        "own_links",
        "own_sessions",
        "routed_sessions",
        "router",
        "sasl",
        "tenant",
        "told_closed",
        "traced",
        "transport",
        "user",
        "waiting",
        "watched",
        "worker",
    )

    def __init__(
        self, worker: "Worker", number: int, offer: dict[str, Any], initiate: control.Initiate | None = None
    ) -> None:
        """number: the router's for this connection. offer: attributes of the listener or connector that it came by.
        initiate: of a connection of ours, see control.Initiate."""
        self.worker = worker
        self.number = number
        self.offer = offer
        self.initiate = initiate
        self.sasl: SaslServer | SaslClient | None = None
        self.user: str | None = None
        self.tenant: str | None = None
        self.links: dict[int, LinkRecord | RoutedEnd] = {}
        self.leaving: dict[int, LinkRecord] = {}  # detached, the supervisor is to confirm
        self.answers = Answers()
        self.next_link = 1
        self.own_links: dict[int, OwnLink] = {}  # that the router has attached, by the supervisor's reference
        self.own_sessions: list[Session] = []  # for those: one, unless the peer allows few links in a session
        self.waiting: list[control.Message] = []  # `link` and `pair` orders, until the peer has answered a begin
        self.routed_sessions = RoutedSessions()
        self.router = RouterLinks(self) if offer["role"] == INTER_ROUTER else None
        self.had_consumers = False  # when the connection ended, which other workers may still send to
        self.told_closed = False
        self.graceful = False  # closed by AMQP, after it was open
        self.traced: bool | None = None  # enableProtocolTrace of its management entity; None: it was never set
        self.watched = False  # somebody is told its frames
        self.components = components(offer.get("messageLoggingComponents", NONE))
        self.transport: Any = None
        self.connection = Connection(
            worker.loop.scheduler,
            self,
            max_frame=offer["maxFrameSize"],
            channel_max=(offer["maxSessions"] or 32768) - 1,
            idle_ms=offer["idleTimeoutSeconds"] * 1000,
            initiator=initiate is not None,
            content_limit=offer["maxBufferedMegabytes"] << 20,
        )
        handshake = offer["initialHandshakeTimeoutSeconds"]
        if handshake:
            self.connection.limit_handshake(handshake * 1000)
        worker.tracing.opened(self)

    @property
    def route_container(self) -> bool:
        """Whether the peer is one: its deliveries are counted as such."""
        return bool(self.offer["role"] == "route-container")

    # -- the engine's events ------------------------------------------------------------------------------------------

    def authenticator(self) -> SaslServer | SaslClient | None:
        if self.initiate is not None:
            self.sasl = SaslClient(self._logins(self.initiate), self.initiate["host"])
            return self.sasl
        offered = self.offer["saslMechanisms"] or list(MECHANISMS)
        self.sasl = SaslServer({name: MECHANISMS[name] for name in offered if name in MECHANISMS})
        return self.sasl

    def _logins(self, initiate: control.Initiate) -> list[ClientMechanism]:
        """How we may log in, the better way first."""
        found = []
        allowed = self.offer["saslMechanisms"]
        user, password = initiate["user"], initiate.get("password")
        if "PLAIN" in allowed and user is not None and password is not None:
            found.append(plain_login(user, password))
        if "ANONYMOUS" in allowed:
            found.append(anonymous(socket.gethostname()))
        return found

    def allow_plain(self, connection: Connection) -> bool:
        return True

    def on_authenticated(self, connection: Connection, user: str) -> None:
        if self.initiate is None:
            self.user = user
            return
        self.user = self.initiate["user"]
        self._send_open(self.initiate["host"])
        self.initiate.pop("password", None)

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        self.worker.report_fault(f"[C{self.number}] Connection ended by a fault of the router", fault)

    def on_frame(self, connection: Connection, received: bool, octets: bytes, size: int) -> None:
        self.worker.tracing.frame(self, received, octets, size)

    def on_given_up(self, link: Any, held: int, what: str) -> None:
        """At the bound of memory: the link held so many octets that nobody took."""
        self.worker.tell_log(
            "warning",
            "ROUTER_CORE",
            f"[C{self.number}] Link {link.name} held {held} octets of messages that its consumers do not take, and"
            f" nothing else could go on: {what}",
        )

    def on_message(self, link: Any, octets: bytes) -> None:
        self.worker.tracing.message(self, link.context, octets)

    def on_open(self, connection: Connection, remote: dict[str, Any]) -> None:
        hostname = remote["hostname"]
        if self.offer["multiTenant"] and hostname is not None and self.router is None:
            self.tenant = hostname + "/"
        if self.initiate is None:
            self._send_open(None)
        self.transport.schedule()
        message = {
            "t": control.OPENED,
            "conn": self.number,
            "container": remote["container"],
            "hostname": hostname,
            "user": self.user,
            "mechanism": self.sasl.mechanism if self.sasl is not None else None,
            "properties": plain(remote["properties"]),
            "tls": None,
        }
        if self.router is not None:
            self.router.announced = message["announced"] = announced(remote["raw_properties"])
        self.worker.control.tell(message)
        self.sasl = None
        if self.router is not None and self.initiate is not None:
            self.router.begin()

    def _send_open(self, hostname: str | None) -> None:
        self.connection.send_open(
            self.worker.router["id"],
            hostname=hostname,
            properties=self._properties(),
            offered=CAPABILITIES,
            desired=CAPABILITIES,
        )

    def _properties(self) -> list[bytes]:
        router = self.worker.router
        items = [
            encode_symbol("product"),
            encode_string(router["product"]),
            encode_symbol("version"),
            encode_string(router["version"]),
            encode_symbol("qd.conn-id"),
            encode_value(self.number),
        ]
        if self.offer["cost"] > 1:
            items += [encode_symbol(COST), encode_int(self.offer["cost"])]
        if self.router is not None:
            items += [encode_symbol(VERSION), encode_int(ANNOTATIONS_VERSION)]
        servers = self.offer["failoverServers"]
        if servers:
            items += [encode_symbol("failover-server-list"), encode_value([failover(server) for server in servers])]
        for key, value in self.offer["openProperties"].items():
            items += [encode_symbol(key), encode_value(value)]
        if self.router is not None:
            items += [encode_symbol(BUNDLE), encode_int(BUNDLE_CHECKS)]
        return items

    def on_begin(self, connection: Connection, channel: int, items: list[bytes]) -> Session:
        return self._session(channel, items)

    def begin_session(self, spare: int = 0) -> Session:
        """A session that the router begins, if more than `spare` further ones may begin. Raises RemoteError."""
        if spare and self.connection.channels_left() <= spare:
            raise RemoteError("connection", RESOURCE_LIMIT, "the last channels are left to others")
        return self._session(None, None)

    def begin_routed_session(self) -> Session:
        """One for routed links: the first one where there is a channel at all. Raises RemoteError."""
        spare = SPARE_CHANNELS if self.router is not None else OWN_CHANNELS
        return self.begin_session(spare if self.routed_sessions.any else 0)

    def _session(self, channel: int | None, items: list[bytes] | None) -> Session:
        window = self.offer["maxSessionFrames"] or 0
        return Session(self.connection, channel, items, self, window=window, routers=self.router is not None)

    def on_attach(self, session: Session, items: list[bytes]) -> Any:
        check_attach(items)
        if self.router is not None and (between := self.router.accept(session, items)) is not None:
            return between.link
        if self.router is not None and self.worker.slots.full:
            return NoRoom(self, session, items).link
        number = self.next_link
        self.next_link += 1
        record = self.links[number] = LinkRecord(self, number, session, items)
        self.answers.expect(record)
        return record.link

    def on_attached(self, link: Any, items: list[bytes]) -> None:
        link.context.answered(items)

    def on_detached(self, link: Any) -> bool:
        gone: bool = link.context.detached()
        return gone

    def on_closing(self, connection: Connection, error: tuple[str, str] | None) -> bool:
        """The peer closed. With consumers, the answer waits until no worker sends to them any more."""
        confirm = self.had_consumers
        self.graceful = connection.remote_open is not None
        self._tell_closed(error, confirm)
        return confirm

    def on_closed(self, connection: Connection, error: tuple[str, str] | None) -> None:
        self.worker.forget_client(self)
        self._tell_closed(error, False)
        self.worker.tracing.closed(self)
        self.leaving.clear()
        self.transport = None

    def _tell_closed(self, error: tuple[str, str] | None, confirm: bool) -> None:
        if not self.told_closed:
            self.told_closed = True
            message = {
                "t": control.CLOSED,
                "conn": self.number,
                "error": list(error) if error is not None else None,
                "confirm": confirm,
            }
            if self.initiate is not None:
                message["graceful"] = self.graceful
            self.worker.control.tell(message)

    # -- the supervisor's answers -------------------------------------------------------------------------------------

    def answer(self, message: control.Message) -> None:
        """attached, refused or paired, for a link that may be gone by now; or detached, for one that is."""
        if message["t"] == control.DETACHED:
            leaving = self.leaving.pop(message["link"], None)
            if leaving is not None:
                leaving.confirmed()
            return
        record = self.links.get(message["link"])
        if isinstance(record, LinkRecord):
            for each in self.answers.take(record, message):
                self._act(each)
        elif message["t"] == control.PAIRED:
            self.worker.routed.unwanted(message)

    def _act(self, message: control.Message) -> None:
        """It is the turn of an answer."""
        record = self.links[message["link"]]
        assert isinstance(record, LinkRecord)
        if message["t"] == control.ATTACHED:
            record.attached(message)
        elif message["t"] == control.PAIRED:
            self.worker.routed.paired(record, message)
        else:
            record.refused(message["condition"], message["description"])
        self.connection.resume(Pause.PAUSE_ATTACH)

    def close(self, message: control.Message) -> None:
        if message.get("silent"):
            self.connection.drop_silently()
        else:
            self.graceful = True
            self.connection.close(message.get("condition"), message.get("description"))

    def link(self, message: control.Message) -> None:
        """Attach a link of ours."""
        if self.connection.ended:
            return
        try:
            session = self._own_session()
            if session is None:
                self.wait_for_session(message)
                return
            number = self.next_link
            self.next_link += 1
            record = OwnLink(self, number, session, message)
        except RemoteError as error:
            failure = {"t": control.UNLINKED, "conn": self.number, "ref": message["ref"], "error": error.description}
            self.worker.control.tell(failure)
            return
        self.links[number] = self.own_links[record.reference] = record

    def _own_session(self) -> Session | None:
        """The session for another link of ours; None: the peer has to answer first. Raises RemoteError."""
        self.own_sessions = [session for session in self.own_sessions if not session.ended]
        for session in self.own_sessions:
            if session.room:
                return session
        if any(session.unanswered for session in self.own_sessions):
            return None
        self.own_sessions.append(self.begin_session())
        return self.own_sessions[-1]

    def wait_for_session(self, order: control.Message) -> None:
        """Carry out this order when the peer has answered a begin of ours: it may allow few links in a session."""
        self.waiting.append(order)

    def wait_no_more(self, field: str, value: int) -> None:
        """An order that waits is not wanted any more."""
        self.waiting = [order for order in self.waiting if order.get(field) != value]

    def on_begun(self, session: Session) -> None:
        orders, self.waiting = self.waiting, []
        for order in orders:
            self.worker.on_message(order, None)

    def unlink(self, message: control.Message) -> None:
        """Close a link of ours."""
        self.wait_no_more("ref", message["ref"])
        record = self.own_links.get(message["ref"])
        if record is not None:
            record.link.close_with(message.get("condition"), message.get("description"))

    def forget(self, record: "LinkRecord | RoutedEnd", last: int, *, confirm: bool) -> bool:
        """A link is gone; the end of the whole connection is told once, not for each link. True: a confirmation comes.

        last: when its last delivery came or went (CLOCK_MONOTONIC ns), 0: there was none.
        """
        self.links.pop(record.number, None)
        if isinstance(record, LinkRecord):
            waited = self.answers.forget(record)
            if waited is not None and waited["t"] == control.PAIRED:
                self.worker.routed.unwanted(waited)
            for each in self.answers.due(record.link.session):
                self._act(each)
        if self.connection.ended:
            self.had_consumers |= confirm
            return False
        if confirm and isinstance(record, LinkRecord):
            self.leaving[record.number] = record
        message = {"t": control.DETACH, "conn": self.number, "link": record.number, "confirm": confirm}
        if last:
            message["last"] = last
        if isinstance(record, OwnLink):
            self.own_links.pop(record.reference, None)
            if record.error:
                message["error"] = record.error
        self.worker.control.tell(message)
        return confirm


def failover(server: dict[str, Any]) -> dict[Symbol, str]:
    """One map of failover-server-list (routing semantics, C-8)."""
    entry = {Symbol("network-host"): server["host"], Symbol("port"): str(server["port"] or DEFAULT_PORT)}
    if server.get("scheme"):
        entry[Symbol("scheme")] = server["scheme"]
    return entry


def plain(value: Any) -> Any:
    """An AMQP value as JSON has it: what JSON does not know becomes text."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)
