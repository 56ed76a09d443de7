"""Look-ups: whether the address that a client of an edge router attaches to is of a link route beyond the uplink
(inter-router.md 14.5). No I/O here.

The decision about the attach waits for the answer. Without one in time it is made as if there were no such link route.
Meanwhile the proxy of a sender is attached already (`expect`), except for an address that was of a link route when it
was asked about last.
"""

import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from router.addressing.address import normalise
from router.addressing.settings import NETWORK
from router.config.roles import EDGE, INTER_EDGE
from router.control.messages import Attach
from supervisor.connections.connections import Connection
from supervisor.edge import messages
from supervisor.edge.bundles import takes_several
from supervisor.edge.messages import Asked, LookupAnswer
from supervisor.linkroutes.local import LinkRoutes
from supervisor.links.attach import COORDINATOR
from supervisor.processes.worker import Worker
from supervisor.runtime.waker import Waker

TIMEOUT: Final = 3.0  # seconds
IN_FLIGHT: Final = 32  # questions, each in its own message; more wait for answers
SEVERAL_IN_FLIGHT: Final = 2  # messages to a router of ours: what comes meanwhile goes together
TOGETHER: Final = 256  # questions in a message to a router of ours
TOGETHER_CHARACTERS: Final = 32768  # of their addresses, but for the first
MOST_ROUTED: Final = 1000  # addresses of link routes that are remembered
NEVER: Final = math.inf

# Attaches a proxy for the address with a key. Returns what to call once the attach that it is for is decided, or is
# not any more. None: there is no early proxy.
Expect = Callable[[str], Callable[[], None] | None]


class Beyond:
    """What the interior says: a link route with containers, or without."""

    def __init__(self, connection: Connection, served: bool) -> None:
        self.connection = connection
        self.served = served


class Question(Struct):
    """A question without an answer: about an attach, or to know that all sent before it is answered. Owner: the
    look-ups."""

    place: tuple[int, int]  # connection and link; of no attach: 0 and a number of its own
    text: str  # the address
    sends: bool  # a client wants to send to it
    due: float
    decide: Callable[[Beyond | None], None]
    key: str | None  # of the address that it is bound to if there is no link route; None: no proxy before the answer
    over: Callable[[], None] | None = None  # ends what is expected, see Expect

    def end(self, beyond: Beyond | None) -> None:
        """Decide. What the decision needs is wanted by then, so it is not closed."""
        try:
            self.decide(beyond)
        finally:
            self.drop()

    def drop(self) -> None:
        """Nothing is expected because of it any more."""
        if self.over is not None:
            self.over()
            self.over = None

    def forget(self) -> None:
        """Nobody waits for its answer any more; its place among those of its message is left."""
        self.drop()
        self.decide, self.key = _nobody, None


