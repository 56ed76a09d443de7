"""Agent: receives messages to the management addresses, and sends the answers.

Does no input or output: `handle` is called with each message, `send` with each answer, and `later` schedules a call
after other events. A long answer is made in slices. management.md 5.1.
"""

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sluice.router.addressing.address import escapes_tenant_prefix, is_temporary, normalise
from sluice.router.amqp import codec
from sluice.router.config.roles import BETWEEN_ROUTERS, EDGE
from sluice.router.config.schema import SCHEMA
from sluice.router.log import CRITICAL, DEBUG, ERROR, WARNING, ProcessLog
from sluice.router.policy.management import UNLIMITED, ManagementRights
from sluice.router.ring.region import Region
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.audit.requests import RequestAudit
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.management.access import LINK_ROUTE, permit
from sluice.supervisor.management.addresses import AddressCoreType
from sluice.supervisor.management.connection_link_routes import ConnectionLinkRoutes
from sluice.supervisor.management.connections import ConnectionCoreType
from sluice.supervisor.management.context import AgentContext, Changes
from sluice.supervisor.management.core_type import CoreType
from sluice.supervisor.management.links import LinkCoreType
from sluice.supervisor.management.query_rows import MOST_VALUES, count
from sluice.supervisor.management.remote import RemoteAgents
from sluice.supervisor.management.request import Request, decode
from sluice.supervisor.management.response import (
    BAD_REQUEST,
    INTERNAL_ERROR,
    Outcome,
    Response,
    StatusError,
    Steps,
    encode,
)
from sluice.supervisor.management.router import ConsoleCoreType, RouterType
from sluice.supervisor.management.settings import (
    ConfiguredAddresses,
    ConfiguredAutoLinks,
    ConfiguredBindings,
    ConfiguredExchanges,
    ConfiguredLinkRoutes,
    ConfiguredNumbers,
    ConfiguredTaps,
)
from sluice.supervisor.management.store import Store
from sluice.supervisor.management.trace import trace as _trace  # noqa: F401 - registers the operation

# Short names that mean the store's form, which differs from the rows of the core.
STORED: Final = ("router", "console")

SLICE: Final = 0.002  # seconds that an answer may take before other events are handled
MAX_UNFINISHED: Final = 16  # limit of unfinished answers; further requests wait, and connections take turns
# Limits for one connection: answers that wait, and octets kept for them. Further requests wait.
MAX_WAITING: Final = 256
MAX_WAITING_OCTETS: Final = 1 << 20
# Operations whose success is reported when all workers use the change. Those on connections are excluded: closing one
# waits for no worker, and `ConnectionCoreType` answers other changes when they are in force.
CHANGING: Final = frozenset({"CREATE", "UPDATE", "DELETE"})
_SHOWN: Final = 500  # characters of an answer in the log

# Function of address, octets of a message and preferred worker; returns whether there is a receiver.
Send = Callable[[str, bytes, int], bool]


class _UnfinishedAnswer(NamedTuple):
    """Unfinished answer."""

    request: Request
    steps: Steps


class _WaitingAnswers:
    """Waiting answers of one connection."""

    __slots__ = ("changes", "count", "octets")

    def __init__(self) -> None:
        self.count = 0
        self.octets = 0
        self.changes = 0  # pending changes of the configuration, for which later requests wait

    @property
    def full(self) -> bool:
        return self.count >= MAX_WAITING or self.octets >= MAX_WAITING_OCTETS or self.changes > 0


