"""Look-ups: questions to the interior router whether an address belongs to a link route behind the uplink
(inter-router.md 14.5).

A client's attach waits for the answer; without an answer in time it is decided as if there were no such link route.
Meanwhile the proxy link of a sender is attached (`expect`), unless the last answer about its address named a link
route. No I/O here.
"""

import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from sluice.router.addressing.address import normalise
from sluice.router.addressing.settings import NETWORK
from sluice.router.config.roles import EDGE, INTER_EDGE
from sluice.router.control.messages import Attach
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge import messages
from sluice.supervisor.edge.bundles import supports_lookup_batches
from sluice.supervisor.edge.messages import LookupAddress, LookupAnswer
from sluice.supervisor.linkroutes.local import LocalLinkRoutes
from sluice.supervisor.links.attach import COORDINATOR
from sluice.supervisor.runtime.waker import Waker

TIMEOUT: Final = 3.0  # seconds
IN_FLIGHT: Final = 32  # unanswered messages to a 1.19 router, with one question each
SEVERAL_IN_FLIGHT: Final = 2  # unanswered messages to a Sluice router; further questions are batched meanwhile
TOGETHER: Final = 256  # questions in one message to a Sluice router
TOGETHER_CHARACTERS: Final = 32768  # bound on the characters of the addresses in one message, except the first
MOST_ROUTED: Final = 1000  # remembered addresses of link routes
NEVER: Final = math.inf

# Attach a proxy early for the address with a key. Return a function to call once the client's attach is decided or
# withdrawn; None if there is no early proxy.
Expect = Callable[[str], Callable[[], None] | None]


class RemoteLinkRoute:
    """Link route at the interior router. served: it has a container."""

    def __init__(self, connection: RegisteredConnection, served: bool) -> None:
        self.connection = connection
        self.served = served


class PendingLookup(Struct):
    """Unanswered question: about an attach, or to learn that everything sent before it has been processed. Owner: the
    look-ups."""

    place: tuple[int, int]  # numbers of connection and link; without an attach: 0 and a number of its own
    text: str  # the address
    sends: bool  # the client's link sends to the router
    due: float  # monotonic time at which the question expires
    decide: Callable[[RemoteLinkRoute | None], None]
    key: str | None  # key of the address for an early proxy; None: no early proxy
    over: Callable[[], None] | None = None  # releases the early proxy, see Expect

    def end(self, beyond: RemoteLinkRoute | None) -> None:
        """Decide, then release the early proxy: a proxy that the decision needs is in use by then."""
        try:
            self.decide(beyond)
        finally:
            self.drop()

    def drop(self) -> None:
        """Release the early proxy."""
        if self.over is not None:
            self.over()
            self.over = None

    def forget(self) -> None:
        """Withdraw the question. Its position among the questions of its message stays."""
        self.drop()
        self.decide, self.key = _nobody, None


