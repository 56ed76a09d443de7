"""Order of the answers to attaches: that of the attaches of their session (routing-semantics.md A-16a).

The supervisor decides in that order, but some decisions wait for acknowledgements of workers. A client that attaches a
receiver for replies and then a sender must have its reply address before it has credit. A container may answer a
routed link at any time, and its answer delays no others.

An attach that waits for another router does not count as one that the supervisor has to decide. The other router's
answer may arrive by a connection of this worker, on which attaches are not taken while too many undecided ones wait.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.control import pair_messages

if TYPE_CHECKING:
    from sluice.workers.links.requested_link import RequestedLink

UNDECIDED: Final = ("asked", "postponed")
Decision = control.Attached | control.Refused | pair_messages.Paired
FINAL: Final = (control.Attached, control.Refused, pair_messages.Paired)


class AttachReplies:
    """Attaches of a connection without an answer, and answers that wait for earlier ones. Owner: the client."""

    __slots__ = ("_count", "_sessions")

    def __init__(self, count: Callable[[int], None]) -> None:
        """Create it empty. count(n): called with each change of the number of attaches that wait for the supervisor's
        decision."""
        self._count = count
        # Links whose answer was not sent, in the order of their attaches, each with its decision. A link in the state
        # ROUTABLE delays no other answer. A link that waits alone, without a decision, stands for such a mapping.
        self._sessions: dict[Session, RequestedLink | OrderedDict[RequestedLink, Decision | None]] = {}

    def expect(self, record: "RequestedLink") -> None:
        """Note that a link waits for a decision."""
        session = record.link.session
        if session in self._sessions:
            waiting = self._waiting(session)
            assert waiting is not None
            waiting[record] = None
        else:
            self._sessions[session] = record
        self._count(1)

    def take(self, record: "RequestedLink", answer: control.Answer) -> Iterable[Decision]:
        """Note an answer of the supervisor; return the answers to send now: this one and others that it delayed.

        Take each answer from the result after the one before was sent, because that may end the session.
        """
        session = record.link.session
        alone = self._sessions.get(session) is record  # delays nothing, and is not delayed
        if alone and record.state == "asked" and type(answer) in FINAL:
            self._count(-1)
            record.advance("answer")
            self._forget_session(session)
            return (answer,)  # type: ignore[return-value]  # of a type in FINAL
        return self._take_in_order(record, answer)

    def _take_in_order(self, record: "RequestedLink", answer: control.Answer) -> Iterator[Decision]:
        """Note an answer; yield the answers to send now."""
        if record.state == "answered" and isinstance(answer, pair_messages.Paired):
            yield answer  # again, because it came before the epoch that it refers to
            return
        if record.state == "asked":
            self._count(-1)
        match answer:
            case control.Postponed():
                record.advance("postpone")
            case control.Decided():
                record.advance("route")
            case _:
                record.advance("answer")
                waiting = self._waiting(record.link.session)
                if waiting is None or record not in waiting:
                    yield answer  # of a link that was decided to be routed
                    return
                waiting[record] = answer
        yield from self.due(record.link.session)

    def forget(self, record: "RequestedLink") -> Decision | None:
        """Forget a link that is about to end; return its decision if that was not executed. Call `due` next."""
        if record.state == "asked":
            self._count(-1)
        session = record.link.session
        if session not in self._sessions:
            return None
        waiting = self._waiting(session)
        return None if waiting is None else waiting.pop(record, None)

    def due(self, session: Session) -> Iterable[Decision]:
        """Return the answers of a session to send now. Take each from the result after the one before was sent."""
        if session not in self._sessions:
            return ()
        waiting = self._waiting(session)
        return () if waiting is None else self._due(session, waiting)

    def _due(self, session: Session, waiting: "OrderedDict[RequestedLink, Decision | None]") -> Iterator[Decision]:
        while waiting:
            record, answer = next(iter(waiting.items()))
            if record.state in UNDECIDED or session.ended:
                return
            del waiting[record]
            if answer is not None:
                yield answer
        self._forget_session(session)

    def _waiting(self, session: Session) -> "OrderedDict[RequestedLink, Decision | None] | None":
        """Return the links of a session that wait for answers, with their decisions; None: there are none."""
        waiting = self._sessions.get(session)
        if waiting is None or isinstance(waiting, OrderedDict):
            return waiting
        found: OrderedDict[RequestedLink, Decision | None] = OrderedDict()
        found[waiting] = None
        self._sessions[session] = found
        return found

    def _forget_session(self, session: Session) -> None:
        """Drop the entry of a session without unanswered attaches."""
        self._sessions.pop(session, None)
        if not self._sessions:
            self._sessions = {}  # an idle connection keeps no room for them
