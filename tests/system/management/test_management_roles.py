"""Management roles of groups: at the router of the client, at another one, and at an edge router."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.peer import message
from tests.peer.management import PREFIX, Management, ManagementReply, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.system.edges import EDGES, edge
from tests.system.fixtures import Start, pass_one
from tests.system.networks import CONVERGENCE, interior, ports
from tests.system.router import EVERYTHING, FILES, RouterProcess, Section, listener, poll

WORKER_COUNTS = (1, 3)
pytestmark = pytest.mark.adversarial

UNAUTHORIZED = ("amqp:unauthorized-access", "link disallowed by local policy")


def vhost(hostname: str, **group: Any) -> Section:
    return "vhost", {"hostname": hostname, "onChange": "close", "groups": {"everybody": {**EVERYTHING, **group}}}


#: Hostnames with a policy each: the hostname of a client's open selects its role.
POLICY: list[Section] = [
    ("policy", {"enableVhostPolicy": True}),
    vhost("$default"),
    vhost("nothing", management="none"),
    vhost("viewer", management="read"),
    vhost("operator", management="operate"),
    vhost("careful", management="operate", allowAdminStatusUpdate=False),
    vhost("keeper", allowAdminStatusUpdate=False),
]
ROLES = ("nothing", "viewer", "operator", "careful", "keeper", "$default")
READERS = ROLES[1:]
#: Addresses of agents, as a client of router A writes them.
AGENTS = {
    "A": "$management", "A itself": "_topo/0/A/$management", "B": "_topo/0/B/$management",
    "E": "amqp:/_edge/E/$management", "C": "_topo/all/C/$management",
}  # fmt: skip
#: Addresses of agents, as a client of edge router E writes them.
AGENTS_FROM_EDGE = {"E": "$management", "A": "_topo/0/A/$management", "B": "_topo/0/B/$management"}


class RolesNetwork:
    """Interior routers C, A and B in a row, and edge router E connected to A."""

    def __init__(self, start: Callable[[str, list[Section]], RouterProcess]) -> None:
        a, b = ports(2)
        self.a = start("A", [*interior("A", a), listener(EDGES, role="edge"), *POLICY])
        self.b = start("B", [*interior("B", b, [a]), *POLICY])
        self.c = start("C", [*interior("C", None, [a]), *POLICY])
        self.e = start("E", [*edge("E", self.a), *POLICY])
        for router, count in ((self.a, 3), (self.b, 3), (self.c, 3)):
            poll(partial(_has_nodes, router, count), "the network is complete", CONVERGENCE)
        with AmqpPeer.opened(self.e.port) as peer:
            poll(partial(_agent_answers, peer, AGENTS["B"]), "the edge router has an uplink", CONVERGENCE)
        with AmqpPeer.opened(self.b.port) as peer:
            poll(partial(_agent_answers, peer, AGENTS["E"]), "the edge router is known", CONVERGENCE)


def _has_nodes(router: RouterProcess, count: int) -> bool:
    with AmqpPeer.opened(router.port) as peer:
        return len(Management(peer).query("router.node")) == count


def _agent_answers(peer: AmqpPeer, address: str) -> bool:
    """Return whether an agent accepts a request; a request is released while its route is unknown."""
    replies = peer.receiver(dynamic=True, credit=1)
    request = _request(replies.address, address, "QUERY", {"attributeNames": ["id"]}, entityType=f"{PREFIX}router")
    return peer.sender().request(request).name == "accepted"


@pytest.fixture(scope="module")
def _network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RolesNetwork]:
    with ExitStack() as routers:

        def start(name: str, sections: list[Section]) -> RouterProcess:
            router = RouterProcess(tmp_path_factory.mktemp(f"router{name}"), sections, request.param)
            router.start()
            routers.callback(router.stop)
            return router

        yield RolesNetwork(start)


@pytest.fixture
def network(_network: RolesNetwork, request: pytest.FixtureRequest) -> RolesNetwork:
    request.node.routers = [_network.a, _network.b, _network.c, _network.e]
    return _network


class AgentClient:
    """Client of one agent, with a sender to the agent's address or an anonymous sender."""

    def __init__(self, peer: AmqpPeer, address: str, anonymous: bool) -> None:
        self._peer = peer
        self._address = address
        self._replies = peer.receiver(dynamic=True, credit=100)
        self._sender = peer.sender() if anonymous else peer.sender(address)

    def ask(self, operation: str, body: Any = None, **properties: Any) -> ManagementReply:
        self._sender.wait_credit()
        self._sender.send(_request(self._replies.address, self._address, operation, body, **properties))
        return ManagementReply.of(self._replies.next().payload)

    def status(self, operation: str, body: Any = None, **properties: Any) -> int:
        return int(self.ask(operation, body, **properties).status)