class Lookups:
    """All look-ups. Owner: the uplink. brokers-and-edge.md 9.5."""

    def __init__(self, link_routes: LocalLinkRoutes, waker: Waker, scope: Callable[[str], str]) -> None:
        """scope(name): returns the configured scope of a mobile address."""
        self._scope = scope
        self._link_routes = link_routes
        self._waker = waker
        self._send: Callable[[bytes], bool] | None = None
        self._expect: Expect | None = None
        self._connection: RegisteredConnection | None = None  # the uplink
        self._routed: OrderedDict[str, None] = OrderedDict()  # addresses of link routes, latest look-up last
        self._reply_to = ""
        self._numbers = itertools.count(1)
        self.unanswered = 0  # count of questions without a usable answer
        self._several = False  # the interior router accepts several questions in one message
        self._asked: OrderedDict[str, list[PendingLookup]] = (
            OrderedDict()
        )  # sent questions by correlation-id, oldest first
        self._places: dict[int, dict[int, PendingLookup]] = {}  # sent questions by connection and link
        self._waiting = WaitingQuestions()

    def __len__(self) -> int:
        return sum(map(len, self._asked.values())) + len(self._waiting)

    def use(
        self,
        connection: RegisteredConnection,
        reply_to: str,
        send: Callable[[bytes], bool],
        expect: Expect | None = None,
    ) -> None:
        """Send questions to an interior router from now on."""
        if connection is not self._connection:
            self._routed.clear()
        self._connection, self._reply_to, self._send, self._expect = connection, reply_to, send, expect
        self._several = supports_lookup_batches(connection)

    def lost(self) -> None:
        """Decide all questions without an answer: the uplink is lost."""
        self._send = self._expect = self._connection = None
        self._routed.clear()
        self.give_up()

    def give_up(self) -> None:
        """Decide all questions as if there were no link route behind the uplink."""
        questions = [each for correlation_id in list(self._asked) for each in self._take(correlation_id)]
        questions += self._waiting.take(len(self._waiting), math.inf)
        for question in questions:
            question.end(None)

    def ask(
        self,
        worker: WorkerProcess,
        connection: RegisteredConnection,
        attach: Attach,
        decide: Callable[[WorkerProcess, Attach, RemoteLinkRoute | None], None],
        mobile_key_of_sender: Callable[[Attach], str | None],
    ) -> bool:
        """Ask about the address of an attach; `decide` is called with the answer. Return False if no look-up is needed
        or possible: the caller decides now.

        mobile_key_of_sender(attach): returns the key of the address of an ordinary sender.
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
        early = mobile_key_of_sender(attach) if local is None else None
        place = connection.number, attach.link
        self._add(place, text, attach.dir == "in", lambda beyond: decide(worker, attach, beyond), early)
        return True

    def after_answers(self, text: str, action: Callable[[], None]) -> None:
        """Call `action` when the interior router has processed everything sent so far, which its answer to a look-up
        proves. Without an uplink, or without an answer in time, call it, too.

        text: the address of the look-up.
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
        decide: Callable[[RemoteLinkRoute | None], None],
        early: str | None,
    ) -> None:
        self._waiting.add(PendingLookup(place, text, sends, time.monotonic() + TIMEOUT, decide, early))
        if not self._several:
            self._send_some()  # otherwise `step` sends all questions of this wake together

    def _send_some(self) -> None:
        most = (TOGETHER, TOGETHER_CHARACTERS) if self._several else (1, 0)
        in_flight = SEVERAL_IN_FLIGHT if self._several else IN_FLIGHT
        while len(self._asked) < in_flight and self._send is not None and (questions := self._waiting.take(*most)):
            correlation_id = f"client-{int(time.time()):016x}{next(self._numbers) & 0xFFFFFFFF:08x}"
            asked = [LookupAddress(each.text, each.sends) for each in questions]
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
        """Decide the questions of an answered message."""
        questions = self._take(answer.correlation_id)
        if not questions:
            return  # the answer came too late
        found = answer.found
        if answer.status not in (messages.FOUND, messages.NOT_FOUND) or len(found) != len(questions):
            self.unanswered += len(questions)
            found = bytes((messages.NO_LINK_ROUTE,)) * len(questions)
        self._send_some()
        for question, kind in zip(questions, found, strict=True):
            beyond = None
            if kind != messages.NO_LINK_ROUTE and self._connection is not None:
                beyond = RemoteLinkRoute(self._connection, kind == messages.SERVED)
            if question.key is not None:
                self._remember(question.text, beyond is not None)
            question.end(beyond)

    def _remember(self, text: str, routed: bool) -> None:
        """Remember whether an address belongs to a link route, for the early proxy of the next sender."""
        self._routed.pop(text, None)
        if routed:
            self._routed[text] = None
            if len(self._routed) > MOST_ROUTED:
                self._routed.popitem(last=False)

    def _take(self, correlation_id: str) -> list[PendingLookup]:
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
        """Withdraw the question of a detached link."""
        question = self._places.get(conn, {}).get(link)
        if question is not None:
            self._leave(conn, link)
            question.forget()
        self._waiting.forget(conn, link)

    def forget_connection(self, conn: int) -> None:
        """Withdraw all questions of a closed connection."""
        for question in self._places.pop(conn, {}).values():
            question.forget()
        self._waiting.forget_connection(conn)

    @property
    def deadline(self) -> float:
        """Monotonic time at which the next question expires."""
        first = next(iter(self._asked.values()), None)
        return min(NEVER if first is None else first[0].due, self._waiting.due)

    def step(self) -> None:
        """Send the questions of this wake, and decide those that have expired."""
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
    """Questions that wait to be sent, taken from the connections in rotation. Owner: the look-ups."""

    def __init__(self) -> None:
        self._by_connection: OrderedDict[int, OrderedDict[int, PendingLookup]] = OrderedDict()  # by link, in order
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, question: PendingLookup) -> None:
        """Add a question."""
        connection, link = question.place
        self._by_connection.setdefault(connection, OrderedDict())[link] = question
        self._count += 1

    def take(self, most: int, characters: float) -> list[PendingLookup]:
        """Remove and return the next questions: at most `most`, with at most `characters` in their addresses, but at
        least one."""
        taken: list[PendingLookup] = []
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
        """Remove the question of a detached link."""
        if link in self._by_connection.get(connection, ()):
            self._remove(connection, link)

    def forget_connection(self, connection: int) -> None:
        """Remove the questions of a closed connection."""
        self._count -= len(self._by_connection.pop(connection, ()))

    @property
    def due(self) -> float:
        """Monotonic time at which the first question expires."""
        return min((next(iter(each.values())).due for each in self._by_connection.values()), default=NEVER)

    def take_due(self, now: float) -> list[PendingLookup]:
        """Remove and return the expired questions."""
        late = [each for questions in self._by_connection.values() for each in questions.values() if each.due <= now]
        for question in late:
            self._remove(*question.place)
        return late


def _nobody(beyond: RemoteLinkRoute | None) -> None:
    """Ignore the answer to a withdrawn question."""
    del beyond


def asked_about(attach: Attach) -> str | None:
    """Return the address that a link route of another router may serve for an attach; None if there is no address."""
    if attach.coordinator:
        return COORDINATOR
    if attach.dynamic or not attach.address:
        return None
    return attach.address if attach.tenant is None else attach.tenant + normalise(attach.address)
