"""Links of a connection by number, and the supervisor's decisions and orders about them."""

from typing import TYPE_CHECKING, assert_never

from sluice.router.amqp.connection import Connection, Pause
from sluice.router.amqp.errors import RemoteError
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.control import pair_messages
from sluice.router.links.delivery_link import DeliveryLink
from sluice.workers.links.attach_replies import AttachReplies, Decision
from sluice.workers.links.initiated_link import InitiatedLink
from sluice.workers.links.record import LinkRecord
from sluice.workers.links.requested_link import RequestedLink

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.links.routed import RoutedEnd
    from sluice.workers.worker import WorkerRuntime


class ConnectionLinks:
    """Records of the links of a connection. Owner: the connection handler.

    There is no reference to the owner, because connections are freed without the garbage collector.
    """

    __slots__ = (
        "_connection",
        "_end_lines",
        "_initiated",
        "_last",
        "_number",
        "_worker",
        "answers",
        "by_number",
        "credit_withdrawn",
        "ended_with_consumers",
        "leaving",
    )

    def __init__(self, worker: "WorkerRuntime", number: int, connection: Connection) -> None:
        self._worker = worker
        self._number = number
        self._connection = connection
        self._last = 0  # last number of a link
        self.by_number: dict[int, LinkRecord | RoutedEnd] = {}
        # Links that the router has attached, by the supervisor's reference.
        self._initiated: dict[int, InitiatedLink] | None = None  # None: there was none
        self.leaving: dict[int, LinkRecord] = {}  # detached, and not confirmed by the supervisor
        self.answers = AttachReplies(worker.count_undecided)
        self.credit_withdrawn = False  # producers get no credit, because the connection is about to be closed
        # Log lines about links that ended with the connection; None: its end is reported.
        self._end_lines: list[str] | None = []
        self.ended_with_consumers = False  # the connection ended, and other workers may still send to its consumers

    def next_number(self) -> int:
        """Return the number of a new link."""
        self._last += 1
        return self._last

    # -- links of the peer --------------------------------------------------------------------------------------------

    def request(self, client: "ConnectionHandler", session: Session, items: list[bytes]) -> DeliveryLink:
        """Request the supervisor's decision about an attach of the peer; return the engine's link. Raises
        RemoteError."""
        self._last = number = self._last + 1
        record = RequestedLink(client, number, items)
        record.request(session)
        self.by_number[number] = record
        self.answers.expect(record)
        return record.link

    def answer(self, message: control.Answer) -> None:
        """Handle an answer to an attach. Its link may have ended."""
        record = self.by_number.get(message.link)
        if isinstance(record, LinkRecord) and not record.link.session.ended:
            if isinstance(record, RequestedLink):
                for each in self.answers.take(record, message):
                    self._act(each)
            elif isinstance(message, control.Attached):
                record.attached(message)
                self._connection.resume(Pause.PAUSE_ATTACH)
        elif isinstance(message, pair_messages.Paired):
            self._worker.routed.unwanted(message)

    def confirm_detach(self, message: control.Detached) -> None:
        """Answer the peer's detach, since no worker has the consumer any more."""
        leaving = self.leaving.pop(message.link, None)
        if leaving is not None:
            leaving.confirmed()

    def _act(self, message: Decision) -> None:
        """Execute a decision about a link of the peer, in order."""
        record = self.by_number[message.link]
        assert isinstance(record, RequestedLink)
        match message:
            case control.Attached():
                record.attached(message)
            case pair_messages.Paired():
                self._worker.routed.paired(record, message)
            case control.Refused():
                record.refused(message.condition, message.description, termini=message.termini)
            case _:
                assert_never(message)
        self._connection.resume(Pause.PAUSE_ATTACH)

    def close_link(self, message: control.CloseLink) -> None:
        """Close a link of the peer, as ordered."""
        record = self.by_number.get(message.link)
        if record is not None and not record.link.session.ended:
            record.link.close_with(message.condition, message.description)

    # -- links that the router attaches -------------------------------------------------------------------------------

    def initiate(self, client: "ConnectionHandler", order: control.Link) -> None:
        """Attach a link on the router's initiative, as ordered."""
        if self._connection.ended:
            return
        try:
            session = client.router_sessions.for_initiated_link(client, order)
            if session is None:
                client.router_sessions.wait(order)
                return
            record = InitiatedLink(client, self.next_number(), session, order)
        except RemoteError as error:
            self._worker.control.send_event(control.Unlinked(self._number, order.ref, error.description))
            return
        self.by_number[record.number] = record
        if self._initiated is None:
            self._initiated = {}
        self._initiated[record.reference] = record

    def unlink(self, client: "ConnectionHandler", message: control.Unlink) -> None:
        """Close a link that the router attached, as ordered."""
        client.router_sessions.cancel_link(message.ref)
        record = None if self._initiated is None else self._initiated.get(message.ref)
        if record is not None and message.quiet:
            record.close_when_settled()
        elif record is not None:
            record.link.close_with(message.condition, message.description)

    def note_session_error(self, session: Session, reason: str) -> bool:
        """Keep the reason for which the peer has ended a session, for the links that the router attached in it.

        Returns True if there are routed links among them.
        """
        lost = [record for record in self.by_number.values() if record.link.session is session]
        for record in lost:
            record.note_session_error(reason)
        return any(not isinstance(record, LinkRecord) for record in lost)

    # -- before the end ---------------------------------------------------------------------------------------------

    def withdraw_credit(self, number: int | None) -> None:
        """Withdraw the credit of a producer, as ordered. None: of all producers, and of those attached later."""
        if number is None:
            self.credit_withdrawn = True
        for record in self.by_number.values() if number is None else [self.by_number.get(number)]:
            if isinstance(record, LinkRecord):
                record.withdraw_credit()

    # -- all links ----------------------------------------------------------------------------------------------------

    def forget(self, record: "LinkRecord | RoutedEnd", last: int, line: str | None, *, confirm: bool) -> bool:
        """Forget a link that has ended, and report it unless the whole connection ends. True: a confirmation follows.

        last: time of its last delivery (CLOCK_MONOTONIC ns); 0: it had none. line: log line about its end.
        """
        self.by_number.pop(record.number, None)
        if isinstance(record, LinkRecord):
            for each in self.answers.due(record.link.session):
                self._act(each)
        if self._connection.ended:
            self.ended_with_consumers |= confirm
            if line is not None:
                self._keep_line(line)
            return False
        if confirm and isinstance(record, LinkRecord):
            self.leaving[record.number] = record
        error = None
        if isinstance(record, InitiatedLink):
            error = record.error
            if self._initiated is not None:
                self._initiated.pop(record.reference, None)
        elif not isinstance(record, LinkRecord):
            error = record.error
        self._worker.control.send_event(
            control.Detach(conn=self._number, link=record.number, confirm=confirm, last=last, line=line, error=error)
        )
        return confirm

    def _keep_line(self, line: str) -> None:
        """Keep a log line for the report of the connection's end, which has at most END_LINES of them."""
        if self._end_lines is None:
            self._worker.send_log("info", "ROUTER_CORE", line)
            return
        if len(self._end_lines) == control.END_LINES:
            for each in self._end_lines:
                self._worker.send_log("info", "ROUTER_CORE", each)
            self._end_lines = []
        self._end_lines.append(line)

    def take_end_lines(self) -> tuple[str, ...]:
        """Return the log lines about links for the report of the connection's end."""
        lines, self._end_lines = self._end_lines or (), None
        return tuple(lines)
