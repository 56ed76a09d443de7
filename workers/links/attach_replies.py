"""Order of the answers to attaches: that of the attaches of their session (routing-semantics.md A-16a).

The supervisor decides in that order, but some decisions wait for acknowledgements of workers. A client that attaches a
receiver for replies and then a sender must have its reply address before it has credit. A container may answer a
routed link at any time, and its answer delays no others.

An attach that waits for another router does not count as one that the supervisor has to decide. The other router's
answer may arrive by a connection of this worker, on which attaches are not taken while too many undecided ones wait.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from router.amqp.session import Session

from router.control import messages as control

if TYPE_CHECKING:
    from workers.links.record import LinkRecord

Decision = control.Attached | control.Refused | control.Paired


class AttachReplies:
    """Attaches of a connection without an answer, and answers that wait for earlier ones. Owner: the client."""

    __slots__ = ("_count", "_sessions")

    def __init__(self, count: Callable[[int], None]) -> None:
        """Create it empty. count(n): called with each change of the number of attaches that wait for the supervisor's
        decision."""
        self._count = count
        # Answers by link number, in the order of the attaches; None: not decided yet. `Decided` delays no other
        # answer; the one that follows it is sent when it arrives. `Postponed` delays others until the answer that
        # follows it.
        self._sessions: dict[Session, OrderedDict[int, control.Answer | None]] = {}

    def expect(self, record: "LinkRecord") -> None:
        """Note that a link waits for a decision."""
        self._sessions.setdefault(record.link.session, OrderedDict())[record.number] = None
        self._count(1)

    def take(self, record: "LinkRecord", answer: control.Answer) -> Iterator[Decision]:
        """Note an answer of the supervisor; yield the answers to send now: this one and others that it delayed."""
        session = record.link.session
        waiting = self._sessions.get(session)
        if waiting is None or record.number not in waiting:
            if not isinstance(answer, control.Decided | control.Postponed):
                yield answer  # for a link that the router attached, or one decided to be routed
            return
        if waiting[record.number] is None:
            self._count(-1)
        waiting[record.number] = answer
        yield from self.due(session)

    def forget(self, record: "LinkRecord") -> control.Answer | None:
        """Forget a link that has ended; return its answer, if there was one. Call `due` next."""
        waiting = self._sessions.get(record.link.session)
        if waiting is None or record.number not in waiting:
            return None
        answer = waiting.pop(record.number)
        if answer is None:
            self._count(-1)
        return None if isinstance(answer, control.Postponed) else answer

    def due(self, session: Session) -> Iterator[Decision]:
        """Yield the answers of a session to send now."""
        waiting = self._sessions.get(session)
        if waiting is None:
            return
        while waiting:
            number, answer = next(iter(waiting.items()))
            if answer is None or isinstance(answer, control.Postponed) or session.ended:
                return
            del waiting[number]
            if not isinstance(answer, control.Decided):
                yield answer
        self._sessions.pop(session, None)
        if not self._sessions:
            self._sessions = {}  # an idle connection keeps no room for them