class Lookups:
    """All look-ups. Owner: the uplink."""

    def __init__(self, link_routes: LinkRoutes, waker: Waker, scope: Callable[[str], str]) -> None:
        """scope(name): how far a mobile address may be known."""
        self._scope = scope
        self._link_routes = link_routes
        self._waker = waker
        self._send: Callable[[bytes], bool] | None = None
        self._expect: Expect | None = None
        self._connection: Connection | None = None  # the uplink
        self._routed: OrderedDict[str, None] = OrderedDict()  # addresses of link routes; asked about last is last
        self._reply_to = ""
        self._numbers = itertools.count(1)
        self.unanswered = 0  # given up, or with an answer that says nothing
        self._several = False  # the interior router takes several questions in a message
        self._asked: OrderedDict[str, list[Question]] = OrderedDict()  # by correlation-id, in order of time
        self._places: dict[int, dict[int, Question]] = {}  # the same by connection and link
        self._waiting = WaitingQuestions()

    def __len__(self) -> int:
        return sum(map(len, self._asked.values())) + len(self._waiting)

    def use(
        self, connection: Connection, reply_to: str, send: Callable[[bytes], bool], expect: Expect | None = None
    ) -> None:
        """Questions go there from now on."""
        if connection is not self._connection:
            self._routed.clear()
        self._connection, self._reply_to, self._send, self._expect = connection, reply_to, send, expect
        self._several = takes_several(connection)

    def lost(self) -> None:
        """The uplink is gone: decide without it."""
        self._send = self._expect = self._connection = None
        self._routed.clear()
        self.give_up()

    def give_up(self) -> None:
        """Decide all that wait as if nothing were beyond."""
        questions = [each for correlation_id in list(self._asked) for each in self._take(correlation_id)]
        questions += self._waiting.take(len(self._waiting), math.inf)
        for question in questions:
            question.end(None)

    def ask(
        self,
        worker: Worker,
        connection: Connection,
        attach: Attach,
        decide: Callable[[Worker, Attach, Beyond | None], None],
        sends_to: Callable[[Attach], str | None],
    ) -> bool:
        """Ask about the address of an attach, if there is somebody to ask; `decide` is called with what is beyond.
        sends_to(attach): the key of the address of an ordinary sender.

        False: decide now.
        """
        if self._send is None or connection.origin.role in (EDGE, INTER_EDGE):
            return False
        text = asked_about(attach)
        if text is None:
            return False
        if self._scope(normalise(text)) != NETWORK:
            return False
        local = self._link_routes.match(attach.dir, normalise(text))
        if local is not None and local.containers:
            return False
        early = sends_to(attach) if local is None else None
        place = connection.number, attach.link
        self._add(place, text, attach.dir == "in", lambda beyond: decide(worker, attach, beyond), early)
        return True

    def after_answers(self, text: str, action: Callable[[], None]) -> None:
        """Call `action` when the interior has done what it was sent before: its answer to a look-up says so.

        text: the address to ask about. Also called when there is nobody to ask, or no answer in time.
        """
        if self._send is None:
            action()
        else:
            self._add((0, next(self._numbers)), text, True, lambda _: action(), None)

    def _add(
        self,
        place: tuple[int, int],
        text: str,
        sends: bool,
        decide: Callable[[Beyond | None], None],
        early: str | None,
    ) -> None:
        self._waiting.add(Question(place, text, sends, time.monotonic() + TIMEOUT, decide, early))
        if not self._several:
            self._send_some()  # else with all others of this wake

    def _send_some(self) -> None:
        most = (TOGETHER, TOGETHER_CHARACTERS) if self._several else (1, 0)
        in_flight = SEVERAL_IN_FLIGHT if self._several else IN_FLIGHT
        while len(self._asked) < in_flight and self._send is not None and (questions := self._waiting.take(*most)):
            correlation_id = f"client-{int(time.time()):016x}{next(self._numbers) & 0xFFFFFFFF:08x}"
            asked = [Asked(each.text, each.sends) for each in questions]
            if not self._send(messages.lookup(asked, self._several, self._reply_to, correlation_id)):
                for question in questions:
                    question.end(None)
                continue
            self._asked[correlation_id] = questions
            for question in questions:
                connection, link = question.place
                self._places.setdefault(connection, {})[link] = question
                if question.key is not None and self._expect is not None and question.text not in self._routed:
                    question.over = self._expect(question.key)

    def answered(self, answer: LookupAnswer) -> None:
        """The interior has answered."""
        questions = self._take(answer.correlation_id)
        if not questions:
            return  # it came too late
        found = answer.found
        if answer.status not in (messages.FOUND, messages.NOT_FOUND) or len(found) != len(questions):
            self.unanswered += len(questions)
            found = bytes((messages.NO_LINK_ROUTE,)) * len(questions)
        self._send_some()
        for question, kind in zip(questions, found, strict=True):
            beyond = None
            if kind != messages.NO_LINK_ROUTE and self._connection is not None:
                beyond = Beyond(self._connection, kind == messages.SERVED)
            if question.key is not None:
                self._remember(question.text, beyond is not None)
            question.end(beyond)

    def _remember(self, text: str, routed: bool) -> None:
        """An address that a client sends to is of a link route, or of none."""
        self._routed.pop(text, None)
        if routed:
            self._routed[text] = None
            if len(self._routed) > MOST_ROUTED:
                self._routed.popitem(last=False)

    def _take(self, correlation_id: str) -> list[Question]:
        """Remove and return the questions of a message."""
        questions = self._asked.pop(correlation_id, [])
        for question in questions:
            connection, link = question.place
            if self._places.get(connection, {}).get(link) is question:
                self._leave(connection, link)
        return questions

    def _leave(self, connection: int, link: int) -> None:
        del self._places[connection][link]
        if not self._places[connection]:
            del self._places[connection]

    def forget(self, conn: int, link: int) -> None:
        """A link is gone."""
        question = self._places.get(conn, {}).get(link)
        if question is not None:
            self._leave(conn, link)
            question.forget()
        self._waiting.forget(conn, link)

    def forget_connection(self, conn: int) -> None:
        """A connection is gone, with all its links."""
        for question in self._places.pop(conn, {}).values():
            question.forget()
        self._waiting.forget_connection(conn)

    @property
    def deadline(self) -> float:
        """When the next question is given up."""
        first = next(iter(self._asked.values()), None)
        return min(NEVER if first is None else first[0].due, self._waiting.due)

    def step(self) -> None:
        """Ask what has come in this wake, and give up what has no answer in time."""
        self._send_some()
        now = time.monotonic()
        if now < self.deadline:
            return
        late = [each for each, questions in self._asked.items() if questions[0].due <= now]
        questions = [question for each in late for question in self._take(each)]
        questions += self._waiting.take_due(now)
        self.unanswered += len(questions)
        for question in questions:
            question.end(None)
        self._send_some()


