"""Judgement of management requests by the role of their sender (router/policy/management.py)."""

from typing import Final

from router.config.schema import SCHEMA
from router.policy.management import ALL, OPERATE, READ
from supervisor.management.request import Request
from supervisor.management.response import FORBIDDEN, StatusError

#: Link routes of the sender's own connection; `allowDynamicLinkRoutes` decides about them, too.
LINK_ROUTE: Final = f"{SCHEMA.prefix}.router.connection.linkRoute"
_READING: Final = frozenset(
    {
        "QUERY", "READ", "CALLME", "EXPLAIN", "EXPLAIN-POLICY", "GET-ANNOTATIONS", "GET-ATTRIBUTES", "GET-JSON-SCHEMA",
        "GET-LOG", "GET-MGMT-NODES", "GET-OPERATIONS", "GET-SCHEMA", "GET-SCHEMA-JSON", "GET-TYPES", "GET-WORKERS",
    }
)  # fmt: skip
_OPERATING: Final = frozenset({"RELOAD", "TRACE"})
#: Types of which an operator may update entities: nothing that this changes outlives the process.
_OPERATED: Final = frozenset(f"{SCHEMA.prefix}.{name}" for name in ("connection", "log"))
#: Types that decide about rights. Somebody with part of the rights could give himself the rest.
_RIGHTS: Final = frozenset(f"{SCHEMA.prefix}.{name}" for name in ("policy", "vhost", "vhostUserGroupSettings"))


def needed(operation: str, entity_type: str) -> str:
    """Return the role that an operation on entities of a type (by its long name) needs."""
    if operation in _READING:
        return READ
    if operation in _OPERATING or entity_type == LINK_ROUTE or (operation == "UPDATE" and entity_type in _OPERATED):
        return OPERATE
    return ALL


def permit(request: Request, operation: str, entity_type: str) -> None:
    """Raise StatusError where the sender of a request may not have an operation done."""
    rights, role = request.rights, needed(operation, entity_type)
    if rights.includes(role) and (rights.unlimited or role != ALL or entity_type not in _RIGHTS):
        return
    wanted = f"{operation} {entity_type}".rstrip()
    raise StatusError(FORBIDDEN, f"The management role '{rights.name}' does not include {wanted}")