class Agent:
    """Management agent. Owner: supervisor."""

    def __init__(
        self,
        core: RouterCore,
        region: Region,
        log: ProcessLog,
        changes: Changes,
        version: str,
        send: Send,
        later: Callable[[Callable[[], None]], object],
        go_on: Callable[[], None],
    ) -> None:
        """version: of the router. later(function): calls `function` after other events. go_on(): called when `ready`
        becomes true.
        """
        self._log = log
        self._send = send
        self._later = later
        self._go_on = go_on
        remote_agents = RemoteAgents(core.waker, send)
        self.context = AgentContext(core, region, log, changes, version, self.answer, later, remote_agents)
        self._store = Store(self.context)
        self._audit = RequestAudit(core.audit, core.connections.opened.get)
        self._types: dict[str, CoreType] = {each.name: each for each in self._core_types()}
        self._jobs: deque[_UnfinishedAnswer] = deque()
        self._called = False
        self._waiting: dict[int | None, _WaitingAnswers] = {}  # by connection number

    def _core_types(self) -> list[CoreType]:
        context = self.context
        identities = ConfiguredNumbers(context)
        return [
            RouterType(context),
            LinkCoreType(context),
            AddressCoreType(context),
            ConnectionCoreType(context),
            ConfiguredAddresses(context, identities),
            ConfiguredLinkRoutes(context, identities),
            ConfiguredAutoLinks(context, identities),
            ConfiguredExchanges(context, identities),
            ConfiguredBindings(context, identities),
            ConfiguredTaps(context, identities),
            ConnectionLinkRoutes(context),
            ConsoleCoreType(context),
        ]

    def ready(self, connection: int | None = None) -> bool:
        """Return whether another request of a connection can be accepted."""
        waiting = self._waiting.get(connection)
        return len(self._jobs) < MAX_UNFINISHED and (waiting is None or not waiting.full)

    def handle(self, message: LocalMessage, carried: ManagementRights = UNLIMITED) -> None:
        """Answer a request, start to answer it, or take another agent's answer to a request of this one.

        carried: upper limit of the rights of a request, from its address.
        """
        request = decode(message.worker_index, message.connection_number, message.octets)
        if self.context.remote_agents.answered(request):
            return
        request.rights = self.context.core.policy.rights(message.connection_number).limited(carried)
        request.reply_to = self._reply_to(request)
        if self._log.enabled("AGENT", DEBUG):
            self._log.debug("AGENT", f"Agent request {request}")
        else:
            self._log.count("AGENT", DEBUG)
        self._begin(request)

    def _reply_to(self, request: Request) -> str | None:
        """Return the address for the answer, or None if the client may not send to that address."""
        text = request.reply_to
        connection = self.context.core.connections.opened.get(request.connection or 0)
        if text is None or connection is None or is_temporary(text):
            return text
        if not self.context.core.policy.may_send(connection, text):
            why = f"[C{connection.number}] A management request gets no answer: policy forbids its reply-to '{text}'"
            self._log.repeated(WARNING, "AGENT", "reply-to", why)
            return None
        if connection.tenant is None:
            return text
        name = normalise(text)
        return None if escapes_tenant_prefix(name) else connection.tenant + name

    def _begin(self, request: Request) -> None:
        """Dispatch a request. An answer that takes more than a slice continues later."""
        kind = self._core_type(request)
        if request.reply_to is None and kind is None:
            return  # no answer would be possible (management.md 5.2)
        try:
            outcome = self._audit.follow(request, lambda: self._dispatch(request, kind))
        except StatusError as error:
            self._fail(request, error)
            return
        except Exception:  # noqa: BLE001 - logged with its traceback, and answered
            self._fault(request)
            return
        if isinstance(outcome, Response):
            self._complete(request, outcome)
        elif outcome is not None:
            self._run(_UnfinishedAnswer(request, outcome))

    def _changes(self, request: Request) -> bool:
        """Return whether a request changes the configuration."""
        return (request.operation or "").upper() in CHANGING and not isinstance(
            self._core_type(request), ConnectionCoreType
        )

    def _complete(self, request: Request, response: Response) -> None:
        """Send a complete answer; after a change, once all workers use it."""
        if not self._changes(request):
            self._finish(request, response)
            return
        request.shrink()
        let_go = self._wait(request)

        def in_force() -> None:
            let_go()
            self._finish(request, response)

        self.context.core.settings.when_in_force(in_force)

    def _wait(self, request: Request, changes: int = 0) -> Callable[[], None]:
        """Count a waiting answer, and return the function that ends its wait."""
        connection, octets = request.connection, request.size
        waiting = self._waiting.setdefault(connection, _WaitingAnswers())
        waiting.count += 1
        waiting.octets += octets
        waiting.changes += changes

        def let_go() -> None:
            full = waiting.full
            waiting.count -= 1
            waiting.octets -= octets
            waiting.changes -= changes
            if not waiting.count:
                self._waiting.pop(connection, None)
            if full and self.ready(connection):
                self._go_on()

        return let_go

    def _dispatch(self, request: Request, kind: CoreType | None) -> Outcome:
        if request.fault is not None:
            raise StatusError(BAD_REQUEST, request.fault)
        if kind is None:
            return self._store.handle(request)
        if kind.name != LINK_ROUTE or not self._from_edge(request):
            permit(request, request.operation or "", kind.name)
        match request.operation:
            case "QUERY":
                return kind.query(request)
            case "READ":
                return kind.read(request)
            case "CREATE":
                return kind.create(request)
            case "UPDATE":
                return kind.update(request)
        return kind.delete(request)

    def _from_edge(self, request: Request) -> bool:
        """Return whether a request came over the connection of an edge router."""
        origin = self.context.core.connections.opened.get(request.connection or 0)
        return origin is not None and origin.origin.role == EDGE

    def _core_type(self, request: Request) -> CoreType | None:
        """Return the core type that answers, or None if the store does (management.md 5.2)."""
        if request.operation not in ("QUERY", "READ", "CREATE", "UPDATE", "DELETE"):
            return None
        given = request.text("entityType") or request.text("type")
        if given is None or given in STORED:
            return None
        found = SCHEMA.find(given)
        return None if found is None else self._types.get(found.long_name)

    # Long answers

    def _run(self, job: _UnfinishedAnswer) -> None:
        """Work on an answer until it is complete or its slice is over."""
        until = time.monotonic() + SLICE
        awaited = None
        try:
            while awaited is None and time.monotonic() < until:
                awaited = next(job.steps)
        except StopIteration as stop:
            self._complete(job.request, stop.value)
            return
        except StatusError as error:
            self._fail(job.request, error)
            return
        except Exception:  # noqa: BLE001 - logged with its traceback, and answered
            self._fault(job.request)
            return
        if awaited is not None:
            self._park(job, awaited)
            return
        self._jobs.append(job)
        if not self._called:
            self._called = True
            self._later(self._continue)

    def _park(self, job: _UnfinishedAnswer, awaited: "asyncio.Future[Any]") -> None:
        """Continue an answer when a future is done.

        Until the change is made, no other request of its connection is answered. Connections between routers are
        excepted, because they carry requests of many clients.
        """
        origin = self.context.core.connections.opened.get(job.request.connection or 0)
        passed_on = origin is not None and origin.origin.role in BETWEEN_ROUTERS
        let_go = self._wait(job.request, int(self._changes(job.request) and not passed_on))

        def go_on(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled():  # cancelled: the router exits
                self._run(job)
            let_go()
            self._later(_nothing)  # sends the messages that resulted

        awaited.add_done_callback(go_on)

    def _continue(self) -> None:
        """Run one slice of the next answer in rotation, and accept requests again when there is room."""
        self._called = False
        full = not self.ready()
        self._run(self._jobs.popleft())
        if full and self.ready():
            self._go_on()
        if self._jobs and not self._called:
            self._called = True
            self._later(self._continue)

    # Answers

    def _fail(self, request: Request, error: StatusError) -> None:
        kind = self._core_type(request)
        target = "" if kind is None else f" of {kind.name}"
        text = f"Error performing {request.operation}{target}: {error.description}"
        self._log.repeated(ERROR, "AGENT", f"{request.operation} {error.status}", text)
        self._finish(request, Response.failed(error))

    def _fault(self, request: Request) -> None:
        """Log an internal error and report it to the client."""
        text = f"Error performing {request.operation}: {traceback.format_exc()}".rstrip()
        self._log.repeated(CRITICAL, "AGENT", f"fault {request.operation}", text)
        self._finish(request, Response(INTERNAL_ERROR))

    def _finish(self, request: Request, response: Response) -> None:
        if request.operation != "QUERY" and len(response.body) > MOST_VALUES:
            number = count(codec.decode_one(response.body))
            if number > MOST_VALUES:
                text = f"The answer has {number} values, more than the {MOST_VALUES} that clients decode: ask for less"
                response = Response(BAD_REQUEST, description=text)
        if self._log.enabled("AGENT", DEBUG):
            shown = f"Message(status={response.status} {response.text!r}, body={response.body[:_SHOWN]!r})"
            self._log.debug("AGENT", f"Agent response: {shown} Responding to: {request}")
        else:
            self._log.count("AGENT", DEBUG)
        self.answer(request, response)

    def answer(self, request: Request, response: Response) -> bool:
        """Send an answer. Returns False if there is no receiver."""
        self._audit.answered(request, response)
        if request.reply_to is None:
            return False
        octets = encode(response, request.reply_to, request.correlation_id)
        return self._send(request.reply_to, octets, request.worker)


def _nothing() -> None:
    """Do nothing."""