def _request(reply_to: str | None, to: str, operation: str, body: Any = None, **properties: Any) -> bytes:
    fields = {"reply_to": reply_to, "to": to, "correlation_id": "1"}
    given = {"operation": operation, **properties}
    return message.properties(**fields) + message.application_properties(given) + message.value(body or {})


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


ROUTES_TO_AGENTS = [(place, anonymous, False) for place in AGENTS for anonymous in (False, True)]
ROUTES_TO_AGENTS += [(place, anonymous, True) for place in AGENTS_FROM_EDGE for anonymous in (False, True)]


@pytest.fixture(
    params=ROUTES_TO_AGENTS,
    ids=lambda route_to_agent: (
        f"{route_to_agent[0]}-{'anonymous' if route_to_agent[1] else 'bound'}{'-from-edge' * route_to_agent[2]}"
    ),
)
def route_to_agent(request: pytest.FixtureRequest) -> tuple[str, bool, bool]:
    found: tuple[str, bool, bool] = request.param
    return found


def test_role_decides_at_each_router(
    network: RolesNetwork, stack: ExitStack, route_to_agent: tuple[str, bool, bool]
) -> None:
    place, anonymous, from_edge = route_to_agent
    entry = network.e if from_edge else network.a
    address = (AGENTS_FROM_EDGE if from_edge else AGENTS)[place]
    target = {"A": network.a, "B": network.b, "C": network.c, "E": network.e}[place[0]]
    owner = Management(stack.enter_context(AmqpPeer.opened(target.port)))
    for role in READERS:
        peer = stack.enter_context(AmqpPeer.opened(entry.port, hostname=role))
        client = AgentClient(peer, address, anonymous)
        read = client.ask("QUERY", {"attributeNames": ["id"]}, entityType=f"{PREFIX}router")
        assert (read.status, read.body["results"]) == (200, [[place[0]]]), role
        assert client.status("GET-LOG", limit=10) == 200
        operates, all_of_it = role not in {"viewer"}, role in {"keeper", "$default"}
        log = {"type": f"{PREFIX}log", "identity": "log/AGENT"}
        assert client.status("UPDATE", {"enable": "info+"}, **log) == (200 if operates else 403), role
        made = {"type": f"{PREFIX}router.config.address", "name": f"by-{role}"}
        assert client.status("CREATE", {"prefix": f"by-{role}"}, **made) == (201 if all_of_it else 403), role
        assert client.status("DELETE", **made) == (204 if all_of_it else 403), role
        with AmqpPeer.opened(target.port, container_id=f"victim of {role}") as victim:
            number = owner.one("connection", container=f"victim of {role}")["identity"]
            which = {"type": f"{PREFIX}connection", "identity": number}
            traced = client.status("UPDATE", {"enableProtocolTrace": True}, **which)
            assert traced == (200 if operates else 403), role
            assert client.status("TRACE", connection=number) == (200 if operates else 403), role
            closes = role in {"operator", "$default"}
            assert client.status("UPDATE", {"adminStatus": "deleted"}, **which) == (200 if closes else 403), role
            if closes:
                closed = ("amqp:connection:forced", "Connection forced-closed by management request")
                assert victim.expect_close() == closed
            else:
                victim.barrier()


def test_policy_change_without_all_rights_is_forbidden(network: RolesNetwork, stack: ExitStack) -> None:
    """A client that may change part of the policy could grant itself the rest."""
    for role in READERS:
        management = Management(stack.enter_context(AmqpPeer.opened(network.a.port, hostname=role)), AGENTS["B"])
        made = management.ask("CREATE", {"hostname": f"of-{role}"}, type=f"{PREFIX}vhost", name=f"of-{role}")
        assert made.status == (201 if role == "$default" else 403), role
        changes = {"groups": {"everybody": EVERYTHING}}
        updated = management.ask("UPDATE", changes, type=f"{PREFIX}vhost", identity=f"vhost/{role}")
        assert updated.status == (200 if role == "$default" else 403), role


@pytest.mark.parametrize("from_edge", [False, True], ids=["interior", "edge"])
def test_client_without_role_reaches_no_agent(network: RolesNetwork, stack: ExitStack, from_edge: bool) -> None:
    entry = network.e if from_edge else network.a
    peer = stack.enter_context(AmqpPeer.opened(entry.port, hostname="nothing"))
    replies = peer.receiver(dynamic=True, credit=10)
    anonymous = peer.sender()
    agents = [*(AGENTS_FROM_EDGE if from_edge else AGENTS).values()]
    agents += [f"{text}/{name}" for text in agents for name in ("read", "operate", "nothing", "")]
    agents += ["_local/$management", "_topo/0/B/$_management_internal", "//host/$management", "x:/$management"]
    for address in agents:
        refused = peer.sender(address, wait=False)
        assert refused.wait_detached() == UNAUTHORIZED, address
        outcome = anonymous.request(_request(replies.address, address, "QUERY", entityType=f"{PREFIX}router"))
        assert outcome.name == "rejected", address
    assert not replies.deliveries
    # An address that only begins like the agent's is an ordinary address.
    assert peer.sender("$managements", credit=False)


