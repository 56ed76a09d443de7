"""Store half of the agent: finds the entity of a request and executes its operation (management.md 5.4 to 5.10)."""

from collections.abc import Mapping
from typing import Any, Final

from sluice.router.config.schema import SCHEMA, EntityType
from sluice.router.policy.management import READ
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.management import operations, values
from sluice.supervisor.management.access import permit
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.entities import StoreEntity, entities, management, named, shown
from sluice.supervisor.management.query_rows import QueryRows
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import (
    BAD_REQUEST,
    CREATED,
    INTERNAL_ERROR,
    NO_CONTENT,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    Outcome,
    Response,
    StatusError,
    Steps,
)
from sluice.supervisor.management.settings import NUMBERED

ROWS_A_STEP: Final = 50
_SHOWN: Final = 200  # characters of client input in a text


class Store:
    """Answers to requests for types that are not core types, and to requests without type. Owner: the agent."""

    def __init__(self, context: AgentContext) -> None:
        self.context = context

    def handle(self, request: Request) -> Outcome:
        """Answer a request. Raises StatusError."""
        if request.operation is None:
            raise StatusError(BAD_REQUEST, f"No 'operation' property: {request}")
        kind = find_type(request, "type")
        operation = request.operation.upper()
        if operation == "CREATE":
            permit(request, operation, "" if kind is None else kind.long_name)
            return self._create(request, kind)
        if not request.rights.includes(READ):
            permit(request, operation, "")
        target = self._target(request, kind)
        permit(request, operation, target.type.long_name)
        if target.type.name == "management" and operation in operations.OPERATIONS:
            return operations.OPERATIONS[operation](request, self.context)
        if operation not in target.type.operations:
            raise not_implemented(request.operation, target.type)
        if operation == "QUERY":
            return self._query(request)
        if operation == "READ":
            return self._read(target, kind)
        if operation == "UPDATE":
            return self._update(request, target)
        if operation == "DELETE":
            return self._delete(target)
        if operation == "CALLME":
            return Response(OK, values.mapping(request.properties))
        raise not_implemented(request.operation, target.type)

    def _target(self, request: Request, kind: EntityType | None) -> StoreEntity:
        """Return the entity of a request. Raises StatusError."""
        name, identity = request.name, request.identity
        own = management(self.context)
        if name is None and identity is None:
            if kind is None or own.type.is_a(kind):
                return own
            raise StatusError(BAD_REQUEST, f"{kind.long_name}: No name or identity provided")
        wanted = [f"{key}={value}" for key, value in (("name", name), ("identity", identity)) if value is not None]
        found = list(named(self.context, name, identity))
        if not found:
            raise StatusError(NOT_FOUND, f"No entity with {' '.join(wanted)}")
        if len(found) > 1:
            raise StatusError(INTERNAL_ERROR, f"Duplicate ({len(found)}) entities with {wanted[0]}")
        if name is not None and identity is not None and found[0].identity != identity:
            raise StatusError(BAD_REQUEST, f"Conflicting {' '.join(wanted)}")
        if kind is not None and not found[0].type.is_a(kind):
            text = f"Entity type '{found[0].type.long_name}' does not extend requested type '{kind.long_name}'"
            raise StatusError(BAD_REQUEST, text)
        return found[0]

    def _query(self, request: Request) -> Steps:
        """Return the rows of all entities of a type, or of all types."""
        kind = find_type(request, "entityType")
        known: Mapping[str, Any] = _ALL if kind is None else kind.attributes
        asked = request.attribute_names(known, kind)
        names = asked or (_ALL_NAMES if kind is None else list(known))
        offset, count = request.number("offset") or 0, request.number("count") or 0
        sheet = QueryRows(names, paged=count > 0, listed=names is not _ALL_NAMES)
        matched = 0
        for number, each in enumerate(entities(self.context, kind), 1):
            if number % ROWS_A_STEP == 0:
                yield None
            row = [each.value(name) for name in names] if asked else [each.attributes.get(name) for name in names]
            if all(value is None for value in row):
                continue
            matched += 1
            if offset < 0 or matched <= offset:
                continue
            if not sheet.add([values.value(value) for value in row]) or matched - offset == count:
                break
        return sheet.response(offset)

    def _read(self, target: StoreEntity, kind: EntityType | None) -> Response:
        if kind is not None and kind is not target.type:
            text = f"Entity type '{target.type.long_name}' does match requested type '{kind.long_name}'"
            raise StatusError(NOT_FOUND, text)
        return Response(OK, values.mapping(target.attributes))

    def _create(self, request: Request, kind: EntityType | None) -> Steps:
        given = request.text("type")
        if kind is None or given is None:
            raise StatusError(BAD_REQUEST, f"No 'type' attribute in {str(request.body())[:_SHOWN]}")
        body = request.body_map()
        for key in ("type", "name"):
            stated = request.text(key)
            if body.get(key) is not None and stated is not None and str(body[key]) != stated:
                raise StatusError(BAD_REQUEST, f"Conflicting values for '{key}'")
        if "CREATE" not in kind.operations:
            raise not_implemented("CREATE", kind)
        name = request.name or (str(body["name"]) if isinstance(body.get("name"), str) else None)
        attributes = {key: value for key, value in body.items() if key not in ("type", "name")}
        try:
            config = yield from self.context.changes.create(kind.name, name, attributes)
        except ChangeError as error:
            raise StatusError(error.status, error.text) from error
        return Response(CREATED, values.mapping(shown(self.context, config).attributes))

    def _update(self, request: Request, target: StoreEntity) -> Steps:
        if target.config is None:
            raise not_implemented("UPDATE", target.type)
        body = request.body_map()
        files = (each for each in target.type.attributes.values() if each.names_file)
        if any(name in body for each in files for name in (each.name, each.old_name, each.alias)):
            permit(request, "UPDATE of files", target.type.long_name)
        try:
            config = yield from self.context.changes.update(target.config, body)
        except ChangeError as error:
            raise StatusError(error.status, error.text) from error
        return Response(OK, values.mapping(shown(self.context, config).attributes))

    def _delete(self, target: StoreEntity) -> Steps:
        if target.config is None:
            raise not_implemented("DELETE", target.type)
        try:
            yield from self.context.changes.delete(target.config)
        except ChangeError as error:
            raise StatusError(error.status, error.text) from error
        return Response(NO_CONTENT)


def find_type(request: Request, key: str) -> EntityType | None:
    """Return the type that a property names, or None without the property. Raises StatusError."""
    given = request.properties.get(key)
    if given is None or given == "":
        return None
    found = SCHEMA.find(given) if isinstance(given, str) else None
    if found is None:
        raise StatusError(BAD_REQUEST, f"No such entity type '{str(given)[:_SHOWN]}'")
    return found


def not_implemented(operation: str, kind: EntityType) -> StatusError:
    """Return the error for an operation that a type does not have."""
    text = f"Operation '{operation[:_SHOWN].upper()}' not implemented for '{kind.long_name}' {list(kind.operations)}"
    return StatusError(NOT_IMPLEMENTED, text)


# Attributes of types that may have many entities come first, because rows are cut after their last value.
_MANY: Final = (*NUMBERED, "router.node", "listener", "connector", "dummy", "sslProfile", "vhost")
_ALL: Final = dict.fromkeys(["name", "identity", "type"]) | {
    name: None for kind in (*(SCHEMA.types[name] for name in _MANY), *SCHEMA.types.values()) for name in kind.attributes
}
_ALL_NAMES: Final = list(_ALL)
