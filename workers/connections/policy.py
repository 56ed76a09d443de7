"""Policy for one connection: its limits, and the rules and quotas for its messages (security.md P-30, P-40, P-61)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sluice.router.amqp.connection import Connection
from sluice.router.control import messages as control
from sluice.router.control.ops import Profile
from sluice.router.links.delivery_link import DeliveryLink
from sluice.router.policy.messages import MessageRules
from sluice.router.policy.quota import TenantQuota

if TYPE_CHECKING:
    from sluice.workers.worker import WorkerRuntime

NO_LIMITS: Final = control.Limits()
FORBIDDEN_AFTER_MS: Final = 100  # time until rejected messages are reported to the supervisor


class ConnectionPolicy:
    """Policy in force on a connection. Owner: the connection handler."""

    __slots__ = ("_client", "_connection", "_number", "_profile", "_quota", "_worker", "limits", "rules", "tenant")

    def __init__(
        self, worker: "WorkerRuntime", number: int, profile: Profile, connection: Connection, *, client: bool
    ) -> None:
        """Create it without limits and rules. client: the peer opened the connection, not the router."""
        self._worker = worker
        self._number = number
        self._profile = profile
        self._connection = connection
        self._client = client
        self._quota: TenantQuota | None = None  # shared with other connections
        self.limits = NO_LIMITS
        self.rules: MessageRules | None = None  # rules for messages; None: none apply
        self.tenant: str | None = None  # prefix of the client's mobile addresses; set by the supervisor

    # -- limits -------------------------------------------------------------------------------------------------------

    def limit(self, limits: control.Limits) -> None:
        """Apply limits. Only an open that is still to be sent can announce them (security.md P-61)."""
        self.limits = limits
        if self._client:
            profile = self._profile
            self._connection.limit(
                limits.max_frame or profile.max_frame_size,
                (limits.sessions or profile.max_sessions or 32768) - 1,
            )

    @property
    def session_window(self) -> int | None:
        """Most frames in flight of a session; None: the engine's default."""
        octets = self.limits.window
        if octets is None or not self._client:
            return self._profile.max_session_frames
        return int(octets // self._connection.local_max_frame)

    def report_denied_session(self) -> None:
        """Report a begin above channel-max, for which the connection ends (security.md P-30)."""
        if self.limits.sessions and self._client:
            self._worker.control.send_event(control.SessionDenied(self._number))

    # -- rules and quotas ---------------------------------------------------------------------------------------------

    def permit(self, message: control.Permit, incoming: Iterable[DeliveryLink]) -> None:
        """Apply changed rules for messages. incoming: links on which the peer sends."""
        worker = self._worker
        targets = worker.rules.rules(message.rules)
        if self.rules is None:
            self.rules = MessageRules(targets, message.user, message.proxies, self._report_later, rights=message.rights)
        else:
            self.rules.change(targets, message.proxies, message.rights)
        quota = worker.rules.quota(message.rules)
        if quota is not self._quota:
            self._share(quota)
            if quota is not None:
                for link in incoming:
                    link.note_quota()

    def _share(self, quota: TenantQuota | None) -> None:
        """Charge this quota from now on."""
        if self._quota is not None:
            self._quota.leave(self._connection)
        self._quota = quota
        self._connection.share(quota)
        if quota is not None:
            quota.join(self._connection)

    def _report_later(self) -> None:
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + FORBIDDEN_AFTER_MS, self.report_forbidden)

    def report_forbidden(self) -> None:
        """Report the messages rejected since the last report."""
        if self.rules is None:
            return
        targets, users, address = self.rules.take()
        if targets or users:
            self._worker.control.send_event(
                control.Forbidden(conn=self._number, targets=targets, users=users, address=address)
            )

    def report_last(self) -> None:
        """Report rejected messages for the last time, because the end of the connection is reported next."""
        self.report_forbidden()
        self.rules = None

    def end(self) -> None:
        """Drop the rules, and charge no quota any more."""
        self.rules = None
        if self._quota is not None:
            self._share(None)
