"""CREATE, UPDATE and DELETE of configured entities while the router runs (management.md 5.7 to 5.10)."""

import os
from pathlib import Path

import pytest

from tests.peer import message
from tests.peer.management import PREFIX, Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh
from tests.system.router import FILES, RouterProcess, Section, free_port, poll

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    FILES,
    ("exchange", {"name": "old", "address": "ex.old"}),
    ("binding", {"name": "old-1", "exchangeName": "old", "bindingKey": "a", "nextHopAddress": "hop.1"}),
]
ADDRESS = PREFIX + "router.config.address"
EXCHANGE = PREFIX + "router.config.exchange"
BINDING = PREFIX + "router.config.binding"


# brokers-and-edge.md L-5.
def test_listener_created_and_deleted_keeps_its_connections(
    management: Management, connect: Connect, fresh: Fresh
) -> None:
    port = free_port()
    body = management.create("listener", "extra", host="127.0.0.1", port=str(port), linkCapacity=7)
    assert (body["name"], body["identity"]) == ("extra", f"listener/127.0.0.1:{port}:extra")
    assert (body["port"], body["linkCapacity"], body["role"]) == (str(port), 7, "normal")
    assert management.call("READ", type="listener", name="extra") == body
    peer = AmqpPeer.opened(port)
    receiver = peer.receiver(fresh(), 1)
    duplicate = management.ask("CREATE", {"host": "127.0.0.1", "port": str(port)}, type="listener", name="extra")
    assert duplicate.status == 400
    assert "duplicates unique attribute 'name' from existing ListenerEntity(" in duplicate.description
    assert management.ask("DELETE", type="listener", name="extra").outcome == (204, "No Content")
    assert management.ask("READ", type="listener", name="extra").outcome == (404, "No entity with name=extra")

    def refused() -> bool:
        try:
            AmqpPeer(port).drop()
        except ConnectionRefusedError:
            return True
        return False

    poll(refused, "the listener is closed")
    peer.barrier()
    assert receiver.name, "a connection of the deleted listener stays open"
    peer.close()


def test_listener_on_busy_port_is_created(router: RouterProcess, management: Management) -> None:
    port = str(router.ports[""])
    answer = management.ask("CREATE", {"host": "127.0.0.1", "port": port}, type="listener", name="busy")
    assert answer.outcome == (201, "Created")
    assert management.ask("DELETE", type="listener", name="busy").status == 204


BAD_LISTENERS = [
    ({"port": "1", "nonsense": 1}, 400, f"Unknown attribute 'nonsense' for '{PREFIX}listener'"),
    ({"port": "1", "identity": "x"}, 400, "Cannot set attribute 'identity' in CREATE"),
    ({"port": "1", "role": "boss"}, 400, "Invalid value for enum["),
    ({"port": "1", "maxFrameSize": "many"}, 400, "invalid literal for int() with base 10: 'many'"),
    ({"port": "1", "multiTenant": "maybe"}, 400, "Invalid Boolean value ''maybe''"),
]


@pytest.mark.parametrize(("body", "status", "text"), BAD_LISTENERS)
def test_listener_with_bad_attribute_is_refused(
    management: Management, body: dict[str, object], status: int, text: str
) -> None:
    answer = management.ask("CREATE", body, type="listener", name="bad")
    assert answer.status == status
    assert text in answer.description
    assert management.ask("READ", name="bad").status == 404


def test_log_update_changes_the_level_at_once(router: RouterProcess, management: Management) -> None:
    """A change takes effect at once; a refused change leaves everything as before (management.md 4.4)."""
    body = management.call("UPDATE", {"enable": "debug+"}, name="log/AGENT", type="log")
    assert (body["module"], body["enable"]) == ("AGENT", "debug+")
    management.call("GET-ANNOTATIONS")
    assert any("Agent request" in row[2] and "GET-ANNOTATIONS" in row[2] for row in management.call("GET-LOG"))
    for wrong in ({"enable": "loud"}, {"outputFile": "/nowhere/at/all"}):
        assert management.ask("UPDATE", wrong, name="log/AGENT").status in (400, 500)
        assert management.call("READ", name="log/AGENT")["enable"] == "debug+"
    assert management.ask("UPDATE", {"module": "HTTP"}, name="log/AGENT").outcome == (
        400, "Cannot update attribute 'module' in UPDATE",
    )  # fmt: skip
    assert management.ask("UPDATE", {"bogus": 1}, name="log/AGENT").status == 400
    assert management.ask("UPDATE", "text", name="log/AGENT").outcome == (400, "Body of request must be a map")
    management.call("UPDATE", {"enable": None, "name": "log/AGENT"}, name="log/AGENT")
    assert "enable" not in management.call("READ", name="log/AGENT")


