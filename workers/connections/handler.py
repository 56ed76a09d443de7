"""Handler of a connection: the events of the engine and the orders of the supervisor, for the objects that own its
parts (role, login, policy, links, sessions).

routing-semantics.md 1.3, 2, inter-router.md 2.2.
"""

from typing import TYPE_CHECKING

from sluice.router.amqp.codec import encode_value
from sluice.router.amqp.connection import Connection
from sluice.router.amqp.sasl import SaslClient, SaslServer
from sluice.router.amqp.session import Session
from sluice.router.amqp.text.messages import components
from sluice.router.control import login_messages
from sluice.router.control import messages as control
from sluice.router.control.handover import InitiateData
from sluice.router.control.ops import Profile
from sluice.router.links.delivery_link import DeliveryLink
from sluice.workers.connections import opening
from sluice.workers.connections.links import ConnectionLinks
from sluice.workers.connections.login import MAX_LOGGED_CHARACTERS, Login
from sluice.workers.connections.open_properties import failover
from sluice.workers.connections.policy import ConnectionPolicy
from sluice.workers.connections.role import ConnectionRole
from sluice.workers.connections.router import InterRouterLinks
from sluice.workers.connections.sessions import RouterSessions, begin_session, make_session
from sluice.workers.frame_trace import FrameTrace
from sluice.workers.links.attach import check_attach
from sluice.workers.links.requested_link import RefusedLink
from sluice.workers.revocations import REVOKED

if TYPE_CHECKING:
    from sluice.router.amqp.connection import RemoteOpen
    from sluice.workers.transport.base import Transport
    from sluice.workers.worker import WorkerRuntime