class WaitingQuestions:
    """Questions that are not sent yet: connections take turns, whatever each of them has asked. Owner: the look-ups."""

    def __init__(self) -> None:
        self._by_connection: OrderedDict[int, OrderedDict[int, Question]] = OrderedDict()  # by link, in order
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, question: Question) -> None:
        """A question comes."""
        connection, link = question.place
        self._by_connection.setdefault(connection, OrderedDict())[link] = question
        self._count += 1

    def take(self, most: int, characters: float) -> list[Question]:
        """Remove and return the next ones, of at most so many characters, but one at least."""
        taken: list[Question] = []
        while self._by_connection and len(taken) < most:
            connection, questions = next(iter(self._by_connection.items()))
            question = next(iter(questions.values()))
            characters -= len(question.text)
            if taken and characters < 0:
                break
            self._remove(connection, question.place[1])
            taken.append(question)
            if connection in self._by_connection:
                self._by_connection.move_to_end(connection)
        return taken

    def _remove(self, connection: int, link: int) -> None:
        questions = self._by_connection[connection]
        del questions[link]
        self._count -= 1
        if not questions:
            del self._by_connection[connection]

    def forget(self, connection: int, link: int) -> None:
        """A link is gone."""
        if link in self._by_connection.get(connection, ()):
            self._remove(connection, link)

    def forget_connection(self, connection: int) -> None:
        """A connection is gone."""
        self._count -= len(self._by_connection.pop(connection, ()))

    @property
    def due(self) -> float:
        """When the first one is given up."""
        return min((next(iter(each.values())).due for each in self._by_connection.values()), default=NEVER)

    def take_due(self, now: float) -> list[Question]:
        """Remove and return those that are to be given up."""
        late = [each for questions in self._by_connection.values() for each in questions.values() if each.due <= now]
        for question in late:
            self._remove(*question.place)
        return late


def _nobody(beyond: Beyond | None) -> None:
    """Nobody waits for this answer."""
    del beyond


def asked_about(attach: Attach) -> str | None:
    """The address that an attach may reach by a link route of another router; None: it has none."""
    if attach.coordinator:
        return COORDINATOR
    if attach.dynamic or not attach.address:
        return None
    return attach.address if attach.tenant is None else attach.tenant + normalise(attach.address)
