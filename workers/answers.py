"""Answers to attaches leave in the order in which the attaches of their session came (routing semantics, A-16a).

The supervisor decides in that order, but some decisions wait until workers know of them. A client that attaches a
receiver for replies and then a sender may send when it has credit: it is to have its reply address by then. What a
container says to an attach that a link route gives it comes when it comes, and nobody waits for that.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from router.amqp.session import Session

from router.ipc import control

if TYPE_CHECKING:
    from workers.links import LinkRecord


class Answers:
    """Attaches of a connection that have no answer yet, and answers that wait for earlier ones. Owner: the client."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        # By number of the link, in the order of the attaches; None: not decided yet. A `decided` holds up no other,
        # and the answer behind it has its turn when it comes.
        self._sessions: dict[Session, OrderedDict[int, control.Message | None]] = {}

    def expect(self, record: "LinkRecord") -> None:
        """A link has asked the supervisor."""
        self._sessions.setdefault(record.link.session, OrderedDict())[record.number] = None

    def take(self, record: "LinkRecord", answer: control.Message) -> Iterator[control.Message]:
        """The supervisor's answer for a link: those whose turn it is now, this one and others that it held up."""
        session = record.link.session
        waiting = self._sessions.get(session)
        if waiting is None or record.number not in waiting:
            if answer["t"] != control.DECIDED:
                yield answer  # for a link of ours, or one that was decided to be routed
            return
        waiting[record.number] = answer
        yield from self.due(session)

    def forget(self, record: "LinkRecord") -> control.Message | None:
        """A link is gone: the answer that nobody waits for now, if there was one. `due` is to follow."""
        waiting = self._sessions.get(record.link.session)
        return None if waiting is None else waiting.pop(record.number, None)

    def due(self, session: Session) -> Iterator[control.Message]:
        """Answers of a session whose turn it is now."""
        waiting = self._sessions.get(session)
        if waiting is None:
            return
        while waiting:
            number, answer = next(iter(waiting.items()))
            if answer is None or session.ended:
                return
            del waiting[number]
            if answer["t"] != control.DECIDED:
                yield answer
        self._sessions.pop(session, None)
