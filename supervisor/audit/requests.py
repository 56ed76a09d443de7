"""Audit of management requests: the requester, the operation, the changes it made, and the response.

A change of the configuration is recorded while it is made. The agent interleaves many requests but works on one at a
time, and `Audit.when_changed` calls back during that one. Values of hidden attributes are masked. So are values of
attributes that no type has: a password under a misspelt name is a password, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sluice.router.config.diff import Change
from sluice.router.config.entity import EntityConfig
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.config.schema import SCHEMA
from sluice.supervisor.audit.audit import Audit
from sluice.supervisor.audit.line import bounded_copy
from sluice.supervisor.audit.trail import DENIED, FAILURE, SUCCESS, client, host_of
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import FORBIDDEN, INTERNAL_ERROR, Outcome, Response, StatusError, Steps

CHANGING_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE"})
#: Other operations that are audited: they change something, or reveal frames, log lines, a profile of the supervisor
#: or the whole configuration.
OTHER_AUDITED_OPERATIONS: Final = frozenset({"TRACE", "PROFILE", "RELOAD", "DRAIN", "GET-LOG", "GET-CONFIGURATION"})
#: Request properties of these operations that are recorded.
RECORDED_PROPERTIES: Final = (
    *("connection", "seconds", "lines", "limit", "plan", "undo", "start", "stop"),
    *("json", "differences"),
)
MASK: Final = "*******"
UNRECORDED: Final = "An audit log cannot be written, so requests for changes are refused"

_ATTRIBUTES: Final = [attribute for each in SCHEMA.types.values() for attribute in each.attributes.values()]
_HIDDEN: Final = {
    name for each in _ATTRIBUTES if each.hidden for name in (each.name, each.old_name, each.alias) if name is not None
}
_KNOWN: Final = {name for each in _ATTRIBUTES for name in (each.name, each.old_name, each.alias) if name is not None}


class _Pending:
    """Audited request without a response yet."""

    __slots__ = ("asked", "changes", "name", "request", "target")

    def __init__(self, request: Request, operation: str) -> None:
        self.request = request  # reference that keeps id(request) unique
        self.name = operation
        kind = request.text("type") or request.text("entityType")
        self.target = {"type": kind, "name": request.name, "identity": request.identity}
        self.asked = _recorded_arguments(request, operation)
        self.changes: list[Change] = []


class RequestAudit:
    """Audit of the requests that the agent handles. Owner: the agent."""

    def __init__(self, audit: Audit, connection_of: Callable[[int], RegisteredConnection | None]) -> None:
        """Observe changes of the configuration. connection_of: return the open connection with a number."""
        self._audit: Final = audit
        self._connection_of: Final = connection_of
        self._pending: dict[int, _Pending] = {}  # by id(request)
        self._current: _Pending | None = None  # the request that the agent works on now
        audit.when_changed(self._changed)

    def follow(self, request: Request, dispatch: Callable[[], Outcome]) -> Outcome:
        """Dispatch a request; pass its response to `answered` later.

        Raises StatusError of the dispatch, or if the audit log has no room for the request's line.
        """
        operation = (request.operation or "").upper()
        if not self._audit.enabled or operation not in CHANGING_OPERATIONS | OTHER_AUDITED_OPERATIONS:
            return dispatch()
        if self._audit.refuses:
            raise StatusError(INTERNAL_ERROR, UNRECORDED)
        pending = self._pending[id(request)] = _Pending(request, operation)
        outcome = self._within(pending, dispatch)
        return outcome if outcome is None or isinstance(outcome, Response) else self._steps(pending, outcome)

    def _within(self, pending: _Pending, work: Callable[[], Any]) -> Any:
        """Call `work`, and attribute the changes it makes to a request."""
        self._current = pending
        try:
            return work()
        finally:
            self._current = None

    def _steps(self, pending: _Pending, steps: Steps) -> Steps:
        """Yield the steps of a response, and attribute the changes that each step makes to the request."""
        while True:
            try:
                awaited = self._within(pending, lambda: next(steps))
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            yield awaited

    def _changed(self, changes: Sequence[Change]) -> None:
        if self._current is not None:
            self._current.changes += changes

    def answered(self, request: Request, response: Response) -> None:
        """Report a request and its response if the operation is audited or was forbidden.

        Only the first response to a request is reported.
        """
        pending = self._pending.pop(id(request), None)
        if pending is None:
            if response.status != FORBIDDEN or not self._audit.enabled:
                return
            pending = _Pending(request, (request.operation or "").upper())
        connection = None if request.connection is None else self._connection_of(request.connection)
        who: dict[str, Any] = {"connection": request.connection} if connection is None else client(connection)
        outcome = SUCCESS if response.status < 300 else DENIED if response.status == FORBIDDEN else FAILURE
        detail = {
            "operation": pending.name,
            **pending.target,
            "status": response.status,
            "reason": None if outcome == SUCCESS else response.text,
            "role": request.rights.name,
            "origin": "router" if connection is not None and connection.origin.role in BETWEEN_ROUTERS else "client",
            **(_values(pending.changes) if pending.changes and outcome == SUCCESS else {"asked": pending.asked}),
        }
        name = "management.change" if pending.name in CHANGING_OPERATIONS else "management.operation"
        host, user = "" if connection is None else host_of(connection.peer), who.get("user")
        # Other operation names are the client's choice, so they may not be part of a kind.
        known = pending.name if pending.name in CHANGING_OPERATIONS | OTHER_AUDITED_OPERATIONS else None
        repeatable = outcome != SUCCESS or name == "management.operation"
        kind = (host, user, known, response.status) if repeatable else None
        self._audit.trail.report(name, outcome, who, detail, kind)


def _recorded_arguments(request: Request, operation: str) -> dict[str, Any] | None:
    """Return the recorded arguments of a request, without secrets; None if there are none."""
    found: dict[str, Any] = {}
    if operation not in CHANGING_OPERATIONS:
        found = {name: request.properties[name] for name in RECORDED_PROPERTIES if name in request.properties}
    elif isinstance(body := request.body(), Mapping):
        found = dict(_masked(body))
    return bounded_copy(found) or None  # of bounded size, because the request may wait for long


def _masked(values: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield attributes by name, with the values of hidden and unknown ones masked."""
    for name, value in values.items():
        known = isinstance(name, str) and name in _KNOWN and name not in _HIDDEN
        yield str(name), value if known or value is None else MASK


def _values(changes: Sequence[Change]) -> dict[str, Any]:
    """Return the attributes before and after a request; for updated entities only those that differ.

    The last change concerns the requested entity; changes of other entities are listed under `also`.
    """
    *also, asked = changes
    shown = _before_and_after(asked)
    if also:
        shown["also"] = [{"type": each.type, "identity": each.identity, **_before_and_after(each)} for each in also]
    return shown


def _before_and_after(change: Change) -> dict[str, Any]:
    entity = change.new or change.old
    before, after = (({} if each is None else dict(each.values)) for each in (change.old, change.new))
    if change.old is not None and change.new is not None:
        same = {name for name in before if name in after and before[name] == after[name]}
        before = {name: value for name, value in before.items() if name not in same}
        after = {name: value for name, value in after.items() if name not in same}
    shown = {
        word: dict(_masked(values))
        for word, values, there in (("before", before, change.old), ("after", after, change.new))
        if there is not None
    }
    return {**_identity(entity), **shown}


def _identity(entity: EntityConfig | None) -> dict[str, str]:
    if entity is None:
        return {}
    return {"type": entity.entity_type.long_name, "name": entity.name, "identity": entity.identity}
