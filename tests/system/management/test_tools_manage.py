"""Tools `qdmanage` and `sluice reload` against a router, with the effects that clients see."""

import json
from typing import Any

import pytest

from sluice.router.cli.manage import long_type
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh, Start, pair, pass_one
from tests.system.router import SETTINGS, RouterProcess, free_port, listener, render
from tests.system.tools import run, table

LONG = "org.apache.qpid.dispatch."


def manage(router: RouterProcess, *words: str, stdin: str | None = None) -> Any:
    """Return the JSON that a successful call prints."""
    done = run("manage", router.port, *words, stdin=stdin)
    assert (done.code, done.err) == (0, ""), done
    return json.loads(done.out) if done.out else None


def manage_refused(router: RouterProcess, *words: str) -> str:
    """Return the output of a call that is refused."""
    done = run("manage", router.port, *words)
    assert (done.code, done.err) == (1, "")
    return done.out


def test_query_prints_rows_of_a_type(router: RouterProcess) -> None:
    rows = manage(router, "query", "--type=listener", "host", "port", "httpRootDir", "type")
    assert {"host": "127.0.0.1", "port": "0", "type": LONG + "listener"} in rows
    (own,) = manage(router, "query", "--type=router")
    assert (own["id"], own["identity"], own["workerThreads"]) == ("QDR", "1", router.workers)
    names = {row["name"] for row in manage(router, "query", "name", "type")}
    assert {"log/DEFAULT", "self", "QDR"} & names


def test_introspection_operations_print_the_schema(router: RouterProcess) -> None:
    types = manage(router, "get-types")
    assert len(types) == 29
    assert types[LONG + "listener"][-1] == LONG + "entity"
    assert list(manage(router, "get-attributes", "logStats")) == [LONG + "logStats"]
    assert "CREATE" in manage(router, "GET-OPERATIONS", "listener")[LONG + "listener"]
    assert manage(router, "get-annotations") == {}
    assert manage(router, "get-mgmt-nodes") == []
    assert set(manage(router, "get-schema")) == {"prefix", "entityTypes"}
    done = run("manage", router.port, "get-json-schema", "indent=1")
    assert json.loads(done.out)["prefix"] == LONG.removesuffix(".")
    assert len(manage(router, "get-log", "limit=3")) == 3


