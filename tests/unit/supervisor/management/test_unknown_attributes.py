"""Unknown attributes: an error for each type and operation (management.md 5.6 to 5.9)."""

import pytest

from sluice.router.config.schema import SCHEMA
from tests.peer.management import PREFIX
from tests.unit.supervisor.management.managed_router import ManagedRouter

TYPES = list(SCHEMA.types.values())
CREATED = [each for each in TYPES if "CREATE" in each.operations]
# Types with UPDATE. The schema of 1.19 omits it for `connection`.
UPDATED = [each for each in TYPES if "UPDATE" in each.operations or each.name == "connection"]
# Attributes that pass the checks that precede the check for unknown attributes.
NEEDED = {"router.connection.linkRoute": {"pattern": "p", "direction": "in"}}
# Attributes to create an entity of a type that the configuration of the test lacks.
CREATE = {
    "sslProfile": {},
    "vhost": {"hostname": "v"},
    "dummy": {"arg1": "x"},
    "openTelemetry": {"endpoint": "http://127.0.0.1:4318"},
    "tracing": {"endpoint": "http://127.0.0.1:4318/v1/traces"},
}


@pytest.fixture
def router():
    made = ManagedRouter()
    made.link(made.connection())
    return made


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.name)
def test_query_with_unknown_attribute_is_refused(router, kind):
    for entity_type in {kind.long_name, kind.name}:
        for names in (["nmae"], ["name", "nmae"], ["name"] * 70 + ["nmae"]):
            answer = router.ask("QUERY", {"attributeNames": names}, entityType=entity_type)
            if kind.name == "console" and entity_type == kind.long_name:  # forbidden for everybody
                assert answer.status == 403
            else:
                assert answer.outcome == (404, f"Unknown attributes ['nmae'] for type {kind.long_name}.")


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.name)
def test_query_of_known_attributes_is_answered(router, kind):
    names = list(kind.attributes)
    for at in range(0, len(names), 50):
        answer = router.ask("QUERY", {"attributeNames": names[at : at + 50]}, entityType=kind.long_name)
        assert answer.status == (403 if kind.name == "console" else 200)


@pytest.mark.parametrize("kind", CREATED, ids=lambda each: each.name)
def test_create_with_unknown_attribute_is_refused(router, kind):
    connection = router.connection()
    body = {**NEEDED.get(kind.name, {}), "nmae": "x"}
    answer = router.ask("CREATE", body, connection.number, type=kind.long_name, name="n")
    assert answer.outcome == (400, f"Unknown attribute 'nmae' for '{kind.long_name}'")


@pytest.mark.parametrize("kind", UPDATED, ids=lambda each: each.name)
def test_update_with_unknown_attribute_is_refused(router, kind):
    if (given := CREATE.get(kind.name)) is not None:
        assert router.ask("CREATE", given, type=kind.long_name, name="made").status == 201
    row = router.query(kind.name, "identity")[-1]
    for body in ({"nmae": 1}, {"adminStatus": "enabled", "nmae": 1}):
        answer = router.ask("UPDATE", body, type=kind.long_name, identity=row["identity"])
        unknown = next(name for name in body if name not in kind.attributes)
        assert answer.outcome == (400, f"Unknown attribute '{unknown}' for '{kind.long_name}'")


def test_long_attribute_names_are_cut(router):
    for kind in ("router", "listener"):
        answer = router.ask("QUERY", {"attributeNames": ["x" * 100_000]}, entityType=PREFIX + kind)
        assert (answer.status, len(answer.description) < 400) == (404, True)


def test_deprecated_attribute_names_are_known(router):
    """`fallback` of an address and the deprecated names are not in the schema's list of attributes."""
    for kind, body in (
        ("address", {"prefix": "a", "fallback": True}),
        ("linkRoute", {"prefix": "b", "dir": "in"}),
        ("autoLink", {"addr": "c", "dir": "in", "externalAddr": "d"}),
    ):
        answer = router.ask("CREATE", body, type=f"{PREFIX}router.config.{kind}")
        assert answer.status == 201, answer.outcome
