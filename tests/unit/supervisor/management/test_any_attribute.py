"""Arbitrary values of entity attributes over management: none may cause an internal error of the router."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.router.config.schema import SCHEMA, EntityType
from tests.peer.types import Char, Described, Float, Int, Long, Map, Raw, Symbol, Timestamp, UByte, ULong
from tests.unit.supervisor.management.managed_router import ManagedRouter

KINDS = [each for each in SCHEMA.types.values() if each.supported and {"CREATE", "UPDATE"} & set(each.operations)]
#: Attributes that make an entity of a type, so that its other attributes are validated at all.
BASE: dict[str, dict[str, Any]] = {
    "listener": {"host": "127.0.0.1", "port": "0"},
    "connector": {"host": "127.0.0.1", "port": "1"},
    "router.config.address": {"prefix": "fuzz"},
    "router.config.linkRoute": {"prefix": "fuzz", "direction": "in", "containerId": "c"},
    "router.config.autoLink": {"address": "fuzz", "direction": "in", "containerId": "c"},
    "router.config.exchange": {"address": "fuzz"},
    "router.config.binding": {"exchangeName": "E", "bindingKey": "fuzz", "nextHopAddress": "hop"},
    "router.connection.linkRoute": {"pattern": "fuzz", "direction": "in"},
    "dummy": {"arg1": "a", "num1": 1},
}
DECIMAL = Raw(b"\x84" + bytes(8))
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, UByte(255), Int(-(2**31)), Long(2**63 - 1), ULong(2**64 - 1), Timestamp(-1),
    float("nan"), float("inf"), -1e300, Float(0.5), Symbol("symbol"), Char("c"),
    DECIMAL, {"a": [DECIMAL]}, uuid.UUID(int=1), b"\xff\x00", b"octets", Described(ULong(0x74), {}),
    Described(Symbol("x"), [1]),
    [], [[[]]], [None, b"\xff", {"a": [Float(0.5)]}], {}, Map([(1, 2)]), Map([("é", 1)]), Map([("qd.x", 1)]),
    {"a": {"b": [uuid.UUID(int=2), ULong(2**64 - 1)]}}, {"a" * 300: "b" * 70_000},
]  # fmt: skip
TEXTS = [
    "", " ", ".", "/", "#", "*", "a.#.b.*", "..", "a" * 64, "a" * 70_000, "é" * 64, "\0", "a\0b", "\n", "\u2028",
    "\ue000", "\U0010ffff", "1", "-1", "1_0", "1e9", "nan", "9" * 5000, "٣", "yes", "$management", "_topo/0/x/y",
    "%n%s%d", "%" * 2000, "{", "'", "amqp://[::1", "a,b,,c", "trace+", "info+;x", "/nonexistent/file",
    "file:/nonexistent",
    "env:NOTHING", "pass:", "literal:x", "0.0.0.0:99999",
]  # fmt: skip
#: Host names without a look-up, which would be the system resolver's business.
HOSTS = ["", "127.0.0.1", "::1", "256.1.1.1.", "a" * 64, "a" * 64 + ".example", "a..b", ".", "é" * 64, "\0", "a\0b"]


def values(name: str) -> list[Any]:
    """Return the values to try for an attribute.

    This agent has no HTTP: see tests/system/management/test_management_hostile.py.
    """
    if name == "http":
        return [None, False, 0, {}, "no", "nonsense", b"no", b"\xff"]
    if name == "httpRootDir":  # any folder implies http: yes
        return [None, "", {}, [], b"\xff"]
    return VALUES + HOSTS if name == "host" else VALUES + TEXTS


def check(router: ManagedRouter, operation: str, kind: EntityType, body: Any, **properties: Any) -> None:
    """Send one request, and delete the entity if it creates one."""
    answer = router.ask(operation, body, connection=1, type=kind.long_name, **properties)
    # Levels of a log and rules of a vhost are validated when they are applied (management.md 5.9, security.md P-7).
    applied = {"log": "CError: Configuration: ", "vhost": "PolicyError: Policy "}.get(kind.name)
    if applied is not None and answer.description.startswith(applied):
        wanted: tuple[int, ...] = (500,)
    else:
        wanted = (200, 201, 400, 403, 404, 501)
    assert answer.status in wanted, (operation, kind, body, answer.outcome)
    if answer.status == 201:
        made = {"identity": str(answer.body["identity"])}
        gone = router.ask("DELETE", connection=1, type=kind.long_name, **made)
        assert gone.status == 204, (kind, body, gone.outcome)


def targets(router: ManagedRouter, kind: EntityType) -> Iterator[dict[str, Any]]:
    """Yield an entity of the type to update, if there is one."""
    if "QUERY" in kind.operations or kind.core_columns is not None:
        rows = router.query(kind.name, "identity")
    else:
        rows = router.query("entity", "identity", "type")
        rows = [row for row in rows if row.get("type") == kind.long_name]
    yield from [{"identity": str(row["identity"])} for row in rows[-1:]]


@pytest.fixture
def router(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a log may get any file name
    made = ManagedRouter(links=8)
    made.link(made.connection(), "out", "a")
    yield made
    if tasks := asyncio.all_tasks(made.loop):  # tasks of connectors
        for task in tasks:
            task.cancel()
        made.loop.run_until_complete(asyncio.wait(tasks))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_attribute_values_cause_no_internal_error(router, kind):
    """Each attribute gets a third of the values, the next attribute the next third."""
    known = dict.fromkeys([*kind.attributes, *(each.name for each in kind.core_columns or ()), "nonsense"])
    found = list(targets(router, kind)) if "UPDATE" in kind.operations else []
    named = {"name": "x"} if kind.references else {}
    for number, name in enumerate(known):
        for value in HOSTS if name == "host" else values(name)[number % 3 :: 3]:
            if "CREATE" in kind.operations:
                check(
                    router,
                    "CREATE",
                    kind,
                    {**BASE.get(kind.name, {}), name: value},
                    **({} if name == "name" else named),
                )
            for target in found:
                check(router, "UPDATE", kind, {"identity": target["identity"], name: value}, **target)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_attribute_combinations_cause_no_internal_error(router, data):
    kind = data.draw(st.sampled_from(KINDS))
    names = data.draw(st.lists(st.sampled_from([*kind.attributes, "nonsense"]), max_size=4, unique=True))
    body = dict(BASE.get(kind.name, {}))
    for name in names:
        body[name] = data.draw(st.sampled_from(values(name)))
    name = data.draw(st.sampled_from([None, "", "x", "a" * 5000, "self", "router/QDR"]))
    check(router, "CREATE", kind, body, **({} if name is None else {"name": name}))
