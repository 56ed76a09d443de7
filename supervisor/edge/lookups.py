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
from supervisor.edge.messages import LookupAnswer
from supervisor.linkroutes.local import LinkRoutes
from supervisor.links.attach import COORDINATOR
from supervisor.processes.worker import Worker
from supervisor.runtime.waker import Waker

TIMEOUT: Final = 3.0  # seconds
IN_FLIGHT: Final = 32  # questions; more wait for answers
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
    """What waits for an answer: an attach, or somebody who wants to know that all before it is answered. Owner: the
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
        """Nobody waits for it any more."""
        if self.over is not None:
            self.over()
            self.over = None


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
        self._asked: OrderedDict[str, Question] = OrderedDict()  # by correlation-id, in order of time
        self._waiting: OrderedDict[tuple[int, int], Question] = OrderedDict()  # by connection and link, not sent yet

    def __len__(self) -> int:
        return len(self._asked) + len(self._waiting)

    def use(
        self, connection: Connection, reply_to: str, send: Callable[[bytes], bool], expect: Expect | None = None
    ) -> None:
        """Questions go there from now on."""
        if connection is not self._connection:
            self._routed.clear()
        self._connection, self._reply_to, self._send, self._expect = connection, reply_to, send, expect

    def lost(self) -> None:
        """The uplink is gone: decide without it."""
        self._send = self._expect = self._connection = None
        self._routed.clear()
        self.give_up()

    def give_up(self) -> None:
        """Decide all that wait as if nothing were beyond."""
        questions = [*self._asked.values(), *self._waiting.values()]
        self._asked.clear()
        self._waiting.clear()
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
        self._waiting[place] = Question(place, text, sends, time.monotonic() + TIMEOUT, decide, early)
        self._send_some()

    def _send_some(self) -> None:
        while self._waiting and len(self._asked) < IN_FLIGHT and self._send is not None:
            _, question = self._waiting.popitem(last=False)
            correlation_id = f"client-{int(time.time()):016x}{next(self._numbers) & 0xFFFFFFFF:08x}"
            octets = messages.lookup(question.text, question.sends, self._reply_to, correlation_id)
            if self._send(octets):
                self._asked[correlation_id] = question
                if question.key is not None and self._expect is not None and question.text not in self._routed:
                    question.over = self._expect(question.key)
            else:
                question.end(None)

    def answered(self, answer: LookupAnswer) -> None:
        """The interior has answered."""
        question = self._asked.pop(answer.correlation_id, None)
        if question is None:
            return  # it came too late
        beyond = None
        self.unanswered += answer.status not in (messages.FOUND, messages.NOT_FOUND)
        if answer.status == messages.FOUND and answer.is_link_route and self._connection is not None:
            beyond = Beyond(self._connection, answer.has_destinations)
        if question.key is not None:
            self._remember(question.text, beyond is not None)
        self._send_some()
        question.end(beyond)

    def _remember(self, text: str, routed: bool) -> None:
        """An address that a client sends to is of a link route, or of none."""
        self._routed.pop(text, None)
        if routed:
            self._routed[text] = None
            if len(self._routed) > MOST_ROUTED:
                self._routed.popitem(last=False)

    def forget(self, conn: int, link: int) -> bool:
        """A link is gone. True: it waited for an answer."""
        if self._waiting.pop((conn, link), None) is not None:
            return True
        for correlation_id, question in self._asked.items():
            if question.place == (conn, link):
                del self._asked[correlation_id]
                question.drop()
                return True
        return False

    def forget_connection(self, conn: int) -> None:
        """A connection is gone, with all its links."""
        for link in [link for number, link in self._waiting if number == conn]:
            del self._waiting[conn, link]
        for each in [each for each, question in self._asked.items() if question.place[0] == conn]:
            self._asked.pop(each).drop()

    @property
    def deadline(self) -> float:
        """When the next question is given up."""
        first = next(iter(self._asked.values()), None) or next(iter(self._waiting.values()), None)
        return NEVER if first is None else first.due

    def step(self) -> None:
        """Give up what has no answer in time."""
        now = time.monotonic()
        if now < self.deadline:
            return
        late = [each for each, question in self._asked.items() if question.due <= now]
        questions = [self._asked.pop(each) for each in late]
        waiting = [place for place, question in self._waiting.items() if question.due <= now]
        questions += [self._waiting.pop(place) for place in waiting]
        self.unanswered += len(questions)
        for question in questions:
            question.end(None)
        if late:
            self._send_some()


def asked_about(attach: Attach) -> str | None:
    """The address that an attach may reach by a link route of another router; None: it has none."""
    if attach.coordinator:
        return COORDINATOR
    if attach.dynamic or not attach.address:
        return None
    return attach.address if attach.tenant is None else attach.tenant + normalise(attach.address)