@pytest.mark.parametrize("anonymous", [False, True], ids=["bound", "anonymous"])
def test_agent_address_with_more_rights_grants_none(network: RolesNetwork, stack: ExitStack, anonymous: bool) -> None:
    """The address of an agent may reduce a client's rights, never extend them."""
    made = {"type": f"{PREFIX}router.config.address", "name": "mine"}
    for role, name, status in (
        ("viewer", "all-keep-connections", 403), ("viewer", "operate", 403), ("viewer", "x", 403),
        ("operator", "all-keep-connections", 403), ("$default", "read", 403), ("keeper", "read", 403),
    ):  # fmt: skip
        peer = stack.enter_context(AmqpPeer.opened(network.a.port, hostname=role))
        client = AgentClient(peer, f"{AGENTS['B']}/{name}", anonymous)
        assert client.status("CREATE", {"prefix": "mine"}, **made) == status, (role, name)
        assert client.status("QUERY", {"attributeNames": []}, entityType=f"{PREFIX}router") == 200


def test_log_for_reader_omits_traced_frames(network: RolesNetwork, stack: ExitStack) -> None:
    owner = stack.enter_context(AmqpPeer.opened(network.a.port))
    traced = stack.enter_context(AmqpPeer.opened(network.a.port, container_id="traced"))
    number = Management(owner).one("connection", container="traced")["identity"]
    Management(owner).update("connection", number, enableProtocolTrace=True)
    receiver = traced.receiver("frames", 10)
    pass_one(traced.sender("frames"), receiver, "payload of a stranger")
    poll(lambda: "payload of a stranger" in str(Management(owner).call("GET-LOG")), "the frame is in the log")
    for role, sees in (("viewer", False), ("operator", True)):
        peer = stack.enter_context(AmqpPeer.opened(network.a.port, hostname=role))
        assert ("payload of a stranger" in str(Management(peer).call("GET-LOG"))) is sees


def test_role_change_applies_to_open_links(start: Start, workers: int) -> None:
    """Links to agents of other routers that were attached with the old rights are detached."""
    (port,) = ports(1)
    first = start([*interior("A", port), *POLICY], workers)
    second = start([*interior("B", None, [port]), *POLICY], workers)
    poll(partial(_has_nodes, first, 2), "the network is complete", CONVERGENCE)
    poll(partial(_has_nodes, second, 2), "the network is complete", CONVERGENCE)
    with AmqpPeer.opened(first.port) as own, AmqpPeer.opened(first.port, hostname="operator") as peer:
        here, there = AgentClient(peer, AGENTS["A"], False), AgentClient(peer, AGENTS["B"], False)
        anonymous = AgentClient(peer, AGENTS["B"], True)
        log = {"type": f"{PREFIX}log", "identity": "log/AGENT"}
        for client in (here, there, anonymous):
            assert client.status("UPDATE", {"enable": "info+"}, **log) == 200
        changed = {"everybody": {**EVERYTHING, "management": "read"}}
        Management(own).update("vhost", "vhost/operator", groups=changed)
        assert there._sender.wait_detached() == UNAUTHORIZED
        for client in (here, anonymous):
            assert client.status("UPDATE", {"enable": "info+"}, **log) == 403


def test_edge_router_without_role_creates_its_link_routes(start: Start, workers: int) -> None:
    """`allowDynamicLinkRoutes` alone decides about an edge router's link routes."""
    for allowed in (True, False):
        group = {"management": "none", "allowDynamicLinkRoutes": allowed}
        policy: list[Section] = [("policy", {"enableVhostPolicy": True}), vhost("$default"), vhost("edges", **group)]
        edges = listener(EDGES, role="edge", policyVhost="edges")
        above = start([("router", {"mode": "interior", "id": "A"}), listener(), edges, *policy], workers)
        with AmqpPeer.opened(above.ports[EDGES], properties={}, hostname="x") as peer:
            if not allowed:
                assert peer.sender("$management", wait=False).wait_detached() == UNAUTHORIZED
                continue
            management = Management(peer)
            route = {"pattern": "of.edge", "direction": "in"}
            management.create("router.connection.linkRoute", "mine", **route)
            for forbidden in ("router", "connection", "router.address"):
                with pytest.raises(ManagementStatusError, match="403"):
                    management.query(forbidden)
            assert peer.sender("_topo/0/B/$management", wait=False).wait_detached() == UNAUTHORIZED


