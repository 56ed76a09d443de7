"""Connectors: the life of an outgoing connection, with a scripted peer as the broker."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluice.router.sasl.mechanism import Challenge, Success
from sluice.router.sasl.scram import ScramServer
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make
from tests.peer import frames
from tests.peer.container import ScriptedBroker
from tests.peer.frames import AMQP_HEADER, SASL_HEADER
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.peer.types import Map, Symbol
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

ROUTER = "QDR"
#: Permitted delay in s of a retry on a busy machine. brokers-and-edge.md C-8 permits one second.
LATE = 1.5
CONNECTOR = "connector"


class ConnectorRouter:
    """A router with a management client."""

    def __init__(self, router: RouterProcess) -> None:
        self.router = router
        self.peer = AmqpPeer.opened(next(iter(router.ports.values())))
        self.management = Management(self.peer)

    def row(self, name: str = "broker") -> dict[str, Any]:
        return self.management.one(CONNECTOR, name=name)

    def wait(
        self, condition: Callable[[dict[str, Any]], Any], what: str, name: str = "broker", timeout: float = 10.0
    ) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            row = self.row(name)
            return row if condition(row) else None

        row: dict[str, Any] = poll(found, what, timeout)
        return row

    def connections(self) -> list[dict[str, Any]]:
        """Return the rows of outgoing connections."""
        return [row for row in self.management.query("connection") if row["dir"] == "out"]


@pytest.fixture
def brokers() -> Iterator[Callable[[], ScriptedBroker]]:
    made: list[ScriptedBroker] = []

    def make() -> ScriptedBroker:
        made.append(ScriptedBroker())
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(brokers: Callable[[], ScriptedBroker]) -> ScriptedBroker:
    return brokers()


@pytest.fixture
def start_router(start: Start, workers: int, broker: ScriptedBroker) -> Callable[..., ConnectorRouter]:
    """Return a function that starts a router with a connector to the broker."""
    made = []

    def begin(sections: list[Section] | None = None, **attributes: Any) -> ConnectorRouter:
        made.append(ConnectorRouter(start([*(sections or []), connector(broker, **attributes), listener()], workers)))
        return made[-1]

    return begin


def connector(broker: ScriptedBroker, name: str = "broker", **attributes: Any) -> Section:
    return CONNECTOR, {"name": name, "host": "127.0.0.1", "port": broker.port, **attributes}


# brokers-and-edge.md W-1, C-1.
def test_open_of_connector_has_configured_fields(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    start_router(
        role="route-container",
        maxFrameSize=2048,
        maxSessions=10,
        idleTimeoutSeconds=20,
        openProperties={"color": "red", "size": 3},
    )
    container = broker.serve()
    said = container.remote_open
    assert said is not None
    assert (said.container_id, said.hostname) == (ROUTER, "127.0.0.1")
    assert (said.max_frame_size, said.channel_max, said.idle_time_out) == (2048, 9, 10000)
    assert [str(each) for each in said.offered_capabilities] == ["ANONYMOUS-RELAY", "qd.streaming-links"]
    properties = dict(said.properties.items())
    assert isinstance(properties.pop("qd.conn-id"), int)
    assert properties.pop("product")
    assert properties.pop("version")
    assert properties == {"color": "red", "size": 3}
    assert container.init.mechanism == "ANONYMOUS"
    assert container.init.initial_response.startswith(b"anonymous@")
    assert container.init.hostname == "127.0.0.1"


# brokers-and-edge.md W-9, C-2, C-6.
# security.md S-12.
def test_open_connection_is_shown_in_rows_and_log(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    own = start_router(role="route-container", saslUsername="somebody")
    broker.serve(container_id="the-broker", properties=Map([(Symbol("product"), "x")]))
    row = own.wait(lambda row: "Opened" in row["connectionMsg"], "the connection opens")
    (connection,) = own.connections()
    number, place = connection["identity"], f"127.0.0.1:{broker.port}"
    text = (
        f"[C{number}] Connection Opened: dir=out host={place} vhost= encrypted=no auth=ANONYMOUS user=somebody "
        "container_id=the-broker"
    )
    assert (row["connectionStatus"], row["connectionMsg"]) == ("SUCCESS", text)
    assert row["failoverUrls"] == f"amqp://{place}"
    assert row["saslUsername"] == "somebody"
    wanted = {
        "name": f"connection/{place}",
        "host": place,
        "role": "route-container",
        "container": "the-broker",
        "sasl": "ANONYMOUS",
        "user": "somebody",
        "isAuthenticated": True,
        "opened": True,
        "properties": {"product": "x"},
    }
    assert {key: connection[key] for key in wanted} == wanted
    own.router.wait_log(re.escape(f'{text} props={{:product="x"}}'))
    own.router.wait_log(f"Configured Connector: {place} proto=any, role=route-container")


def test_normal_connector_accepts_links_of_peer(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    """Role normal: the peer attaches links as a client does."""
    own = start_router()
    container = broker.serve()
    receiver = container.receiver("queue", credit=10)
    sender = own.peer.sender("queue")
    number = sender.send(b"\x00\x53\x75\xa0\x01x")
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_plain_login_hides_password(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    own = start_router(saslUsername="user", saslPassword="pass:se cret")
    container = broker.serve(mechanisms=("CRAM-MD5", "ANONYMOUS", "PLAIN"))
    assert (container.init.mechanism, container.init.initial_response) == ("PLAIN", b"\x00user\x00se cret")
    assert own.row()["saslPassword"] is None  # passwords are never shown
    (row,) = poll(own.connections, "the connection is open")
    assert (row["sasl"], row["user"]) == ("PLAIN", "user")
    own.router.wait_log("It is unsafe to provide plain text passwords in the config file")


def scram_server(password: str) -> ScramServer:
    verifier = make("SCRAM-SHA-256", password, 4096)
    return ScramServer("SCRAM-SHA-256", Users({"user": {"SCRAM-SHA-256": verifier}}))


def test_strongest_scram_mechanism_is_used(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    """The strongest offered mechanism is used (security.md S-10), and the broker proves itself as well."""
    own = start_router(saslUsername="user", saslPassword="pass:secret")
    container = broker.accept()
    container.offer(["PLAIN", "SCRAM-SHA-256", "ANONYMOUS"])
    assert container.init.mechanism == "SCRAM-SHA-256"
    server = scram_server("secret")
    challenge = server.step(bytes(container.init.initial_response))
    assert isinstance(challenge, Challenge)
    container.frame("sasl-challenge", challenge=challenge.octets)
    success = server.step(bytes(container.expect("sasl-response").response))
    assert isinstance(success, Success)
    container.frame("sasl-outcome", code=0, additional_data=success.additional)
    container.open_after_sasl()
    (row,) = poll(own.connections, "the connection is open")
    assert (row["sasl"], row["user"]) == ("SCRAM-SHA-256", "user")


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        (b"v=AAAA", "the server's signature is wrong, so the server does not know the password"),
        (None, "the server has not proved that it knows the password"),
    ],
)
def test_broker_without_password_proof_is_refused(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker, proof: bytes | None, text: str
) -> None:
    own = start_router(saslUsername="user", saslPassword="pass:secret", saslMechanisms="SCRAM-SHA-256")
    container = broker.accept()
    container.offer(["SCRAM-SHA-256"])
    challenge = scram_server("another").step(bytes(container.init.initial_response))
    assert isinstance(challenge, Challenge)
    container.frame("sasl-challenge", challenge=challenge.octets)
    container.expect("sasl-response")
    container.frame("sasl-outcome", code=0, additional_data=proof)
    expect_failure(own, f"amqp:unauthorized-access SCRAM-SHA-256: {text} (Authentication failed [mech=SCRAM-SHA-256])")


# brokers-and-edge.md C-14.
def test_anonymous_login_is_used_without_plain_offer(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    start_router(saslUsername="user", saslPassword="secret")
    assert broker.serve(mechanisms=("ANONYMOUS",)).init.mechanism == "ANONYMOUS"


def expect_failure(own: ConnectorRouter, tail: str) -> None:
    """Check that the connector shows a failure and retries."""
    row = own.wait(lambda row: " failed: " in row["connectionMsg"], "an attempt fails")
    head, _, told = row["connectionMsg"].partition(" failed: ")
    assert head.endswith(f"] Connection to 127.0.0.1:{row['port']}")
    assert told == tail
    assert row["connectionStatus"] == "CONNECTING"
    own.router.wait_log(re.escape(row["connectionMsg"]))


# brokers-and-edge.md C-7.
# security.md S-11.
def test_authentication_failure_is_shown(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    own = start_router(saslUsername="user", saslPassword="wrong", saslMechanisms="PLAIN")
    container = broker.serve(mechanisms=("PLAIN",), code=1)
    assert container.read_rest() == b""
    expect_failure(own, "amqp:unauthorized-access Authentication failed [mech=PLAIN]")


def test_missing_common_mechanism_is_shown(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    own = start_router()
    container = broker.accept()
    container.raw(SASL_HEADER)
    container.frame("sasl-mechanisms", sasl_server_mechanisms=Symbol("EXTERNAL"))
    assert container.read_rest() == SASL_HEADER
    expect_failure(
        own, "amqp:unauthorized-access SASL(-4): no mechanism available:  (Authentication failed [mech=none])"
    )


def test_peer_without_sasl_is_shown(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    own = start_router()
    container = broker.accept()
    assert container.read_octets(8) == SASL_HEADER
    container.raw(AMQP_HEADER)
    assert container.read_rest() == b""
    expect_failure(
        own,
        "amqp:connection:framing-error Expected SASL protocol header got: AMQP 1.0 layer ['AMQP\\x00\\x01\\x00\\x00']",
    )


@pytest.mark.parametrize("after", ["nothing", "sasl"])
def test_peer_closing_before_its_header_is_shown(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker, after: str
) -> None:
    own = start_router()
    container = broker.accept()
    if after == "sasl":
        container.offer()
        container.frame("sasl-outcome", code=0)
    container.drop()
    expect_failure(
        own,
        "amqp:connection:framing-error Expected AMQP protocol header: no protocol header found (connection aborted)",
    )


def test_close_instead_of_open_is_shown(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    own = start_router()
    container = broker.accept()
    container.offer()
    container.frame("sasl-outcome", code=0)
    container.raw(AMQP_HEADER)
    container.frame("close", error=frames.error("amqp:not-allowed", "not today"))
    expect_failure(own, "amqp:not-allowed not today")


# brokers-and-edge.md C-7, C-9.
def test_refused_connection_is_retried(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    broker.refuse()
    own = start_router()
    expect_failure(own, f"proton:io Connection refused - disconnected 127.0.0.1:{broker.port}")
    broker.listen()
    broker.serve(timeout=10)
    own.wait(lambda row: "Connection Opened" in row["connectionMsg"], "the connection opens")


# brokers-and-edge.md C-3, C-7.
def test_unresolvable_host_is_shown(start: Start, broker: ScriptedBroker) -> None:
    section = (CONNECTOR, {"name": "broker", "host": "nosuch.invalid", "port": "amqp"})
    own = ConnectorRouter(start([section, listener()], 1))
    row = own.wait(lambda row: " failed: " in row["connectionMsg"], "an attempt fails")
    assert "Connection to nosuch.invalid:amqp failed: proton:io " in row["connectionMsg"]
    assert row["connectionMsg"].endswith(" - connect to  nosuch.invalid:amqp")


def test_silent_peer_is_closed_and_retried(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    own = start_router(idleTimeoutSeconds=1)
    container = broker.serve()
    assert container.expect_close() == ("amqp:resource-limit-exceeded", "local-idle-timeout expired")
    row = own.wait(lambda row: "failed" in row["connectionMsg"], "the connection ends")
    assert row["connectionMsg"].endswith(" failed: amqp:resource-limit-exceeded local-idle-timeout expired")
    broker.serve(timeout=2 + LATE)


def test_heartbeats_follow_idle_timeout_of_peer(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    start_router()
    container = broker.serve(idle_time_out=400)
    for _ in range(3):
        assert container.read_frame(timeout=1).performative is None


def test_close_by_peer_is_no_failure(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    own = start_router()
    container = broker.serve()
    own.wait(lambda row: "Opened" in row["connectionMsg"], "the connection opens")
    container.frame("close", error=frames.error("amqp:connection:forced", "maintenance"))
    assert container.expect_close() is None
    ended = time.monotonic()
    row = own.wait(lambda row: row["connectionStatus"] == "CONNECTING", "the connection ends")
    assert "Connection Opened" in row["connectionMsg"]
    again = broker.accept(timeout=2 + LATE)
    assert time.monotonic() - ended > 1
    again.serve()


def test_lost_connection_is_a_failure(start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker) -> None:
    own = start_router()
    container = broker.serve()
    own.wait(lambda row: "Opened" in row["connectionMsg"], "the connection opens")
    container.drop()
    row = own.wait(lambda row: "failed" in row["connectionMsg"], "the connection ends")
    assert row["connectionMsg"].endswith(" failed: amqp:connection:framing-error connection aborted")
    broker.serve(timeout=2 + LATE)


def test_failover_address_is_used_after_errors(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker, brokers: Any
) -> None:
    second: ScriptedBroker = brokers()
    own = start_router()
    key, place = Symbol, f"127.0.0.1:{broker.port}"
    server = Map([(key("network-host"), "127.0.0.1"), (key("port"), str(second.port))])
    container = broker.serve(properties=Map([(key("failover-server-list"), [server])]))
    other = f"amqp://127.0.0.1:{second.port}"
    own.wait(lambda row: row["failoverUrls"] == f"amqp://{place}, {other}", "the list is learned")
    broker.refuse()
    container.drop()
    second.serve(timeout=2 * 1 + LATE)
    own.wait(lambda row: row["failoverUrls"] == f"{other}, amqp://{place}", "the other one is the current one")
    poll(own.connections, "the connection is open")
    assert [row["host"] for row in own.connections()] == [place], "that of the configuration"


def test_peer_cannot_redirect_connector_without_allow_redirect(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker, brokers: Any
) -> None:
    second: ScriptedBroker = brokers()
    own = start_router(allowRedirect=False)
    server = Map([(Symbol("network-host"), "127.0.0.1"), (Symbol("port"), str(second.port))])
    listed = Map([(Symbol("failover-server-list"), [server])])
    for _ in range(3):  # a listed address would be next after two errors
        container = broker.serve(properties=listed, timeout=2 + LATE)
        own.wait(lambda row: "Opened" in row["connectionMsg"], "the connection opens")
        container.drop()
        row = own.wait(lambda row: "failed" in row["connectionMsg"], "the connection ends")
        assert row["failoverUrls"] == f"amqp://127.0.0.1:{broker.port}"


# brokers-and-edge.md C-9, C-33.
def test_deleted_connector_closes_and_stops_retrying(
    start_router: Callable[..., ConnectorRouter], broker: ScriptedBroker
) -> None:
    own = start_router()
    container = broker.serve()
    own.management.delete(CONNECTOR, "broker")
    assert container.expect_close() is None
    assert own.management.query(CONNECTOR) == []
    assert broker.quiet(3)


def test_created_connector_connects(start: Start, workers: int, broker: ScriptedBroker) -> None:
    own = ConnectorRouter(start([listener()], workers))
    own.management.create(CONNECTOR, "broker", host="127.0.0.1", port=str(broker.port), role="route-container")
    broker.serve(timeout=2)
    own.wait(lambda row: "Opened" in row["connectionMsg"], "the connection opens")
    with pytest.raises(ManagementStatusError, match="invalid literal for int"):
        own.management.create(CONNECTOR, "other", maxSessions="x")
    assert [row["name"] for row in own.management.query(CONNECTOR)] == ["broker"]


@pytest.mark.disturbs("a worker is killed")
def test_connectors_of_killed_worker_reconnect(start: Start, brokers: Callable[[], ScriptedBroker]) -> None:
    made = [brokers() for _ in range(6)]
    sections = [connector(broker, f"broker{number}") for number, broker in enumerate(made)]
    router = start([*sections, listener()], 3)
    first = [broker.serve() for broker in made]
    for victim in router.worker_pids():
        os.kill(victim, signal.SIGKILL)
    for broker, container in zip(made, first, strict=True):
        container.expect_end()
        broker.serve(timeout=5)


def test_reload_of_address_moves_that_connector_only(
    start: Start, workers: int, brokers: Callable[[], ScriptedBroker]
) -> None:
    one, two, other = brokers(), brokers(), brokers()
    router = start([connector(one), connector(other, "other"), listener()], workers)
    own = ConnectorRouter(router)
    before, stays = one.serve(), other.serve()
    router.configure([connector(two), connector(other, "other"), listener()])
    own.management.call("RELOAD")
    assert before.expect_close() is None
    two.serve(timeout=3)
    own.wait(lambda row: f":{two.port} " in row["connectionMsg"], "the connection opens")
    stays.barrier()
    router.configure([connector(two), listener()])
    own.management.call("RELOAD")
    assert stays.expect_close() is None
    assert [row["name"] for row in own.management.query(CONNECTOR)] == ["broker"]


def test_reloaded_attributes_apply_to_next_connection(start: Start, workers: int, broker: ScriptedBroker) -> None:
    router = start([connector(broker), listener()], workers)
    own = ConnectorRouter(router)
    container = broker.serve()
    router.configure([connector(broker, maxFrameSize=1024), listener()])
    plan = own.management.call("RELOAD")
    assert [(change["kind"], change["effect"]) for change in plan["changes"]] == [("update", "reconnect")]
    container.barrier()
    container.frame("close")
    container.expect_close()
    again = broker.serve(timeout=2 + LATE).remote_open
    assert again is not None
    assert again.max_frame_size == 1024


@pytest.mark.disturbs("the router is stopped")
def test_router_stop_is_no_connector_failure(start: Start, workers: int, broker: ScriptedBroker) -> None:
    router = start([connector(broker), listener()], workers)
    container = broker.serve()
    router.wait_log("Connection Opened: dir=out")
    router.stop()
    container.expect_end()
    assert " failed: " not in router.log


@pytest.mark.disturbs("a router is killed")
def test_failover_list_of_router_is_used_after_its_kill(start: Start) -> None:
    second = start([listener()])
    first = start([listener(failoverUrls=f"amqp://127.0.0.1:{second.port}")])
    sections = [(CONNECTOR, {"name": "broker", "host": "127.0.0.1", "port": first.port}), listener()]
    own = ConnectorRouter(start(sections))
    both = [f"amqp://127.0.0.1:{router.port}" for router in (first, second)]
    own.wait(lambda row: row["failoverUrls"] == ", ".join(both), "the list is learned")
    first.kill()
    own.wait(lambda row: row["failoverUrls"] == ", ".join(reversed(both)), "it goes to the other", timeout=30)
    second.wait_log("Connection Opened: dir=in host=127.0.0.1")