def test_address_created_by_tool_treats_messages(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    """A created address configuration treats messages from then on; a deleted one is removed."""
    name = fresh("made").replace("/", "-")
    words = ["--type=address", f"prefix={name}", "distribution=multicast", "priority=3"]
    made = manage(router, "create", *words, "--name", name)
    assert (made["name"], made["prefix"], made["distribution"], made["priority"]) == (name, name, "multicast", 3)
    assert manage(router, "read", "--type=address", "--name", name) == made
    sender, receiver = pair(connect, f"{name}/a")
    other = connect().receiver(f"{name}/a", 10)
    number = sender.send(b"\x00\x53\x77\xa1\x01x")
    for each in (receiver, other):
        each.next().settle()
    assert sender.outcome(number).name == "accepted"
    (shown,) = [row for row in table(router.port, "-a") if row["addr"] == f"{name}/a"]
    assert (shown["distrib"], shown["pri"], shown["local"]) == ("multicast", "3", "2")
    assert manage_refused(router, "create", *words, "--name", name) == (
        "BadRequestStatus: Name conflicts with an existing entity\n"
    )
    assert manage(router, "delete", "--type=address", "--name", name) is None
    assert manage_refused(router, "read", "--type=address", "--name", name) == "NotFoundStatus: Not Found\n"


def test_entities_from_stdin_are_created(router: RouterProcess, fresh: Fresh) -> None:
    names = [fresh("in").replace("/", "-") for _ in range(2)]
    given = [{"name": name, "prefix": name, "distribution": "closest"} for name in names]
    made = manage(router, "create", "--type=address", "--stdin", stdin=json.dumps(given))
    assert [each["name"] for each in made] == names
    for name in names:
        manage(router, "delete", "--type=address", "--name", name)


@pytest.mark.parametrize(
    ("short", "attributes"),
    [
        ("address", {"prefix": "from-stdin"}),
        ("linkRoute", {"prefix": "from-stdin", "direction": "in", "containerId": "c"}),
        ("autoLink", {"address": "from-stdin", "direction": "in", "containerId": "c"}),
        (f"{LONG}router.config.address", {"prefix": "from-stdin"}),
    ],
)
def test_short_types_from_stdin_are_created(router: RouterProcess, short: str, attributes: dict[str, str]) -> None:
    given = {"type": short, "name": "from-stdin", **attributes}
    made = manage(router, "create", "--stdin", stdin=json.dumps(given))
    assert (made["name"], made["type"]) == ("from-stdin", long_type(short))
    manage(router, "delete", f"--type={short}", "--name=from-stdin")


def test_listener_created_by_tool_accepts_connections(
    router: RouterProcess, peers: list[AmqpPeer], fresh: Fresh
) -> None:
    port = free_port()  # fixed, because the tool does not report a port that the kernel chose
    manage(router, "create", "--type=listener", "name=more", "host=127.0.0.1", f"port={port}", "linkCapacity=7")
    router.wait_log(rf"Listening on 127\.0\.0\.1:{port} \(more\)")
    peer = AmqpPeer.opened(port)
    peers.append(peer)
    assert peer.sender(fresh(), credit=False)
    manage(router, "delete", "--type=listener", "--name=more")
    manage(router, "query", "--type=connection")


def test_connection_closed_by_tool_gets_an_error(router: RouterProcess, connect: Connect) -> None:
    victim = connect(container_id="victim")
    (identity,) = [row["id"] for row in table(router.port, "-c") if row["container"] == "victim"]
    answer = manage(router, "update", "--type=connection", "--identity", identity, "adminStatus=deleted")
    assert (answer["adminStatus"], answer["operStatus"]) == ("deleted", "closing")
    error = victim.expect_close()
    assert error is not None
    assert error[0] == "amqp:connection:forced"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["read", "--type=router", "--identity=1"], "ForbiddenStatus: Forbidden\n"),
        (["read", "--name=no-such-entity"], "NotFoundStatus: No entity with name=no-such-entity\n"),
        (["read", "--type=nonsense", "--name=x"], f"BadRequestStatus: No such entity type '{LONG}nonsense'\n"),
        (["delete", "--type=router.link", "--identity=1"], "NotImplementedStatus: "),
        (["create", "--type=address", "prefix=a", "pattern=b"],
         "BadRequestStatus: Cannot specify both a 'prefix' and a 'pattern' attribute\n"),
    ],
)  # fmt: skip
def test_refusal_prints_status_and_description(router: RouterProcess, words: list[str], text: str) -> None:
    assert manage_refused(router, *words).startswith(text)


def test_reload_tool_plans_applies_and_undoes(start: Start, workers: int, fresh: Fresh) -> None:
    """A changed file is planned, applied and undone under traffic; an invalid file changes nothing."""
    sections = [listener(), *SETTINGS]
    router = start(sections, workers)
    text = router.config.read_text()
    peer = AmqpPeer.opened(router.port)
    receiver = peer.receiver("balanced/x", 10)
    sender = peer.sender("balanced/x")

    def reload(*words: str) -> tuple[int, str, str]:
        done = run("reload", router.port, *words)
        return done.code, done.out, done.err

    def priority() -> str:
        (row,) = [row for row in table(router.port, "-a") if row["addr"] == "balanced/x"]
        return row["pri"]

    assert reload() == (0, "Nothing changes.\n", "")
    router.config.write_text(text.replace("prefix: balanced\n", "prefix: balanced\n    priority: 8\n"))
    code, planned, err = reload("--plan")
    assert (code, err) == (0, "")
    assert "priority:" in planned
    assert priority() == "-"
    code, applied, _ = reload()
    assert (code, applied) == (0, planned)
    assert priority() == "8"
    pass_one(sender, receiver)
    router.config.write_text(text + render([("nonsense", {"a": 1})]))
    code, out, err = reload()
    assert (code, out) == (1, "")
    assert f"{router.config}:" in err
    assert "nonsense" in err
    assert priority() == "8"
    code, undone, _ = reload("--undo")
    assert (code, "priority:" in undone) == (0, True)
    assert priority() == "-"
    pass_one(sender, receiver)
    peer.drop()