class ConnectionHandler:
    """Handler of one connection and its sessions. Owner: the worker."""

    __slots__ = (
        "_graceful",
        "_router_sessions",
        "_wrong_count_logged",
        "admits",
        "closed_reported",
        "components",
        "connection",
        "container",
        "initiate",
        "links",
        "login",
        "number",
        "policy",
        "profile",
        "role",
        "router",
        "trace",
        "transport",
        "worker",
    )

    def __init__(
        self,
        worker: "WorkerRuntime",
        number: int,
        profile: Profile,
        initiate: InitiateData | None = None,
        *,
        admits: bool = False,
    ) -> None:
        """Create the handler. number: the router's number of the connection. profile: attributes of its listener or
        connector. initiate: of a connection that the router opened, see InitiateData. admits: see Handover."""
        self.worker = worker
        self.number = number
        self.profile = profile
        self.initiate = initiate
        self.admits = admits
        self.container = ""  # the peer's container id
        self.components = components(profile.message_logging_components)
        self.trace: FrameTrace | None = None  # None: frames are traced as the log settings say
        self.transport: Transport | None = None  # set by the worker; None again after the end
        self.role = ConnectionRole(number, profile, initiate, test_hooks=worker.router.test_hooks)
        self.connection = connection = Connection(
            worker.loop.scheduler,
            self,
            max_frame=profile.max_frame_size,
            channel_max=(profile.max_sessions or 32768) - 1,
            idle_ms=profile.idle_timeout_seconds * 1000,
            initiator=initiate is not None,
            content_limit=profile.max_buffered_megabytes << 20,
            relays=self.role.relays,
        )
        handshake = profile.initial_handshake_timeout_seconds
        if handshake:
            connection.limit_handshake(handshake * 1000)
        self.login = Login()
        self.policy = ConnectionPolicy(worker, number, profile, connection, client=initiate is None)
        self.links = ConnectionLinks(worker, number, connection)
        self.router = InterRouterLinks(self) if self.role.between_routers else None
        self._router_sessions: RouterSessions | None = None
        self._wrong_count_logged = False  # the peer's wrong transfer counts were logged
        self.closed_reported = False  # the supervisor knows of the end
        self._graceful = False  # closed by the peer after its open, or on the supervisor's order
        worker.tracing.opened(self)

    @property
    def open_transport(self) -> "Transport":
        """Transport of the connection, which has not ended."""
        assert self.transport is not None
        return self.transport

    # -- open ---------------------------------------------------------------------------------------------------------

    def authenticator(self) -> SaslServer | SaslClient:
        return self.login.begin(self)

    def refusal(self, connection: Connection, sasl: bool) -> tuple[str, str] | None:
        return opening.unmet_requirement(self, sasl)

    def on_authenticated(self, connection: Connection, user: str) -> None:
        if self.initiate is None:
            self.login.user = user
            return
        self.login.user = self.initiate.user
        opening.send_open(self, self.initiate.host)
        self.initiate.password = None

    def on_open(self, connection: Connection, remote: "RemoteOpen") -> None:
        opening.read_open(self, remote)

    def answer_sasl(self, message: login_messages.Reply) -> None:
        """Pass a reply of the supervisor to the client's login."""
        self.worker.admissions.done(self)
        if not self.connection.ended:
            self.login.answer(message)

    def permit(self, message: control.Permit) -> None:
        """Apply changed policy rules for messages."""
        incoming = (record.link for record in self.links.by_number.values() if not record.outgoing)
        self.policy.permit(message, incoming)

    # -- sessions and links -------------------------------------------------------------------------------------------

    @property
    def router_sessions(self) -> RouterSessions:
        """Sessions for links that the router attaches. Most connections never have any."""
        if self._router_sessions is None:
            self._router_sessions = RouterSessions()
        return self._router_sessions

    def begin_session(self, spare: int = 0) -> Session:
        """Begin a session on the router's initiative, if more than `spare` others may begin. Raises RemoteError."""
        return begin_session(self, spare)

    def cancel_pair(self, pair: int) -> None:
        """Drop the waiting order for the container's link of a pair that is no longer needed."""
        if self._router_sessions is not None:
            self._router_sessions.cancel_pair(pair)

    @property
    def message_limit(self) -> int:
        """Largest message in octets that the peer may send; 0: any size."""
        return 0 if self.router is not None else self.policy.limits.message

    def on_begin(self, connection: Connection, channel: int, items: list[bytes]) -> Session:
        return make_session(self, channel, items)

    def on_begun(self, session: Session) -> None:
        if self._router_sessions is not None:
            for order in self._router_sessions.take_waiting():
                self.worker.on_message(order, None)

    def on_too_many_sessions(self) -> None:
        self.policy.report_denied_session()

    def on_attach(self, session: Session, items: list[bytes]) -> DeliveryLink:
        check_attach(items)
        if self.router is not None:
            between = self.router.accept(session, items)
            if between is not None:
                return between.link
            if self.worker.slots.full:
                return RefusedLink(self, session, items).link
        return self.links.request(self, session, items)

    def on_attached(self, link: DeliveryLink, items: list[bytes]) -> None:
        link.context.answered(items)

    def on_detached(self, link: DeliveryLink) -> bool:
        gone: bool = link.context.detached()
        return gone

    def on_oversized(self, link: DeliveryLink) -> None:
        """Report a message above `message_limit`. Its link and the connection end when its last octet has arrived."""
        self.worker.control.send_event(control.Oversized(self.number, link.context.identity))

    # -- traces and log -----------------------------------------------------------------------------------------------

    def on_frame(self, connection: Connection, received: bool, octets: bytes, size: int) -> None:
        self.worker.tracing.frame(self, received, octets, size)

    def on_message(self, link: DeliveryLink, octets: bytes) -> None:
        self.worker.tracing.message(self, link.context, octets)

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        self.worker.report_fault(f"[C{self.number}] Connection closed after an internal error", fault)

    def on_link_evicted(self, link: DeliveryLink, held: int, what: str) -> None:
        """Log that a link was closed at a memory limit. held: octets of its messages that no receiver took."""
        self._warn(
            "ROUTER_CORE",
            f"At the limit of memory, link {link.name} held {held} octets of messages that no receiver took: {what}",
        )

    def on_evicted_for_unsettled(self, connection: Connection, octets: int) -> None:
        """Log that the connection was closed at the memory limit. octets: cost of the deliveries that the peer had not
        settled."""
        self._warn(
            "ROUTER_CORE",
            "At the limit of memory, the connection was closed: its peer had not settled deliveries of"
            f" {octets} octets",
        )

    def on_wrong_transfer_count(self, session: Session, next_id: int | None, sent: int) -> None:
        """Log once that the peer's flow shows wrong transfer counts. Its window is counted from the transfers sent."""
        if self._wrong_count_logged:
            return
        self._wrong_count_logged = True
        said = "no next-incoming-id" if next_id is None else f"next-incoming-id {next_id}"
        self._warn(
            "SERVER",
            f"The peer counts transfers wrongly: a flow has {said} after {sent} transfers;"
            " the router counts the window of the peer from the transfers sent",
        )

    def on_session_error(self, session: Session, error: tuple[str, str]) -> None:
        """Log why a container ended a session, and keep the reason for the links of the router that are lost with it
        (brokers-and-edge.md 5.5). RabbitMQ refuses links in this way."""
        if self.role.route_container:
            condition, description = error
            reason = f"{condition} {description}".rstrip()[:MAX_LOGGED_CHARACTERS]
            # The router attaches auto links again every few seconds, and the supervisor reports their outage once.
            level = "warning" if self.links.note_session_error(session, reason) else "info"
            self.worker.send_log(level, "SERVER", f"[C{self.number}] The peer has ended a session: {reason}")

    def _warn(self, module: str, text: str) -> None:
        self.worker.send_log("warning", module, f"[C{self.number}] {text}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, message: control.Close) -> None:
        """Close the connection, as ordered."""
        if message.silent:
            self.connection.drop_silently()
        else:
            self._graceful = True
            servers = self.profile.failover_servers if message.redirect else []
            info = encode_value(failover(servers[0])) if servers else None
            self.connection.close(message.condition, message.description, info)

    def close_revoked(self) -> None:
        """Close the connection, whose certificate a new revocation list names."""
        self.connection.close(*REVOKED)

    def on_closing(self, connection: Connection, error: tuple[str, str] | None) -> bool:
        """Handle the peer's close. With consumers, the answer waits until no worker sends to them."""
        confirm = self.links.ended_with_consumers
        self._graceful = connection.remote_open is not None
        self._report_closed(error, confirm)
        return confirm

    def on_closed(self, connection: Connection, error: tuple[str, str] | None) -> None:
        self.worker.forget_client(self)
        self._report_closed(error, False)
        self.worker.tracing.closed(self)
        self.policy.end()
        if self.login.sasl is not None:
            self.login.end()
        self.links.leaving.clear()
        self.transport = None

    def _report_closed(self, error: tuple[str, str] | None, confirm: bool) -> None:
        if self.closed_reported:
            return
        self.closed_reported = True
        if self.policy.rules is not None:
            self.policy.report_last()
        if self.login.sasl is not None:
            self.login.report_failure(self)
        graceful = self._graceful and self.initiate is not None
        sessions = self.connection.channels_open()
        lines = self.links.take_end_lines()
        self.worker.control.send_event(
            control.Closed(
                conn=self.number, error=error, confirm=confirm, graceful=graceful, sessions=sessions, lines=lines
            )
        )
