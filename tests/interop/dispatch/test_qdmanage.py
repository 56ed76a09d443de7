"""Program qdmanage: operations, values, standard input, output and exit codes. management.md 8.3, 8.4."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.interop.dispatch.expected import KINDS
from tests.interop.dispatch.node import PREFIX
from tests.interop.dispatch.programs import QdmanageProgram, run
from tests.system.router import RouterProcess, free_port

DUMMY = PREFIX + "dummy"


def test_entity_is_created_read_updated_deleted(qdmanage: QdmanageProgram) -> None:
    made = qdmanage.json("create type=dummy name=mydummy arg1=foo")
    assert made == {"arg1": "foo", "name": "mydummy", "type": DUMMY, "identity": made["identity"]}
    assert qdmanage.json("read --name mydummy") == made
    assert qdmanage.json("read --type dummy --name=mydummy") == made
    assert qdmanage.json(["read", "--identity", made["identity"]]) == made
    made |= {"arg1": "bar", "num1": 555}
    assert qdmanage.json("update name=mydummy arg1=bar num1=555") == made
    made |= {"arg1": "xxx", "num1": 888}
    assert qdmanage.json("update --name mydummy --type dummy arg1=xxx num1=888") == made
    del made["arg1"]
    assert qdmanage.json("update --name mydummy --type dummy arg1") == made
    assert qdmanage("delete --name mydummy") == ""
    out = qdmanage("read --name=mydummy", expect=1)
    assert out == "NotFoundStatus: No entity with name=mydummy\n"


def test_operation_case_and_option_order_do_not_matter(qdmanage: QdmanageProgram) -> None:
    assert qdmanage.json("QUERY --type=listener") == qdmanage.json("query --type listener")
    assert qdmanage.json("Create --type dummy --name anywhere arg1=a")["arg1"] == "a"
    assert qdmanage.json("--name anywhere READ")["arg1"] == "a"
    assert qdmanage("--type=dummy DELETE --name=anywhere") == ""


def test_standard_input_accepts_map_or_list(qdmanage: QdmanageProgram) -> None:
    """Create and update read a map, or a list of maps."""
    given: dict[str, Any] = {"type": DUMMY, "name": "stdin0", "arg1": "a"}
    made = qdmanage.json("create --stdin", stdin=json.dumps(given))
    assert made == {**given, "identity": made["identity"]}
    several: list[dict[str, Any]] = [{"type": DUMMY, "name": f"stdin{number}", "num1": number} for number in (1, 2, 3)]
    answer = qdmanage.json("create --stdin", stdin=json.dumps(several))
    assert [{**one, "identity": None} for one in answer] == [{**one, "identity": None} for one in several]
    for one in several:
        one["num1"] += 10
    answer = qdmanage.json("update --stdin", stdin=json.dumps(several))
    assert [one["num1"] for one in answer] == [11, 12, 13]
    for number in range(4):
        assert qdmanage(f"delete --type dummy --name stdin{number}") == ""
    for wrong in ("7", '"text"'):
        out = qdmanage("create --stdin", stdin=wrong, expect=1)
        assert out == "ValueError: stdin is not a JSON map or list\n"


def test_query_prints_stored_entities(qdmanage: QdmanageProgram, shared_router: RouterProcess) -> None:
    everything = qdmanage.json("query")
    types = {row["type"] for row in everything}
    assert {PREFIX + kind for kind in ("listener", "log", "router")} <= types
    listeners = qdmanage.json("query --type=listener")
    assert [row["type"] for row in listeners] == [PREFIX + "listener"]
    short = qdmanage.json("query type name")
    assert all(len(row) == 2 for row in short)
    assert {(row["name"], row["type"]) for row in short} == {(row["name"], row["type"]) for row in everything}
    assert None not in [value for row in everything for value in row.values()]


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("link", "router.link"),
        ("address", "router.config.address"),
        ("router", "router"),
        ("connection", "connection"),
        ("log", "log"),
        (PREFIX + "router.address", "router.address"),
        (PREFIX + "router.link", "router.link"),
    ],
)
def test_type_names_select_entity_type(written: str, kind: str, qdmanage: QdmanageProgram) -> None:
    rows = qdmanage.json(["query", f"--type={written}"])
    assert rows
    assert {row["type"] for row in rows} == {PREFIX + kind}


@pytest.mark.parametrize("written", ["linkRoute", "autoLink", "connector", "node", "sslProfile", "vhost"])
def test_types_without_entities_print_empty_list(written: str, qdmanage: QdmanageProgram) -> None:
    assert qdmanage.json(f"query --type {written}") == []


def test_router_row_omits_null_columns(qdmanage: QdmanageProgram) -> None:
    """Numbers are printed as numbers; null columns are omitted."""
    [row] = qdmanage.json("query --type=org.apache.qpid.dispatch.router")
    assert (row["id"], row["mode"], row["workerThreads"]) == ("QDR", "standalone", 3)
    assert "metadata" not in row
    assert type(row["addrCount"]) is int


def test_get_operations_print_lists(qdmanage: QdmanageProgram) -> None:
    types = qdmanage.json("get-types")
    assert len(types) == len(KINDS)
    assert qdmanage.json("get-types --type dummy")[DUMMY] == [PREFIX + "entity"]
    one = qdmanage.json(["get-types", PREFIX + "sslProfile"])
    assert one == {PREFIX + "sslProfile": [PREFIX + "configurationEntity", PREFIX + "entity"]}
    assert qdmanage.json("get-annotations") == {}
    assert qdmanage.json("get-mgmt-nodes") == []
    assert set(qdmanage.json("get-attributes")) == set(types)
    operations = qdmanage.json("get-operations")
    assert operations[DUMMY] == ["CREATE", "READ", "UPDATE", "DELETE", "CALLME"]
    assert operations[PREFIX + "log"] == ["UPDATE", "READ"]


def test_get_log_prints_entries(qdmanage: QdmanageProgram) -> None:
    [entry] = qdmanage.json("get-log limit=1")
    assert len(entry) == 6
    entries = qdmanage.json("get-log limit=20")
    assert any(re.search("get-log", entry[2]) for entry in entries if entry[:2] == ["AGENT", "debug"])


def test_schema_operations_print_same_schema(qdmanage: QdmanageProgram) -> None:
    schema = qdmanage.json("get-schema")
    assert qdmanage.json("get-json-schema") == schema
    assert schema["prefix"] == "org.apache.qpid.dispatch"


def test_entity_operation_is_called_by_name(qdmanage: QdmanageProgram) -> None:
    made = qdmanage.json("create --type dummy --name called")
    command = ["callme", "--type=dummy", f"--identity={made['identity']}", "foo=bar"]
    answer = qdmanage.json([*command, "--properties", '{"extra": "more"}'])
    assert (answer["operation"], answer["foo"], answer["extra"]) == ("callme", "bar", "more")
    qdmanage("delete --type dummy --name called")


def test_log_level_update_takes_effect(qdmanage: QdmanageProgram) -> None:
    """Levels are changed by name and type, as operators do."""
    changed = qdmanage.json("update --type=log --name=log/HTTP enable=trace+ includeSource=yes")
    assert (changed["enable"], changed["includeSource"]) == ("trace+", True)
    command = ["update", f"--type={PREFIX}log", "--name", "log/HTTP", "enable=default"]
    assert qdmanage.json(command)["enable"] == "default"
    out = qdmanage("update --type=log --name=log/HTTP enable=loud", expect=1)
    assert "'loud' is not a valid log level." in out


def test_listener_create_and_delete_take_effect(qdmanage: QdmanageProgram) -> None:
    port = free_port()
    made = qdmanage.json(f"create --type=listener --name=more host=127.0.0.1 port={port} authenticatePeer=no cost=3")
    assert (made["port"], made["authenticatePeer"], made["cost"]) == (str(port), False, 3)
    assert run("qdstat", "-b", f"127.0.0.1:{port}").code == 0
    assert qdmanage("delete --type=listener --name=more") == ""
    done = run("qdmanage", "-b", f"127.0.0.1:{port}", "query", "--type=listener")
    assert done.code == 1
    assert done.out.startswith("ConnectionException: ")


def test_address_create_and_delete_report_errors(qdmanage: QdmanageProgram) -> None:
    made = qdmanage.json("create --type=address --name=addr prefix=from.tool distribution=multicast waypoint=true")
    assert (made["prefix"], made["distribution"], made["waypoint"], made["egressPhase"]) == (
        "from.tool", "multicast", True, 1,
    )  # fmt: skip
    out = qdmanage("create --type=address --name=addr prefix=other", expect=1)
    assert out == "BadRequestStatus: Name conflicts with an existing entity\n"
    out = qdmanage("create --type=address prefix=from.tool", expect=1)
    assert out == "BadRequestStatus: Already exists\n"
    assert qdmanage("delete --type=address --name=addr") == ""
    assert qdmanage("delete --type=address --name=addr", expect=1) == "NotFoundStatus: Not Found\n"


def test_exchange_deletion_removes_bindings(qdmanage: QdmanageProgram) -> None:
    exchange = f"--type={PREFIX}router.config.exchange"
    binding = f"--type={PREFIX}router.config.binding"
    made = qdmanage.json(["create", exchange, "--name=EX", "address=ex.in", "matchMethod=mqtt", "phase=2"])
    assert (made["name"], made["address"], made["phase"], made["bindingCount"]) == ("EX", "ex.in", 2, 0)
    made = qdmanage.json(["create", binding, "name=B", "exchangeName=EX", "bindingKey=a/+", "nextHopAddress=hop"])
    assert (made["name"], made["bindingKey"], made["matchedCount"]) == ("B", "a/+", 0)
    assert qdmanage(["create", exchange, "--name=EX2"], expect=1).startswith("BadRequestStatus: ")
    assert qdmanage(["delete", exchange, "--name=EX"]) == ""
    assert qdmanage.json(["query", binding]) == []


def test_connection_trace_update_is_answered(qdmanage: QdmanageProgram) -> None:
    row = qdmanage.json("query --type=connection")[0]
    command = f"update --type=connection --id={row['identity']} enableProtocolTrace=true"
    out = qdmanage.run(*command.split()).out
    assert out.startswith(("{", "BadRequestStatus"))  # the connection of the query is already closed


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("read --name nosuch", "NotFoundStatus: No entity with name=nosuch\n"),
        ("query --type=nosuch", f"BadRequestStatus: No such entity type '{PREFIX}nosuch'\n"),
        ("create --type=dummy num1=x", "ValueError: invalid literal for int() with base 10: 'x'\n"),
        ("create --type=dummy bogus=x", f"ValidationError: Unknown attribute 'bogus' for '{DUMMY}'\n"),
        ("read --type=org.apache.qpid.dispatch.router --name=QDR", "ForbiddenStatus: Forbidden\n"),
        ("create arg1=x", None),
        ("--body {x create", None),
        ("nosuch", None),
    ],
)
def test_error_is_printed_with_exit_code_1(command: str, out: str | None, qdmanage: QdmanageProgram) -> None:
    """The program prints exception class and text on stdout and exits with 1."""
    said = qdmanage(command, expect=1)
    if out is None:
        assert re.match(r"(BadRequestStatus|NotImplementedStatus|ValueError): ", said)
    else:
        assert said == out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "No operation specified"),
        (["read", "x"], "Unexpected arguments: x"),
        (["query", "--nosuch"], ""),
        (["query", "--indent", "x"], ""),
    ],
)
def test_wrong_usage_exits_with_code_2(arguments: list[str], said: str, shared_router: RouterProcess) -> None:
    done = run("qdmanage", "-b", f"127.0.0.1:{shared_router.port}", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.lower().startswith("usage: ")
    assert f"qdmanage: error: {said}" in done.err


@pytest.mark.parametrize("option", ["-h", "--help", "--version"])
def test_help_option_exits_with_code_0(option: str) -> None:
    done = run("qdmanage", option)
    assert done.code == 0
    assert done.out


def test_indent_option_formats_output(shared_router: RouterProcess) -> None:
    bus = ("-b", f"127.0.0.1:{shared_router.port}")
    assert run("qdmanage", *bus, "query", "--type=listener", "--indent=-1").out.count("\n") == 1
    assert "\n  {" in run("qdmanage", *bus, "query", "--type=listener").out
    assert "\n    {" in run("qdmanage", *bus, "query", "--type=listener", "--indent", "4").out


def test_router_option_selects_router(qdmanage: QdmanageProgram) -> None:
    assert qdmanage.json("query --type=router -r QDR")[0]["id"] == "QDR"
    assert qdmanage("query -r NOPE", expect=1) == "UnknownRouter: router 'NOPE' is not in the network\n"