def test_files_that_block_do_not_block_the_router(
    router: RouterProcess, management: Management, connect: Connect, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    seen = len(router.lines)
    connector = {"port": "1", "role": "route-container", "saslUsername": "u", "saslPassword": f"file:{fifo}"}
    assert management.ask("CREATE", connector, type="connector", name="fifo").outcome == (201, "Created")
    router.wait_log(rf"CONN_MGR \(error\) Unable to open password file {fifo}, error: Not a regular file", after=seen)
    before = management.call("READ", name="log/AGENT")
    assert management.ask("UPDATE", {"outputFile": str(fifo)}, name="log/AGENT").outcome == (
        500, f"CError: Configuration: Failed to open log file '{fifo}'",
    )  # fmt: skip
    assert management.call("READ", name="log/AGENT") == before
    connect().barrier()
    assert management.ask("DELETE", type="connector", name="fifo").status == 204


def test_connector_with_overlong_user_name_is_refused(management: Management) -> None:
    connector = {"port": "1", "role": "route-container", "saslUsername": "u" * 70_000}
    text = f"{PREFIX}connector: attribute 'saslUsername' has 70000 octets; at most 400 are allowed"
    assert management.ask("CREATE", connector, type="connector", name="long").outcome == (400, text)


def test_dummy_entity_supports_all_operations(management: Management) -> None:
    body = management.call("CREATE", {"arg1": "x", "num1": 5}, type="dummy", name="d")
    assert (body["arg1"], body["num1"], body["name"]) == ("x", 5, "d")
    assert management.call("UPDATE", {"arg1": "y"}, name="d")["arg1"] == "y"
    echoed = management.call("CALLME", name="d", extra=7)
    assert (echoed["operation"], echoed["name"], echoed["extra"]) == ("CALLME", "d", 7)
    assert management.ask("DELETE", name="d").status == 204
    assert management.ask("DELETE", name="d").outcome == (404, "No entity with name=d")


def test_log_update_shows_a_repeated_failure_again(router: RouterProcess, management: Management) -> None:
    """Equal failures within ten seconds are one line, unless the module's log is changed in between."""
    target = {"name": "log/AGENT", "type": "log"}
    failure = "Error performing READ: No entity with name=is-not-there"
    for level in ("debug+", "info+", "debug+"):
        management.call("UPDATE", {"enable": level}, **target)
        for _ in range(2):
            assert management.ask("READ", name="is-not-there").status == 404
    management.call("UPDATE", {"enable": None}, **target)
    lines = [line for line in router.log.splitlines() if line.endswith(failure)]
    assert len([line for line in lines if " more of this kind" not in line]) == 3


def test_address_configuration_is_created_and_deleted(management: Management, fresh: Fresh) -> None:
    prefix = fresh("made").replace("/", ".")
    answer = management.ask("CREATE", {"prefix": f"/{prefix}/", "distribution": "closest"}, type=ADDRESS, name=prefix)
    assert answer.outcome == (201, "Created")
    row = answer.body
    assert (row["name"], row["prefix"], row["distribution"], row["priority"]) == (prefix, prefix, "closest", -1)
    assert management.call("READ", type=ADDRESS, identity=row["identity"]) == row
    again = management.ask("CREATE", {"pattern": "else"}, type=ADDRESS, name=prefix)
    assert (again.outcome, again.body) == ((400, "Name conflicts with an existing entity"), None)
    assert management.ask("UPDATE", {"priority": 1}, type=ADDRESS, name=prefix).status == 501
    assert management.ask("DELETE", type=ADDRESS, identity=row["identity"]).outcome == (204, "No Content")
    assert management.ask("READ", type=ADDRESS, identity=row["identity"]).outcome == (404, "Not Found")
    unnamed = management.ask("CREATE", {"prefix": prefix}, type=ADDRESS)
    assert (unnamed.status, unnamed.body["name"]) == (201, None)
    assert int(unnamed.body["identity"]) > int(row["identity"]), "numbers are not used again"
    assert management.ask("DELETE", type=ADDRESS, identity=unnamed.body["identity"]).status == 204


def test_exchange_created_at_runtime_forwards_and_counts(management: Management, connect: Connect) -> None:
    """Cover the creation, use, counters and deletion of an exchange with its bindings."""
    made = management.create("router.config.exchange", "new", address="ex.new")
    assert (made["address"], made["matchMethod"], made["receivedCount"]) == ("ex.new", "amqp", 0)
    body = {"exchangeName": "new", "bindingKey": "k", "nextHopAddress": "new.hop"}
    unnamed = management.call("CREATE", body, type=BINDING)
    assert (unnamed["name"], unnamed["bindingKey"]) == (None, "k")
    receiver = connect().receiver("new.hop", 10)
    sender = connect().sender("ex.new")
    assert sender.request(message.message("x", subject="k")).name == "accepted"
    assert message.body(receiver.next().payload) == "x"
    assert management.one("router.config.exchange", name="new")["forwardedCount"] == 1
    assert management.one("router.config.binding", identity=unnamed["identity"])["matchedCount"] == 1
    rows = [row["exchangeName"] for row in management.query("router.config.binding")]
    assert rows == sorted(rows, key=["old", "new"].index), "grouped by exchange"
    assert management.ask("DELETE", type=EXCHANGE, name="new").status == 204
    assert [row["exchangeName"] for row in management.query("router.config.binding")] == ["old"]


REFUSED_ENTITIES = [
    (EXCHANGE, None, {"address": "x"}, "exchange requires a unique name"),
    (EXCHANGE, "x", {}, "exchange address is mandatory"),
    (EXCHANGE, "x", {"address": "ex.old"}, "duplicate exchange address"),
    (EXCHANGE, "old", {"address": "x"}, "duplicate exchange name"),
    (EXCHANGE, "x", {"address": "x", "matchMethod": "no"}, "Exchange matchMethod must be either 'amqp' or 'mqtt'"),
    (EXCHANGE, "x", {"address": "x", "phase": 10}, "phase must be in the range 0-9"),
    (EXCHANGE, "x", "text", "Body of request must be a map"),
    (BINDING, "x", {}, "Binding configuration requires an exchange"),
    (BINDING, "x", {"exchangeName": "no", "nextHopAddress": "h"}, "Named exchange does not exist"),
    (BINDING, "x", {"exchangeName": "old"}, "No next hop specified"),
    (BINDING, "old-1", {"exchangeName": "old", "bindingKey": "z", "nextHopAddress": "h"}, "Duplicate next hop name"),
    (BINDING, "x", {"exchangeName": "old", "bindingKey": "a", "nextHopAddress": "hop.1"},
     "Next hop for key already exists"),
    (BINDING, "x", None, "Body of request must be a map"),
    (ADDRESS, "x", [1], "Body of request must be a map"),
    (ADDRESS, "x", {}, "Either a 'prefix' or 'pattern' attribute must be provided"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "body", "text"), REFUSED_ENTITIES)
def test_entity_with_bad_attributes_is_refused(
    management: Management, kind: str, name: str | None, body: object, text: str
) -> None:
    properties = {"operation": "CREATE", "type": kind} | ({"name": name} if name is not None else {})
    answer = management.exchange(management.request(properties, body))
    assert (answer.outcome, answer.body) == ((400, text), None)


def test_delete_of_unknown_entity_is_not_found(management: Management) -> None:
    with pytest.raises(ManagementStatusError, match="404 Not Found"):
        management.delete("router.config.binding", "nope")
    with pytest.raises(ManagementStatusError, match="404 Not Found"):
        management.delete("router.config.exchange", "nope")


def test_address_named_like_a_log_does_not_hide_the_log(management: Management) -> None:
    management.create("router.config.address", "log/HTTP", prefix="apart")
    assert management.call("READ", name="log/HTTP")["module"] == "HTTP"
    management.delete("router.config.address", "log/HTTP")
    assert management.call("READ", name="log/HTTP")["module"] == "HTTP"
