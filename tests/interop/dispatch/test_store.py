"""CREATE, READ, UPDATE and DELETE of stored entities (listener, log, dummy), and refused requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from tests.interop.dispatch.expected import KINDS
from tests.interop.dispatch.node import PREFIX, EntityProxy, ManagementNode, attempt, qualified_name, refused
from tests.system.router import RouterProcess, free_port, poll

Fresh = Callable[[str], str]
LISTENER = PREFIX + "listener"
DUMMY = PREFIX + "dummy"


def reachable(port: int) -> bool:
    """True if a client can connect to the port."""
    try:
        BlockingConnection(f"127.0.0.1:{port}", sasl_enabled=False, timeout=5, reconnect=False).close()
    except (ConnectionException, OSError):
        return False
    return True


# --- listener -----------------------------------------------------------------------------------------------------


def test_listener_create_and_delete_take_effect(
    node: ManagementNode, fresh: Fresh, shared_router: RouterProcess
) -> None:
    """A created listener works at once; a deleted one accepts no connections but keeps the existing ones."""
    port, name = free_port(), fresh("listener")
    made = node.create(
        "listener", name, host="127.0.0.1", port=str(port), authenticatePeer=False, saslMechanisms="ANONYMOUS"
    )
    assert (made.name, made.type, made.identity) == (name, LISTENER, f"listener/127.0.0.1:{port}:{name}")
    assert (made.host, made.port, made.role) == ("127.0.0.1", str(port), "normal")
    assert (made.maxFrameSize, made.idleTimeoutSeconds, made.http, made.cost) == (16384, 16, False, 1)
    assert (made.stripAnnotations, made.multiTenant) == ("both", False)
    assert "sslProfile" not in made
    assert "linkCapacity" not in made
    assert node.read("listener", name=name).attributes == made.attributes
    assert node.read(identity=made.identity).attributes == made.attributes
    other = ManagementNode.connect(port)
    assert other.one("router")["id"] == "QDR"
    node.delete("listener", name=name)
    poll(lambda: not reachable(port), "the deleted listener takes no connections")
    assert other.one("router")["id"] == "QDR"
    assert refused(node.read, "listener", name=name) == (404, f"No entity with name={name}")
    other.close()
    assert re.search(
        rf"CONN_MGR \(info\) Configured Listener: 127.0.0.1:{port} proto=any, role=normal", shared_router.log
    )


def test_listener_port_is_reusable_after_delete(node: ManagementNode, fresh: Fresh) -> None:
    port = free_port()
    for _ in range(3):
        made = node.create("listener", fresh("again"), host="127.0.0.1", port=port)
        assert made.port == str(port)
        assert reachable(port)
        made.delete()
        poll(lambda: not reachable(port), "the deleted listener takes no connections")


def test_listener_without_name_uses_identity(node: ManagementNode) -> None:
    port = free_port()
    made = node.create("listener", host="127.0.0.1", port=port)
    assert made.name == made.identity == f"listener/127.0.0.1:{port}"
    made.delete()


def test_listener_on_taken_port_is_harmless(node: ManagementNode, fresh: Fresh, shared_router: RouterProcess) -> None:
    """The listener is created and logs an error; the other listeners work, also after a second try."""
    before = len(shared_router.lines)
    made = [node.create("listener", fresh("taken"), host="127.0.0.1", port=shared_router.port) for _ in range(2)]
    shared_router.wait_log(rf"SERVER \(error\) Listener error on 127.0.0.1:{shared_router.port}: ", after=before)
    assert reachable(shared_router.port)
    for entity in made:
        entity.delete()
    assert reachable(shared_router.port)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"nosuch": 1}, f"Unknown attribute 'nosuch' for '{LISTENER}'"),
        ({"identity": "x"}, "Cannot set attribute 'identity' in CREATE"),
        ({"role": "nobody"}, f"{LISTENER}: Invalid value for enum["),
        ({"multiTenant": "maybe"}, f"{LISTENER}: Invalid Boolean value ''maybe''"),
        ({"maxFrameSize": "many"}, f"{LISTENER}: invalid literal for int() with base 10: 'many'"),
        ({"openProperties": "x"}, f"{LISTENER}: Properties must be a map"),
        ({"role": "inter-router"}, "role='standalone' not allowed to connect to or accept connections from other"),
    ],
)
def test_invalid_listener_is_refused(attributes: dict[str, Any], said: str, node: ManagementNode, fresh: Fresh) -> None:
    """The status is 400 with the text of the configuration; no entity is left."""
    name = fresh("bad")
    code, text = refused(node.create, "listener", name, host="127.0.0.1", port=str(free_port()), **attributes)
    assert code == 400
    assert text.startswith(said)
    assert refused(node.read, "listener", name=name)[0] == 404


def test_reserved_open_property_is_refused(node: ManagementNode, fresh: Fresh) -> None:
    code, text = refused(
        node.create, "listener", fresh("l"), host="127.0.0.1", port="0", openProperties={"product": "mine"}
    )
    assert code in (400, 500)
    assert "Reserved key 'product' not allowed in openProperties" in text


def test_names_are_unique_across_types(node: ManagementNode, fresh: Fresh) -> None:
    name = fresh("same")
    node.create("dummy", name)
    for kind, attributes in (("dummy", {}), ("listener", {"host": "127.0.0.1", "port": str(free_port())})):
        code, text = refused(node.create, kind, name, **attributes)
        assert code == 400
        assert re.match(r"adding \w+\(.*\) duplicates unique attribute 'name' from existing \w+\(", text)
    node.delete("dummy", name=name)


def test_old_attribute_names_are_accepted(node: ManagementNode, fresh: Fresh) -> None:
    made = node.create("listener", fresh("old"), host="127.0.0.1", port=str(free_port()), protocolFamily="IPv4")
    assert made.socketAddressFamily == "IPv4"
    assert "protocolFamily" not in made
    made.delete()


def test_listener_cannot_be_updated(node: ManagementNode) -> None:
    row = node.rows("listener")[0]
    code, text = refused(node.update, {"cost": 5}, "listener", identity=row["identity"])
    assert (code, text) == (501, f"Operation 'UPDATE' not implemented for '{LISTENER}' ['CREATE', 'DELETE', 'READ']")


@pytest.mark.parametrize("kind", ["log", "logStats", "router.node", "allocator", "policy", "management"])
def test_type_without_create_is_refused(kind: str, node: ManagementNode, fresh: Fresh) -> None:
    code, text = refused(node.create, kind, fresh("no"))
    assert code == 501
    assert text.startswith(f"Operation 'CREATE' not implemented for '{qualified_name(kind)}' [")


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("connector", {"host": "127.0.0.1", "port": "1", "role": "normal"}),
        ("sslProfile", {}),
        ("vhost", {"hostname": "v"}),
        ("authServicePlugin", {"host": "h", "port": "1"}),
        ("router.config.linkRoute", {"prefix": "a", "direction": "in", "containerId": "c"}),
        ("router.config.autoLink", {"address": "a", "direction": "in", "containerId": "c"}),
    ],
)
def test_types_are_created_or_refused(
    kind: str, attributes: dict[str, Any], node: ManagementNode, fresh: Fresh
) -> None:
    """A refusal says "not supported yet" and leaves no entity; a created entity exists until it is deleted."""
    name = fresh("some")
    made = attempt(node.create, kind, name, **attributes)
    if isinstance(made, tuple):
        code, text = made
        assert code in (400, 500, 501)
        assert "not supported yet" in text
    else:
        assert made.name == name
        assert [row["name"] for row in node.rows(kind)] == [name]
        assert {key: made[key] for key in attributes} == attributes
        node.delete(kind, name=name)
    assert node.query(kind).results == []


# --- log ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def agent_log(node: ManagementNode) -> Any:
    """Log entity of module AGENT, restored after the test."""
    yield node.read(identity="log/AGENT")
    node.update({"enable": "default", "outputFile": "stderr"}, identity="log/AGENT")


def test_log_update_takes_effect_at_once(
    node: ManagementNode, agent_log: EntityProxy, shared_router: RouterProcess, tmp_path: Path
) -> None:
    """Level, source, time stamp and file change at once, with all attributes of a proxy or a single one."""
    path = tmp_path / "agent.log"
    agent_log.enable = "debug+"
    agent_log.outputFile = str(path)
    agent_log.includeSource = True
    agent_log.update()
    assert (agent_log.enable, agent_log.outputFile, agent_log.includeSource) == ("debug+", str(path), True)
    node.ask("GET-ANNOTATIONS")
    poll(lambda: path.exists() and "GET-ANNOTATIONS" in path.read_text(), "the request is in the file")
    line = next(line for line in path.read_text().splitlines() if "GET-ANNOTATIONS" in line)
    assert re.match(r"\d{4}-\d\d-\d\d \S+ [+-]\d{4} AGENT \(debug\) Agent request Message\(", line)
    assert re.search(r"\(\S+:\d+\)$", line)
    answer = node.update({"enable": "none"}, "log", identity="log/AGENT")
    assert (answer.enable, answer.outputFile) == ("none", str(path))
    size = path.stat().st_size
    node.ask("GET-ANNOTATIONS")
    assert path.stat().st_size == size


def test_log_update_accepts_old_names(node: ManagementNode, agent_log: EntityProxy) -> None:
    answer = node.update({"timestamp": "no", "source": True, "output": "stderr"}, name="log/AGENT")
    assert (answer.includeTimestamp, answer.includeSource, answer.outputFile) == (False, True, "stderr")
    assert "timestamp" not in answer
    node.update({"includeTimestamp": None, "includeSource": None}, name="log/AGENT")
    assert "includeTimestamp" not in node.read(name="log/AGENT")


def test_refused_log_update_changes_nothing(node: ManagementNode, agent_log: EntityProxy) -> None:
    before = node.read(identity="log/AGENT").attributes
    levels = "Should be one of {none, trace, debug, info, notice, warning, error, critical}."
    for wrong in ("loud", "trace,bogus", "info,bogus"):
        code, text = refused(node.update, {"enable": wrong}, identity="log/AGENT")
        assert code == 500
        assert f"'{wrong}' is not a valid log level. {levels}" in text
    code, text = refused(node.update, {"outputFile": "/nonexistent/dir/file"}, identity="log/AGENT")
    assert code == 500
    assert "Failed to open log file '/nonexistent/dir/file'" in text
    assert refused(node.update, {"nosuch": 1}, identity="log/AGENT") == (
        400,
        f"Unknown attribute 'nosuch' for '{PREFIX}log'",
    )
    assert refused(node.update, {"module": "SERVER"}, identity="log/AGENT") == (
        400,
        "Cannot update attribute 'module' in UPDATE",
    )
    assert refused(node.update, {"includeSource": "perhaps"}, identity="log/AGENT")[0] == 400
    assert node.read(identity="log/AGENT").attributes == before
    assert node.update({"enable": "debug+"}, identity="log/AGENT").enable == "debug+"


def test_get_log_returns_recent_entries(node: ManagementNode) -> None:
    """An entry has six members; entries are ordered from oldest to newest and include the request itself."""
    node.ask("GET-TYPES")
    entries = node.log(limit=20)
    assert len(entries) == 20
    for entry in entries:
        assert len(entry) == 6
        assert [type(member) for member in entry[:3]] == [str, str, str]
    times = [entry[5] for entry in entries]
    assert times == sorted(times)
    assert any(entry[:2] == ["AGENT", "debug"] and "GET-LOG" in entry[2] for entry in entries)
    assert len(node.log(limit=1)) == 1
    assert 20 < len(node.log()) <= 1000
    assert len(node.log(limit=0)) > 20
    assert refused(node.log, limit="many")[0] == 500


def test_get_log_includes_worker_lines(node: ManagementNode, shared_router: RouterProcess) -> None:
    """Recent entries include protocol frames and link lines of the core."""
    name = "seen-in-the-log"
    connection = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
    connection.create_receiver("balanced/log", name=name)

    def found() -> bool:
        entries = node.log()
        frames = any(entry[0] == "PROTOCOL" and "@attach" in entry[2] and name in entry[2] for entry in entries)
        core = any(entry[0] == "ROUTER_CORE" and "Link attached: dir=out" in entry[2] for entry in entries)
        return frames and core

    poll(found, "frames and links in GET-LOG")
    connection.close()


def test_log_stats_count_disabled_levels(node: ManagementNode, agent_log: EntityProxy) -> None:
    node.update({"enable": "none"}, identity="log/AGENT")
    before = node.one("logStats", name="AGENT")["debugCount"]
    node.ask("GET-ANNOTATIONS")
    assert node.one("logStats", name="AGENT")["debugCount"] > before


# --- dummy --------------------------------------------------------------------------------------------------------


def test_dummy_is_created_updated_called_deleted(node: ManagementNode, fresh: Fresh) -> None:
    name = fresh("dummy")
    made = node.create("dummy", name, arg1="START", num1="17")
    assert (made.name, made.type, made.arg1, made.num1) == (name, DUMMY, "START", 17)
    assert re.fullmatch(r"dummy/\d+", made.identity)
    assert "arg2" not in made
    made.arg2 = "more"
    made.update()
    assert (made.arg1, made.arg2) == ("START", "more")
    assert node.read(name=name).attributes == made.attributes
    assert node.update({"arg1": None, "num1": 18}, identity=made.identity).attributes == {
        "arg2": "more", "num1": 18, "name": name, "identity": made.identity, "type": DUMMY,
    }  # fmt: skip
    answer = made.call("callme", foo="bar", baz=1)
    assert answer == {"operation": "callme", "type": DUMMY, "identity": made.identity, "foo": "bar", "baz": 1}
    assert [row["name"] for row in node.rows("dummy")] == [name]
    made.delete()
    assert node.rows("dummy") == []


def test_dummy_identities_are_numbered(node: ManagementNode) -> None:
    made = [node.create("dummy") for _ in range(3)]
    numbers = [int(entity.identity.partition("/")[2]) for entity in made]
    assert numbers == sorted(set(numbers))
    assert len({entity.name for entity in made}) == 3
    for entity in made:
        entity.delete()


def test_refused_dummy_update_changes_nothing(node: ManagementNode, fresh: Fresh) -> None:
    made = node.create("dummy", fresh("dummy"), arg1="a")
    assert refused(node.update, {"num1": "x"}, identity=made.identity)[0] == 400
    assert refused(node.update, {"name": "other"}, identity=made.identity) == (
        400,
        "Cannot update attribute 'name' in UPDATE",
    )
    assert refused(node.update, ["arg1"], identity=made.identity)[0] == 400
    assert node.read(identity=made.identity).attributes == made.attributes
    made.delete()


# --- requests that cannot be right --------------------------------------------------------------------------------


def test_create_without_type_is_refused(node: ManagementNode, fresh: Fresh) -> None:
    code, text = refused(node.create, None, fresh("x"), arg1="a")
    assert code == 400
    assert text.startswith("No 'type' attribute in {")
    request = node.request({"type": DUMMY}, operation="CREATE")
    assert refused(node.call, request)[0] == 400


def test_conflicting_properties_and_body_are_refused(node: ManagementNode) -> None:
    request = node.request({"type": LISTENER}, operation="CREATE", type=DUMMY, name="n")
    assert refused(node.call, request) == (400, "Conflicting values for 'type'")
    request = node.request({"type": "dummy"}, operation="CREATE", type=DUMMY, name="n")
    assert refused(node.call, request) == (400, "Conflicting values for 'type'")
    request = node.request({"name": "m"}, operation="CREATE", type=DUMMY, name="n")
    assert refused(node.call, request) == (400, "Conflicting values for 'name'")
    request = node.request(["x"], operation="CREATE", type=DUMMY, name="n")
    assert refused(node.call, request)[0] == 400


def test_request_without_operation_is_refused(node: ManagementNode) -> None:
    code, text = refused(node.call, node.request(type=DUMMY, name="n"))
    assert code == 400
    assert text.startswith("No 'operation' property: ")
    answer: Any = node.client.call(Message(address="$management", body={}))
    assert answer.properties["statusCode"] == 400


def test_unknown_type_and_operation_are_refused(node: ManagementNode) -> None:
    assert refused(node.create, "nosuch", "n") == (400, f"No such entity type '{PREFIX}nosuch'")
    request = node.request(operation="READ", type="nosuch", name="n")
    assert refused(node.call, request) == (400, "No such entity type 'nosuch'")
    code, text = refused(node.call, node.request(operation="FROB", identity="self"))
    assert code == 501
    assert text.startswith(f"Operation 'FROB' not implemented for '{PREFIX}management' [")
    code, text = refused(node.call, node.request(operation="frob", identity="log/AGENT", type="log"))
    assert (code, text) == (501, f"Operation 'FROB' not implemented for '{PREFIX}log' ['UPDATE', 'READ']")


def test_delete_of_missing_entity_is_refused(node: ManagementNode) -> None:
    assert refused(node.delete, "listener", name="none") == (404, "No entity with name=none")
    assert refused(node.delete, "dummy", identity="dummy/none") == (404, "No entity with identity=dummy/none")
    assert refused(node.delete, "dummy") == (400, f"{DUMMY}: No name or identity provided")
    assert refused(node.delete, "log", identity="log/AGENT")[0] == 501


def test_short_type_names_are_accepted(node: ManagementNode, fresh: Fresh) -> None:
    name = fresh("short")
    request = node.request({"arg1": "a"}, operation="CREATE", type="dummy", name=name)
    made = node.call(request, 201).body
    assert (made["type"], made["name"]) == (DUMMY, name)
    assert node.call(node.request(operation="READ", type="dummy", name=name)).body == made
    node.call(node.request(operation="delete", type="dummy", name=name), 204)


def test_operations_of_types_are_always_answered(node: ManagementNode) -> None:
    """Each combination of type and operation gets an answer, and creates no entity."""
    before = len(node.query(names=["identity"]).results)
    for kind in KINDS.values():
        for operation in ("CREATE", "READ", "UPDATE", "DELETE", "NOSUCH"):
            request = node.request(3, operation=operation, type=kind.long_name, identity="none")
            code, text = refused(node.call, request)
            assert code in (400, 403, 404, 500, 501), (kind.name, operation)
            assert text
    assert len(node.query(names=["identity"]).results) == before