def test_reply_to_forbidden_address_is_dropped(start: Start, workers: int) -> None:
    """The reply-to of a request is checked against `targets`."""
    limited = {**EVERYTHING, "sources": "mine", "targets": "$management, mine"}
    victim: Section = "vhost", {"hostname": "limited", "groups": {"everybody": limited}}
    router = start([listener(), listener("tenants", multiTenant=True), *POLICY, victim], workers)
    with AmqpPeer.opened(router.port, hostname="limited") as peer, AmqpPeer.opened(router.port) as other:
        secret, mine = other.receiver("orders", 10), peer.receiver("mine", 10)
        sender = peer.sender("$management")
        for reply_to in ("orders", "amqp:/orders", "mine"):
            sender.wait_credit()
            sender.send(_request(reply_to, "$management", "GET-TYPES"))
        assert ManagementReply.of(mine.next().payload).status == 200
        router.wait_log(
            r"AGENT \(warning\) .*A management request gets no answer: policy forbids its reply-to 'orders'"
        )
        with AmqpPeer.opened(router.ports["tenants"], hostname="viewer") as tenant:
            own = tenant.receiver("answers", 10)
            sender = tenant.sender("_local/$management")
            for reply_to in ("orders", "x:/y:/orders", "answers"):
                sender.wait_credit()
                sender.send(_request(reply_to, "_local/$management", "GET-TYPES"))
            assert ManagementReply.of(own.next().payload).status == 200
        other.barrier()
        assert not secret.deliveries


def test_attributes_naming_files_are_refused_at_runtime(start: Start, workers: int, tmp_path: Path) -> None:
    """The router reads and writes files with its own rights, so a manager must not name passwords and paths."""
    (tmp_path / "secret").write_text("of the machine\n")
    router = start([listener(), *POLICY], workers)
    with AmqpPeer.opened(router.port) as peer:
        management = Management(peer)
        log = management.one("log", identity="log/AGENT")
        connector = {"host": "127.0.0.1", "port": str(router.port), "role": "route-container", "saslUsername": "u"}
        for kind, attributes in (
            ("listener", {"host": "127.0.0.1", "port": "0", "http": True, "httpRootDir": "/etc"}),
            ("connector", {**connector, "saslPassword": f"file:{tmp_path}/secret"}),
            ("connector", {**connector, "saslPassword": "env:PATH"}),
            ("connector", {**connector, "saslPassword": "fd:3"}),
            ("connector", {**connector, "saslPassword": "credential:x"}),
            ("sslProfile", {"certFile": f"{tmp_path}/secret"}),
            ("sslProfile", {"caCertFile": f"{tmp_path}/secret"}),
            ("sslProfile", {"certDb": f"{tmp_path}/secret"}),
            ("sslProfile", {"password": "env:PATH"}),
            ("telemetry", {"path": f"{tmp_path}/telemetry"}),
            ("saslUsers", {"file": f"{tmp_path}/secret"}),
            ("tokenIssuer", {"issuer": "x", "audience": "y", "jwksFile": f"{tmp_path}/secret"}),
        ):
            answer = management.ask("CREATE", attributes, type=PREFIX + kind, name="mine")
            assert answer.status == 403, (kind, attributes, answer.description)
            assert "names a file or a secret" in answer.description
        for name in ("outputFile", "output"):
            answer = management.ask("UPDATE", {name: f"{tmp_path}/log"}, name="log/AGENT")
            assert answer.status == 403
        assert not (tmp_path / "log").exists()
        assert management.one("log", identity="log/AGENT") == log
        # Attributes without files are still accepted.
        management.create("connector", "plain", **connector, saslPassword="pass:known")
        management.update("log", "log/AGENT", enable="info+", outputFile="stderr")


def test_operator_may_not_name_files_that_management_may(start: Start, workers: int, tmp_path: Path) -> None:
    router = start([listener(), FILES, *POLICY], workers)
    with AmqpPeer.opened(router.port) as peer, AmqpPeer.opened(router.port, hostname="operator") as other:
        for name in ("outputFile", "output"):
            answer = Management(other).ask("UPDATE", {name: f"{tmp_path}/log"}, name="log/AGENT")
            assert answer.status == 403
        assert not (tmp_path / "log").exists()
        Management(peer).update("log", "log/AGENT", outputFile=f"{tmp_path}/log")
        assert (tmp_path / "log").exists()
