"""Access control for management requests by the role of their sender (router/policy/management.py)."""

from typing import Final

from sluice.router.config.schema import SCHEMA
from sluice.router.policy.management import ALL, OPERATE, READ
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import FORBIDDEN, StatusError

# Link routes of the sender's own connection; `allowDynamicLinkRoutes` applies to them as well.
LINK_ROUTE: Final = f"{SCHEMA.prefix}.router.connection.linkRoute"
_READING: Final = frozenset(
    {
        "QUERY", "READ", "CALLME", "EXPLAIN", "EXPLAIN-POLICY", "GET-ANNOTATIONS", "GET-ATTRIBUTES", "GET-JSON-SCHEMA",
        "GET-HISTORY", "GET-LOG", "GET-MGMT-NODES", "GET-OPERATIONS", "GET-SCHEMA", "GET-SCHEMA-JSON", "GET-TYPES",
        "GET-USAGE", "GET-WORKERS",
    }
)  # fmt: skip
# GET-CONFIGURATION shows where passwords are kept, though not the passwords.
_OPERATING: Final = frozenset({"GET-CONFIGURATION", "RELOAD", "TRACE"})
# Types that an operator may update. No effect of such an update outlives the process.
_OPERATED: Final = frozenset(f"{SCHEMA.prefix}.{name}" for name in ("connection", "log"))
# Types that decide about rights. A sender with a part of the rights could grant itself the rest.
_RIGHTS: Final = frozenset(f"{SCHEMA.prefix}.{name}" for name in ("policy", "vhost", "vhostUserGroupSettings"))


def required_role(operation: str, entity_type: str) -> str:
    """Return the role that an operation requires. entity_type: long name of the type."""
    if operation in _READING:
        return READ
    if operation in _OPERATING or entity_type == LINK_ROUTE or (operation == "UPDATE" and entity_type in _OPERATED):
        return OPERATE
    return ALL


def permit(request: Request, operation: str, entity_type: str) -> None:
    """Raise StatusError if the sender of a request may not perform an operation."""
    rights, role = request.rights, required_role(operation, entity_type)
    if rights.includes(role) and (rights.unlimited or role != ALL or entity_type not in _RIGHTS):
        return
    wanted = f"{operation} {entity_type}".rstrip()
    raise StatusError(FORBIDDEN, f"The management role '{rights.name}' does not include {wanted}")
