"""Handler of a connection: open, sessions and links, and the events sent to the supervisor.

routing-semantics.md 1.3, 2, inter-router.md 2.2.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, assert_never

from router.amqp.codec import encode_string
from router.amqp.connection import Connection, Pause
from router.amqp.session import Session
from router.links.consumer_link import ConsumerLink
from router.links.data_link import RouterOut
from router.links.limited_link import LimitedConsumerLink
from router.links.source_link import SourceLink

from router.amqp.errors import RESOURCE_LIMIT, RemoteError
from router.amqp.sasl import SaslClient, SaslServer
from router.amqp.text.messages import components
from router.config.roles import EDGE, INTER_EDGE, INTER_ROUTER, ROUTE_CONTAINER
from router.control import edge_properties, login_messages
from router.control import messages as control
from router.control.handover import MOST_READ_BEFORE, InitiateData, MovedConnection, OpeningState
from router.control.ops import Profile
from router.policy.messages import MessageRules
from router.policy.quota import TenantQuota
from workers.connections import logins
from workers.connections.open_properties import open_properties, plain
from workers.connections.routed_sessions import RoutedSessions
from workers.connections.router import InterRouterLinks, announced
from workers.links.attach import check_attach
from workers.links.attach_replies import AttachReplies, Decision
from workers.links.edge_streams import EdgeStreamLinks
from workers.links.initiated_link import InitiatedLink
from workers.links.record import LinkRecord
from workers.links.requested_link import RefusedLink, RequestedLink
from workers.links.streams import SPARE_CHANNELS
from workers.revocations import REVOKED

if TYPE_CHECKING:
    from workers.links.routed import RoutedEnd
    from workers.worker import WorkerRuntime

STREAMING: Final = "qd.streaming-links"
CAPABILITIES: Final = ("ANONYMOUS-RELAY", STREAMING)
MAX_LOGGED_CHARACTERS: Final = 1_000  # most characters of a peer's error in the log
POLICY_ERROR: Final = "amqp:connection:policy-error"  # used in the log only
UNDECIDED: Final = "the supervisor of the router did not answer in time"
NO_LIMITS: Final = control.Limits()
FORBIDDEN_AFTER_MS: Final = 100  # time until rejected messages are reported to the supervisor
AUTO_LINK_CHANNELS: Final = 1  # reserved for the session of auto links


class ConnectionHandler:
    """Handler of one connection and its sessions. Owner: the worker."""

    __slots__ = (
        "_routed_sessions",
        "answers",
        "checks",
        "closed_reported",
        "components",
        "connection",
        "container",
        "edge",
        "edge_streams",
        "ended_with_consumers",
        "graceful",
        "initiate",
        "initiated_links",
        "initiated_sessions",
        "leaving",
        "limits",
        "links",
        "login",
        "mark",
        "mechanism",
        "message_rules",
        "next_link",
        "number",
        "profile",
        "quota",
        "router",
        "sasl",
        "tenant",
        "to_ours",
        "traced",
        "transport",
        "user",
        "waiting",
        "watched",
        "worker",
        "wrong_count_logged",
    )

    def __init__(
        self, worker: "WorkerRuntime", number: int, profile: Profile, initiate: InitiateData | None = None,
        begun: OpeningState | None = None,
    ) -> None:  # fmt: skip
        """Create the handler. number: the router's number of the connection. profile: attributes of its listener or
        connector. initiate: of a connection that the router opened, see InitiateData. begun: state from the worker that
        had the connection before."""
        self.worker = worker
        self.number = number
        self.profile = profile
        self.initiate = initiate
        self.limits = NO_LIMITS
        self.message_rules: MessageRules | None = None  # policy rules for messages; None: none apply
        self.quota: TenantQuota | None = None  # quota shared with other connections
        self.sasl: SaslServer | SaslClient | None = None
        self.login: logins.Login | None = None  # while the supervisor authenticates the client
        self.user: str | None = None
        self.mechanism: str | None = None  # SASL mechanism of the login; None: no SASL, or no login yet
        self.tenant: str | None = None  # prefix of the client's mobile addresses; set by the supervisor
        self.links: dict[int, LinkRecord | RoutedEnd] = {}
        self.leaving: dict[int, LinkRecord] = {}  # detached, and not confirmed by the supervisor
        self.answers = AttachReplies(worker.count_undecided)
        self.next_link = 1
        # Links that the router has attached, by the supervisor's reference.
        self.initiated_links: dict[int, InitiatedLink] = {}
        # Sessions for these links: usually one, or several if the peer allows few links in a session. Key True: other
        # sessions, for links that must not share a session with the rest.
        self.initiated_sessions: dict[bool, list[Session]] = {}
        self.waiting: list[control.Link | control.Pair] = []  # orders that wait until the peer has answered a begin
        self._routed_sessions: RoutedSessions | None = None
        self.router = InterRouterLinks(self) if profile.role == INTER_ROUTER else None
        # Number of this edge connection, or of its bundle as set by the supervisor; 0: no edge connection. Messages
        # from an edge connection are not sent back by a connection with its number.
        self.edge = number if profile.role in (EDGE, INTER_EDGE) else 0
        self.mark = "" if initiate is None else initiate.mark  # mark of this edge router, for other routers
        self.to_ours = False  # an edge connection whose peer is a Sluice router
        self.checks = False  # the peer tracks checkpoints of settled messages
        self.edge_streams: EdgeStreamLinks | None = None  # of an edge connection whose peer supports streaming links
        self.container = ""  # the peer's container id
        self.wrong_count_logged = False  # the peer's wrong transfer counts were logged
        self.ended_with_consumers = False  # the connection ended, and other workers may still send to its consumers
        self.closed_reported = False
        self.graceful = False  # closed by the peer after its open, or on the supervisor's order
        self.traced: bool | None = None  # enableProtocolTrace of the management entity; None: never set
        self.watched = False  # frames are sent to the supervisor
        self.components = components(profile.message_logging_components)
        self.transport: Any = None
        self.connection = Connection(
            worker.loop.scheduler,
            self,
            max_frame=profile.max_frame_size,
            channel_max=(profile.max_sessions or 32768) - 1,
            idle_ms=profile.idle_timeout_seconds * 1000,
            initiator=initiate is not None,
            content_limit=profile.max_buffered_megabytes << 20,
            relays=self.relays,
        )
        handshake = profile.initial_handshake_timeout_seconds
        if handshake:
            self.connection.limit_handshake(handshake * 1000)
        worker.tracing.opened(self)
        if begun is not None:
            self.user, self.mechanism = begun.user, begun.mechanism
            self.connection.expect_open()

    @property
    def routed_sessions(self) -> RoutedSessions:
        """Sessions for links that the router attaches for clients. Most connections never have any."""
        if self._routed_sessions is None:
            self._routed_sessions = RoutedSessions()
        return self._routed_sessions

    @property
    def route_container(self) -> bool:
        """True if the peer is a route container, whose deliveries are counted separately."""
        return bool(self.profile.role == ROUTE_CONTAINER)

    def set_up_incoming_link(self, link: Any, *, second: bool = False) -> None:
        """Set up the credit of a link on which the peer sends, which depends on the role of the connection. second:
        the peer settles after the router (rcv-settle-mode)."""
        if not second and not self.to_ours:
            link.settle_first()
        if self.edge and self.initiate is None and self.profile.role == EDGE:
            link.from_edge()
        elif self.edge:
            link.from_interior()

    @property
    def window(self) -> int:
        """Most deliveries in flight on a link on which the peer sends. A Sluice router gets more than others."""
        return int(self.profile.bundle_capacity if self.to_ours else self.profile.link_capacity)

    def outgoing_link(self, capacity: int, *, settles: bool = False, limited: bool = False) -> Any:
        """Return a new link on which the peer receives messages. settles: all deliveries are sent settled. limited:
        the peer may have a maximum message size. brokers-and-edge.md W-13."""
        if self.edge_streams is None:
            kind = SourceLink if self.worker.router.test_hooks and self.initiate is None else ConsumerLink
            if limited and not self.edge:
                kind = LimitedConsumerLink
            return kind(capacity=capacity, settles=settles, annotations=not self.profile.strip_annotations_out)
        link = RouterOut(capacity=capacity, settles=settles)
        link.pool = self.edge_streams.pool
        if self.checks:
            link.enable_tracking()
        return link

    @property
    def edge_mark(self) -> bytes | None:
        """Mark for messages on an edge router's uplink, which shows that the edge router had them already
        (docs/internals/edge.md)."""
        return encode_string(self.mark) if self.initiate is not None and self.profile.role == EDGE else None

    @property
    def relays(self) -> bool:
        """True if the peer is a router. Its messages come from many clients, so the connection has to be read."""
        return self.router is not None or self.edge != 0

    # -- events of the engine -----------------------------------------------------------------------------------------

    def authenticator(self) -> SaslServer | SaslClient | None:
        if self.initiate is not None:
            self.sasl = logins.client(self, self.initiate)
        elif self.profile.asks_for_sasl:
            self.login = logins.Login(self, self.transport.tls)
            self.sasl = self.login.server
        else:
            self.sasl = logins.make_local_server(self.profile, self.transport.tls)
        return self.sasl

    def refusal(self, connection: Connection, sasl: bool) -> tuple[str, str] | None:
        """Return the listener's requirement that a client fails to meet when it begins a layer (security.md S-5, T-8,
        T-9; routing-semantics.md C-5)."""
        if self.initiate is not None:
            return None
        if self.profile.require_encryption and self.transport.tls is None:
            return POLICY_ERROR, "Client connection unencrypted - forbidden"
        if not sasl and self.profile.authenticate_peer and self.sasl is None:
            return POLICY_ERROR, "Client skipped authentication - forbidden"
        return None

    def sasl_answer(self, message: login_messages.Reply) -> None:
        """Pass a reply of the supervisor to the client's login."""
        self.worker.admissions.done(self)
        if self.login is not None and not self.connection.ended:
            self.login.answer(message)

    def on_authenticated(self, connection: Connection, user: str) -> None:
        if self.initiate is None:
            self.user = user
            return
        self.user = self.initiate.user
        self._send_open(self.initiate.host)
        self.initiate.password = None

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        self.worker.report_fault(f"[C{self.number}] Connection closed after an internal error", fault)

    def on_frame(self, connection: Connection, received: bool, octets: bytes, size: int) -> None:
        self.worker.tracing.frame(self, received, octets, size)

    def on_link_evicted(self, link: Any, held: int, what: str) -> None:
        """Log that a link was closed at a memory limit. held: octets of its messages that no receiver took."""
        self.worker.send_log(
            "warning",
            "ROUTER_CORE",
            f"[C{self.number}] At the limit of memory, link {link.name} held {held} octets of messages that no receiver"
            f" took: {what}",
        )

    def on_wrong_transfer_count(self, session: Session, next_id: int | None, sent: int) -> None:
        """Log once that the peer's flow shows wrong transfer counts. Its window is counted from the transfers sent."""
        if self.wrong_count_logged:
            return
        self.wrong_count_logged = True
        said = "no next-incoming-id" if next_id is None else f"next-incoming-id {next_id}"
        self.worker.send_log(
            "warning",
            "SERVER",
            f"[C{self.number}] The peer counts transfers wrongly: a flow has {said} after {sent} transfers;"
            " the router counts the window of the peer from the transfers sent",
        )

    def on_evicted_for_unsettled(self, connection: Connection, octets: int) -> None:
        """Log that the connection was closed at the memory limit. octets: cost of the deliveries that the peer had not
        settled."""
        self.worker.send_log(
            "warning",
            "ROUTER_CORE",
            f"[C{self.number}] At the limit of memory, the connection was closed: its peer had not settled deliveries"
            f" of {octets} octets",
        )

    def on_message(self, link: Any, octets: bytes) -> None:
        self.worker.tracing.message(self, link.context, octets)

    def on_open(self, connection: Connection, remote: dict[str, Any]) -> None:
        hostname = remote["hostname"]
        self.container = remote["container"]
        properties = plain(remote["properties"])
        if self.edge and STREAMING in remote["offered"]:
            self.edge_streams = EdgeStreamLinks(self)
        said = properties if self.edge and isinstance(properties, dict) else {}
        self.to_ours = edge_properties.EDGE in said
        self.checks = said.get(edge_properties.CHECKS) == edge_properties.CHECKS_VERSION
        connection.pause(Pause.PAUSE_OPEN)
        if self.sasl is not None:
            self.mechanism = self.sasl.mechanism
        if self.initiate is None and self.mechanism is None:
            self.user = logins.user_without_sasl(self.profile, self.transport.tls)
        message = control.Opened(
            conn=self.number,
            container=remote["container"],
            hostname=hostname,
            user=self.user,
            mechanism=self.mechanism,
            properties=properties,
            tls=self.transport.tls,
        )
        if self.router is not None:
            self.router.announced = message.announced = announced(remote["raw_properties"])
        self.worker.admissions.ask(self, message)
        self.sasl = self.login = None

    def admission(self, message: control.Admitted | control.Denied) -> None:
        """Handle the supervisor's decision about the open."""
        if self.connection.ended:
            return
        self.mark = message.mark
        if isinstance(message, control.Denied):
            self._deny(message.condition, message.description)
            return
        if self.worker.revocations.is_revoked(self):  # revoked since the TLS handshake
            self._deny(*REVOKED)
            return
        self.edge = message.edge
        self.tenant = message.tenant
        if message.limits is not None:
            self._limit(message.limits)
        if self.initiate is None:
            self._send_open(None)
        elif self.router is not None:
            self.router.begin()
        self.connection.resume(Pause.PAUSE_OPEN)
        self.transport.schedule()

    def move(self) -> bool:
        """Hand the connection over to another worker after its open and before the answer. False: it stays here."""
        octets = self.transport.octets_since_open(MOST_READ_BEFORE)
        if octets is None:
            return False
        try:
            message = MovedConnection(self.number, octets, OpeningState(self.user, self.mechanism))
            self.worker.control.give_back(message, self.transport.fd)
        except OSError:
            return False  # no room to hand it over
        self.closed_reported = True
        self.connection.drop_silently()
        return True

    def _deny(self, condition: str, description: str) -> None:
        if self.initiate is None:
            self._send_open(None)
        self.connection.close(condition, description)

    def undecided(self) -> None:
        """Refuse a client about which the supervisor has not decided in time."""
        if self.connection.ended:
            return
        if self.login is not None:
            self.login.answer(login_messages.SaslOutcome(conn=self.number, user=None, reason=UNDECIDED))
        else:
            self._deny(RESOURCE_LIMIT, UNDECIDED)

    def permit(self, message: control.Permit) -> None:
        """Apply changed policy rules for messages."""
        targets = self.worker.rules[message.rules]
        if self.message_rules is None:
            self.message_rules = MessageRules(
                targets, message.user, message.proxies, self._on_forbidden, rights=message.rights
            )
        else:
            self.message_rules.change(targets, message.proxies, message.rights)
        self._share(self.worker.quotas.get(message.rules))

    def _share(self, quota: TenantQuota | None) -> None:
        """Charge this quota from now on."""
        if quota is self.quota:
            return
        if self.quota is not None:
            self.quota.leave(self.connection)
        self.quota = quota
        self.connection.share(quota)
        if quota is not None:
            quota.join(self.connection)
            for record in self.links.values():
                if not record.outgoing:
                    record.link.note_quota()

    def _on_forbidden(self) -> None:
        loop = self.worker.loop
        loop.call_at(loop.scheduler.now + FORBIDDEN_AFTER_MS, self._report_forbidden)

    def _report_forbidden(self) -> None:
        """Report the messages rejected since the last report."""
        if self.message_rules is None or self.closed_reported:
            return
        targets, users, address = self.message_rules.take()
        if targets or users:
            self.worker.control.send_event(
                control.Forbidden(conn=self.number, targets=targets, users=users, address=address)
            )

    def _limit(self, limits: control.Limits) -> None:
        """Apply policy limits to the connection. Only an open that is still to be sent can announce them (security.md
        P-61)."""
        self.limits = limits
        if self.initiate is None:
            profile = self.profile
            self.connection.limit(
                limits.max_frame or profile.max_frame_size,
                (limits.sessions or profile.max_sessions or 32768) - 1,
            )

    @property
    def message_limit(self) -> int:
        """Largest message in octets that the peer may send; 0: any size."""
        return 0 if self.router is not None else self.limits.message

    def on_oversized(self, link: Any) -> None:
        """Report a message above `message_limit`. Its link and the connection end when its last octet has arrived."""
        self.worker.control.send_event(control.Oversized(self.number, link.context.identity))

    def _send_open(self, hostname: str | None) -> None:
        self.connection.send_open(
            self.worker.router.id,
            hostname=hostname,
            properties=open_properties(self),
            offered=CAPABILITIES,
            desired=CAPABILITIES,
        )

    def on_begin(self, connection: Connection, channel: int, items: list[bytes]) -> Session:
        return self._session(channel, items)

    def begin_session(self, spare: int = 0) -> Session:
        """Begin a session on the router's initiative, if more than `spare` others may begin. Raises RemoteError."""
        if spare and self.connection.channels_left() <= spare:
            raise RemoteError(
                "connection", RESOURCE_LIMIT, "no channel is left: the last ones are reserved for other sessions"
            )
        return self._session(None, None)

    def begin_routed_session(self) -> Session:
        """Begin a session for routed links. The first one may use any free channel. Raises RemoteError.

        If no channel is left for the first one, the session of auto links is shared.
        """
        spare = SPARE_CHANNELS if self.router is not None else AUTO_LINK_CHANNELS
        if self.routed_sessions.any:
            return self.begin_session(spare)
        return self._begin_or_share(session for each in self.initiated_sessions.values() for session in each)

    def on_too_many_sessions(self) -> None:
        """Report a begin above channel-max, for which the connection ends (security.md P-30)."""
        if self.limits.sessions and self.initiate is None:
            self.worker.control.send_event(control.SessionDenied(self.number))

    def on_session_error(self, connection: Connection, error: tuple[str, str]) -> None:
        """Log why a container ended a session, since clients of its routed links learn only that they lost it
        (brokers-and-edge.md 5.5)."""
        if self.profile.role == ROUTE_CONTAINER:
            condition, description = error
            text = f"[C{self.number}] The peer has ended a session: {condition} {description}"
            self.worker.send_log("warning", "SERVER", text[:MAX_LOGGED_CHARACTERS])

    def _session(self, channel: int | None, items: list[bytes] | None) -> Session:
        # brokers-and-edge.md W-3.
        window = self.profile.max_session_frames
        if self.limits.window is not None and self.initiate is None:
            window = self.limits.window // self.connection.local_max_frame
        return Session(self.connection, channel, items, self, window=window, routers=self.router is not None)

    def on_attach(self, session: Session, items: list[bytes]) -> Any:
        check_attach(items)
        if self.router is not None and (between := self.router.accept(session, items)) is not None:
            return between.link
        if self.router is not None and self.worker.slots.full:
            return RefusedLink(self, session, items).link
        number = self.next_link
        self.next_link += 1
        record = RequestedLink(self, number, items)
        record.request(session)
        self.links[number] = record
        self.answers.expect(record)
        return record.link

    def on_attached(self, link: Any, items: list[bytes]) -> None:
        link.context.answered(items)

    def on_detached(self, link: Any) -> bool:
        gone: bool = link.context.detached()
        return gone

    def on_closing(self, connection: Connection, error: tuple[str, str] | None) -> bool:
        """Handle the peer's close. With consumers, the answer waits until no worker sends to them."""
        confirm = self.ended_with_consumers
        self.graceful = connection.remote_open is not None
        self._send_closed(error, confirm)
        return confirm

    def on_closed(self, connection: Connection, error: tuple[str, str] | None) -> None:
        self.worker.forget_client(self)
        self._send_closed(error, False)
        self.worker.tracing.closed(self)
        self._share(None)
        self.leaving.clear()
        self.transport = None

    def _send_closed(self, error: tuple[str, str] | None, confirm: bool) -> None:
        if not self.closed_reported:
            self._report_forbidden()
            if isinstance(self.sasl, SaslServer) and self.sasl.error is not None:
                self.worker.control.send_event(
                    login_messages.LoginFailed(
                        self.number, self.sasl.mechanism, self.sasl.error[1][:MAX_LOGGED_CHARACTERS]
                    )
                )
            self.closed_reported = True
            graceful = self.graceful and self.initiate is not None
            sessions = self.connection.channels_open()
            self.worker.control.send_event(
                control.Closed(conn=self.number, error=error, confirm=confirm, graceful=graceful, sessions=sessions)
            )

    # -- answers of the supervisor ------------------------------------------------------------------------------------

    def answer(self, message: control.Answer | control.Detached) -> None:
        """Handle attached, refused or paired, for a link that may have ended; or detached, for a link that has."""
        if isinstance(message, control.Detached):
            leaving = self.leaving.pop(message.link, None)
            if leaving is not None:
                leaving.confirmed()
            return
        record = self.links.get(message.link)
        if isinstance(record, LinkRecord) and not record.link.session.ended:
            if isinstance(record, RequestedLink):
                for each in self.answers.take(record, message):
                    self._act(each)
            elif isinstance(message, control.Attached):
                record.attached(message)
                self.connection.resume(Pause.PAUSE_ATTACH)
        elif isinstance(message, control.Paired):
            self.worker.routed.unwanted(message)

    def _act(self, message: Decision) -> None:
        """Execute a decision about a link, in order."""
        record = self.links[message.link]
        match message:
            case control.Attached():
                assert isinstance(record, LinkRecord)
                record.attached(message)
            case control.Paired():
                assert isinstance(record, RequestedLink)
                self.worker.routed.paired(record, message)
            case control.Refused():
                assert isinstance(record, RequestedLink)
                record.refused(message.condition, message.description, termini=message.termini)
            case _:
                assert_never(message)
        self.connection.resume(Pause.PAUSE_ATTACH)

    def close_link(self, message: control.CloseLink) -> None:
        """Close a link of the peer, as ordered."""
        record = self.links.get(message.link)
        if record is not None and not record.link.session.ended:
            record.link.close_with(message.condition, message.description)

    def close(self, message: control.Close) -> None:
        if message.silent:
            self.connection.drop_silently()
        else:
            self.graceful = True
            self.connection.close(message.condition, message.description)

    def revoked(self) -> None:
        """Close the connection, whose certificate a new revocation list names."""
        self.connection.close(*REVOKED)

    def link(self, message: control.Link) -> None:
        """Attach a link on the router's initiative, as ordered."""
        if self.connection.ended:
            return
        try:
            session = self._initiated_session(message.second)
            if session is None:
                self.wait_for_session(message)
                return
            number = self.next_link
            self.next_link += 1
            record = InitiatedLink(self, number, session, message)
        except RemoteError as error:
            self.worker.control.send_event(control.Unlinked(self.number, message.ref, error.description))
            return
        self.links[number] = self.initiated_links[record.reference] = record

    def _initiated_session(self, second: bool) -> Session | None:
        """Return the session for another link that the router attaches.

        None: the peer must answer a begin first. Raises RemoteError.
        """
        sessions = [session for session in self.initiated_sessions.get(second, ()) if not session.ended]
        self.initiated_sessions[second] = sessions
        for session in sessions:
            if session.room:
                return session
        if any(session.unanswered for session in sessions):
            return None
        others = (session for each in self.initiated_sessions.values() for session in each)
        sessions.append(self._begin_or_share((*others, *self.routed_sessions.sessions())))
        return sessions[-1]

    def _begin_or_share(self, others: Iterable[Session]) -> Session:
        """Begin a session, or return one of `others` with room if the peer allows no more. Raises RemoteError."""
        try:
            return self.begin_session()
        except RemoteError:
            shared = next((session for session in others if session.room and not session.ended), None)
            if shared is None:
                raise
            return shared

    def wait_for_session(self, order: control.Link | control.Pair) -> None:
        """Keep this order until the peer has answered the begin, because it may allow few links in a session."""
        self.waiting.append(order)

    def cancel_link(self, reference: int) -> None:
        """Drop the waiting order for a link that is no longer needed."""
        self.waiting = [order for order in self.waiting if isinstance(order, control.Pair) or order.ref != reference]

    def cancel_pair(self, pair: int) -> None:
        """Drop the waiting order for the container's link of a pair that is no longer needed."""
        self.waiting = [order for order in self.waiting if isinstance(order, control.Link) or order.pair != pair]

    def on_begun(self, session: Session) -> None:
        orders, self.waiting = self.waiting, []
        for order in orders:
            self.worker.on_message(order, None)

    def unlink(self, message: control.Unlink) -> None:
        """Close a link that the router attached, as ordered."""
        self.cancel_link(message.ref)
        record = self.initiated_links.get(message.ref)
        if record is not None and message.quiet:
            record.close_when_settled()
        elif record is not None:
            record.link.close_with(message.condition, message.description)

    def forget(self, record: "LinkRecord | RoutedEnd", last: int, *, confirm: bool) -> bool:
        """Forget a link that has ended, and report it unless the whole connection ends. True: a confirmation follows.

        last: time of its last delivery (CLOCK_MONOTONIC ns); 0: it had none.
        """
        self.links.pop(record.number, None)
        if isinstance(record, LinkRecord):
            for each in self.answers.due(record.link.session):
                self._act(each)
        if self.connection.ended:
            self.ended_with_consumers |= confirm
            return False
        if confirm and isinstance(record, LinkRecord):
            self.leaving[record.number] = record
        error = None
        if isinstance(record, InitiatedLink):
            self.initiated_links.pop(record.reference, None)
            error = record.error
        self.worker.control.send_event(
            control.Detach(conn=self.number, link=record.number, confirm=confirm, last=last, error=error)
        )
        return confirm
