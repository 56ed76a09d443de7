"""Look-ups: whether the address that a client of an edge router attaches to is of a link route beyond the uplink
(inter-router.md 14.5). No I/O here.

The decision about the attach waits for the answer. Without one in time it is made as if there were no such link route.
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
from supervisor.processes.worker import Worker
from supervisor.runtime.waker import Waker

TIMEOUT: Final = 3.0  # seconds
IN_FLIGHT: Final = 32  # questions; more wait for answers
NEVER: Final = math.inf


class Beyond:
    """What the interior says: a link route with containers, or without."""

    def __init__(self, connection: Connection, served: bool) -> None:
        self.connection = connection
        self.served = served


class Question(Struct):
    """An attach that waits. Owner: the look-ups."""

    worker: Worker
    connection: Connection
    attach: Attach
    text: str  # the address
    due: float
    decide: Callable[[Worker, Attach, Beyond | None], None]


class Lookups:
    """All look-ups. Owner: the uplink."""

    def __init__(self, link_routes: LinkRoutes, waker: Waker, scope: Callable[[str], str]) -> None:
        """scope(name): how far a mobile address may be known."""
        self._scope = scope
        self._link_routes = link_routes
        self._waker = waker
        self._send: Callable[[bytes], bool] | None = None
        self._connection: Connection | None = None  # the uplink
        self._reply_to = ""
        self._numbers = itertools.count(1)
        self.unanswered = 0  # given up, or with an answer that says nothing
        self._asked: OrderedDict[str, Question] = OrderedDict()  # by correlation-id, in order of time
        self._waiting: OrderedDict[tuple[int, int], Question] = OrderedDict()  # by connection and link, not sent yet

    def __len__(self) -> int:
        return len(self._asked) + len(self._waiting)

    def use(self, connection: Connection, reply_to: str, send: Callable[[bytes], bool]) -> None:
        """Questions go there from now on."""
        self._connection, self._reply_to, self._send = connection, reply_to, send

    def lost(self) -> None:
        """The uplink is gone: decide without it."""
        self._send = self._connection = None
        self.give_up()

    def give_up(self) -> None:
        """Decide all that wait as if nothing were beyond."""
        questions = [*self._asked.values(), *self._waiting.values()]
        self._asked.clear()
        self._waiting.clear()
        for question in questions:
            question.decide(question.worker, question.attach, None)

    def ask(
        self,
        worker: Worker,
        connection: Connection,
        attach: Attach,
        decide: Callable[[Worker, Attach, Beyond | None], None],
    ) -> bool:
        """Ask about the address of an attach, if there is somebody to ask; `decide` is called with what is beyond.

        False: decide now.
        """
        if self._send is None or connection.origin.role in (EDGE, INTER_EDGE) or attach.dynamic or attach.coordinator:
            return False
        if not attach.address:
            return False
        text = attach.address if attach.tenant is None else attach.tenant + normalise(attach.address)
        if self._scope(normalise(text)) != NETWORK:
            return False
        local = self._link_routes.match(attach.dir, normalise(text))
        if local is not None and local.containers:
            return False
        question = Question(worker, connection, attach, text, time.monotonic() + TIMEOUT, decide)
        self._waiting[connection.number, attach.link] = question
        self._send_some()
        return True

    def _send_some(self) -> None:
        while self._waiting and len(self._asked) < IN_FLIGHT and self._send is not None:
            _, question = self._waiting.popitem(last=False)
            correlation_id = f"client-{int(time.time()):016x}{next(self._numbers) & 0xFFFFFFFF:08x}"
            octets = messages.lookup(question.text, question.attach.dir == "in", self._reply_to, correlation_id)
            if self._send(octets):
                self._asked[correlation_id] = question
            else:
                question.decide(question.worker, question.attach, None)

    def answered(self, answer: LookupAnswer) -> None:
        """The interior has answered."""
        question = self._asked.pop(answer.correlation_id, None)
        if question is None:
            return  # it came too late
        beyond = None
        self.unanswered += answer.status not in (messages.FOUND, messages.NOT_FOUND)
        if answer.status == messages.FOUND and answer.is_link_route and self._connection is not None:
            beyond = Beyond(self._connection, answer.has_destinations)
        self._send_some()
        question.decide(question.worker, question.attach, beyond)

    def forget(self, conn: int, link: int) -> bool:
        """A link is gone. True: it waited for an answer."""
        if self._waiting.pop((conn, link), None) is not None:
            return True
        for correlation_id, question in self._asked.items():
            if question.connection.number == conn and question.attach.link == link:
                del self._asked[correlation_id]
                return True
        return False

    def forget_connection(self, conn: int) -> None:
        """A connection is gone, with all its links."""
        for link in [link for number, link in self._waiting if number == conn]:
            del self._waiting[conn, link]
        for each in [each for each, question in self._asked.items() if question.connection.number == conn]:
            del self._asked[each]

    @property
    def deadline(self) -> float:
        """When the next question is given up."""
        first = next(iter(self._asked.values()), None) or next(iter(self._waiting.values()), None)
        return NEVER if first is None else first.due

    def step(self) -> None:
        """Give up what has no answer in time."""
        now = time.monotonic()
        late = [each for each, question in self._asked.items() if question.due <= now]
        questions = [self._asked.pop(each) for each in late]
        waiting = [place for place, question in self._waiting.items() if question.due <= now]
        questions += [self._waiting.pop(place) for place in waiting]
        self.unanswered += len(questions)
        for question in questions:
            question.decide(question.worker, question.attach, None)
        if late:
            self._send_some()
