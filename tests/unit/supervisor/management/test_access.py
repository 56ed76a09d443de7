"""Role that each operation of each entity type needs."""

import pytest

from sluice.router.config.schema import SCHEMA
from sluice.router.policy.management import ALL, OPERATE, READ, UNLIMITED, ManagementRights
from sluice.supervisor.management import operations
from sluice.supervisor.management.access import permit, required_role
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import FORBIDDEN, StatusError

#: Operations that change nothing and show neither payload nor frames. A new operation needs a decision.
READING = {
    "CALLME", "EXPLAIN", "EXPLAIN-POLICY", "GET-ANNOTATIONS", "GET-ATTRIBUTES", "GET-HISTORY",
    "GET-JSON-SCHEMA", "GET-LOG", "GET-MGMT-NODES", "GET-OPERATIONS", "GET-SCHEMA", "GET-SCHEMA-JSON", "GET-TYPES",
    "GET-USAGE", "GET-WORKERS", "QUERY", "READ",
}  # fmt: skip
OPERATING = {"GET-CONFIGURATION", "RELOAD", "TRACE"}


def test_operations_need_their_role():
    known = {*operations.OPERATIONS, *OPERATING}
    known |= {name for each in SCHEMA.types.values() for name in each.operations}
    for operation in known:
        found = required_role(operation, f"{SCHEMA.prefix}.management")
        assert found == (READ if operation in READING else OPERATE if operation in OPERATING else ALL), operation


@pytest.mark.parametrize("entity_type", [each.long_name for each in SCHEMA.types.values()])
def test_changes_need_all_rights_unless_temporary(entity_type):
    link_routes = {"CREATE", "UPDATE", "DELETE"}
    operated = {"connection": {"UPDATE"}, "log": {"UPDATE"}, "router.connection.linkRoute": link_routes}
    short = entity_type.removeprefix(f"{SCHEMA.prefix}.")
    for operation in ("CREATE", "UPDATE", "DELETE"):
        assert required_role(operation, entity_type) == (OPERATE if operation in operated.get(short, ()) else ALL)


@pytest.mark.parametrize("entity_type", ["vhost", "policy"])
def test_policy_changes_need_unlimited_rights(entity_type):
    request = Request(0, 1, b"")
    for operation in ("CREATE", "UPDATE", "DELETE"):
        request.rights = UNLIMITED
        permit(request, operation, f"{SCHEMA.prefix}.{entity_type}")
        request.rights = ManagementRights(ALL, closes=False)
        with pytest.raises(StatusError, match="all-keep-connections") as raised:
            permit(request, operation, f"{SCHEMA.prefix}.{entity_type}")
        assert raised.value.status == FORBIDDEN
        permit(request, operation, f"{SCHEMA.prefix}.listener")
