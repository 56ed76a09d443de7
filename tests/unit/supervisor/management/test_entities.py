"""Entities of the store: their attributes, from the configuration and from counters (management.md 6)."""

import pytest

from sluice.router.config.schema import SCHEMA
from sluice.router.log import MODULES
from tests.peer.management import PREFIX
from tests.unit.supervisor.management.managed_router import ManagedRouter


@pytest.fixture(scope="module")
def router():
    return ManagedRouter()


# management.md 6.10.
@pytest.mark.parametrize(
    "target", [{"name": "self"}, {}, {"name": "self", "type": "management"}, {"type": "management"}]
)
def test_management_entity_is_read(router, target):
    assert router.ask("READ", **target).body == {"name": "self", "identity": "self", "type": PREFIX + "management"}


def test_router_entity_is_read_from_store(router):
    for target in ({"name": "router/QDR"}, {"identity": "router/QDR", "type": "router"}):
        body = router.ask("READ", **target).body
        assert (body["id"], body["mode"], body["area"], body["version"]) == ("QDR", "standalone", "0", "9.9")
        assert body["hostName"]
        assert (body["addrCount"], body["linkCount"], body["nodeCount"]) == (0, 0, 0)
        assert body["helloIntervalSeconds"] == 1


# management.md 6.9.
def test_policy_entity_shows_counters():
    router = ManagedRouter()
    router.connection()
    router.core.connections.denied += 2
    (row,) = router.query("policy")
    assert (row["identity"], row["maxConnections"]) == ("policy/None", 65535)
    assert [row[f"connections{name}"] for name in ("Processed", "Denied", "Current")] == [3, 2, 1]
    assert (row["totalDenials"], row["linksDenied"], row["maxMessageSizeDenied"]) == (2, 0, 0)


# management.md 6.8.
def test_log_statistics_count_lines(router):
    before = {row["name"]: row["noticeCount"] for row in router.query("logStats")}
    router.log.notice("HTTP", "x")
    after = {row["name"]: row["noticeCount"] for row in router.query("logStats")}
    assert after["HTTP"] == before["HTTP"] + 1
    assert set(after) == {*MODULES, "MAIN", "DISPLAYNAME"}


@pytest.mark.parametrize("kind", ["router.node", "vhost", "vhostStats", "sslProfile", "connector"])
def test_types_without_entities_have_no_rows(router, kind):
    answer = router.ask("QUERY", entityType=kind)
    assert (answer.body["results"], answer.body["attributeNames"]) == ([], list(SCHEMA.types[kind].attributes))
