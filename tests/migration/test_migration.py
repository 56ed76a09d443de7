"""Rolling upgrade in a network of routers of the previous release and of this one.

Routers are exchanged one after the other, forth and back, and some are killed. No accepted message is missing, and
policy holds at every router in each state.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message, Timeout
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached

from tests.migration.flows import PASSWORD, USER, FlowClients, MigrationFlow
from tests.peer.pki import Pki, pki
from tests.system.networks import ports
from tests.system.router import ROOT, RouterProcess, Section, command, listener, poll

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

WORKER_COUNTS = (1, 2)
CONVERGENCE = 60.0
KILLS = 8
#: Interior routers, each with the routers that it connects to, and edge routers, each with its interior routers.
TOPOLOGIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "line": ({"A": "", "B": "A", "C": "B"}, {"E": "A", "F": "C"}),
    "triangle": ({"A": "", "B": "A", "C": "AB"}, {"E": "AB", "F": "C"}),
}
SETTINGS: list[Section] = [("address", {"prefix": "all", "distribution": "multicast"})]
#: Rights of the flows' user.
RULES: dict[str, Any] = {
    "users": USER, "remoteHosts": "*", "sources": "flow.*, all.*, $management", "targets": "flow.*, all.*, $management",
    "allowAnonymousSender": True, "allowDynamicSource": True,
}  # fmt: skip
#: Group of the routers, which log in by certificate.
ROUTERS: dict[str, Any] = {**RULES, "users": "*", "sources": "*", "targets": "*"}


class MigrationNetwork:
    """Routers that run either of the two releases. Their ports do not change."""

    def __init__(self, directory: Path, authority: Pki, previous: Sequence[str], topology: str, workers: int) -> None:
        self.directory = directory
        self.commands = {"previous": list(previous), "present": command()}
        self.interiors, self.edges = TOPOLOGIES[topology]
        self.names = [*self.interiors, *self.edges]
        self.releases = dict.fromkeys(self.names, "previous")
        taken = iter(ports(3 * len(self.names)))
        self.clients = {name: next(taken) for name in self.names}
        self.between = {name: (next(taken), next(taken)) for name in self.names}
        self.workers = workers
        self.users = directory / "users"
        words = [*command(), "passwd", str(self.users), USER, "--iterations", "4096"]
        subprocess.run(words, input=f"{PASSWORD}\n", text=True, capture_output=True, timeout=60, check=True, cwd=ROOT)
        self.made = authority
        self.routers: dict[str, RouterProcess] = {}
        for name in self.names:
            (directory / name).mkdir()
            self.start(name, "previous")

    def start(self, name: str, release: str) -> None:
        """Start a router that is not running."""
        self.releases[name] = release
        router = RouterProcess(
            self.directory / name, self.sections(name), self.workers, program=self.commands[release],
        )  # fmt: skip
        self.routers[name] = router
        router.start()

    def exchange(self, name: str, release: str) -> None:
        """Stop a router in order, and start one of release `release` in its place."""
        self.routers[name].stop()
        self.start(name, release)

    def sections(self, name: str) -> list[Section]:
        """Return the configuration of a router, which is equal for both releases."""
        own = self.made.issue(f"router-{name}", f"/O=routers/CN={name}", names="DNS:localhost")
        external = {"sslProfile": "network", "saslMechanisms": "EXTERNAL"}
        secure = {**external, "requireSsl": True, "authenticatePeer": True}
        interior = name in self.interiors
        found: list[Section] = [
            ("router", {"mode": "interior" if interior else "edge", "id": name}),
            ("policy", {"enableVhostPolicy": True}),
            ("vhost", {"hostname": "$default", "groups": {"users": RULES, "$default": ROUTERS}}),
            ("saslUsers", {"name": "people", "file": self.users}),
            ("sslProfile", {
                "name": "network", "caCertFile": self.made.trusted, "certFile": own.certificate,
                "privateKeyFile": own.key,
            }),
            _listener(None, self.clients[name], saslUsers="people", saslMechanisms="PLAIN", authenticatePeer=True),
            *SETTINGS,
        ]  # fmt: skip
        if interior:
            net, edges = self.between[name]
            found += [
                _listener("net", net, role="inter-router", **secure), _listener("edges", edges, role="edge", **secure)
            ]  # fmt: skip
        for other in (self.interiors if interior else self.edges)[name]:
            role, port = ("inter-router", 0) if interior else ("edge", 1)
            place = {"name": f"to{other}", "host": "localhost", "port": self.between[other][port], "role": role}
            found.append(("connector", {**place, **external}))
        return found

    def stop(self) -> None:
        """Kill all routers."""
        for router in self.routers.values():
            router.kill()

    def check_policy(self, name: str) -> None:
        """Check that forbidden links and wrong passwords are refused at a router."""
        url = f"127.0.0.1:{self.clients[name]}"
        connection = BlockingConnection(url, user=USER, password=PASSWORD, **_PLAIN)
        try:
            for create in (connection.create_receiver, connection.create_sender):
                with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
                    create("secret")
        finally:
            connection.close()
        with pytest.raises((ConnectionException, Timeout)):
            BlockingConnection(url, user=USER, password="wrong", **_PLAIN)


_PLAIN: dict[str, Any] = {
    "allowed_mechs": "PLAIN", "allow_insecure_mechs": True, "timeout": CONVERGENCE, "reconnect": False,
}  # fmt: skip


def _listener(name: str | None, port: int, **attributes: Any) -> Section:
    kind, given = listener(name, **attributes)
    return kind, {**given, "port": port}


@pytest.fixture(params=TOPOLOGIES)
def network(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, previous: list[str],
    workers: int,
) -> Iterator[MigrationNetwork]:  # fmt: skip
    """Network in which all routers run the previous release."""
    authority = pki(tmp_path_factory.getbasetemp(), "migration")
    network = MigrationNetwork(tmp_path, authority, previous, request.param, workers)
    request.node.routers = network.routers.values()
    try:
        yield network
    finally:
        network.stop()


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> int:
    """Number of workers of each router."""
    count: int = request.param
    return count


def make_flows(network: MigrationNetwork) -> list[MigrationFlow]:
    """Return a flow from each router to the router two places further, each with its own address."""
    names = network.names
    routes = [(name, names[(at + 2) % len(names)]) for at, name in enumerate(names)]
    return [MigrationFlow(f"flow.{into}{out}", network.clients[into], network.clients[out]) for into, out in routes]


def _message(body: str) -> Message:
    return Message(body=body)


def _write(connection: Any) -> None:
    """Write what was sent: a settled delivery is otherwise written when its connection waits for something else."""
    transport = connection.conn.transport
    connection.wait(lambda: not transport.pending(), timeout=CONVERGENCE)


def _bodies(receiver: Any, quiet: float) -> Counter[str]:
    """Return how often messages with each body arrive until none has arrived for `quiet` seconds."""
    found: Counter[str] = Counter()
    while True:
        try:
            found[receiver.receive(timeout=quiet).body] += 1
        except Timeout:
            return found


def check_multicast(network: MigrationNetwork) -> None:
    """Check that a multicast message reaches each consumer once while the network is stable."""
    connections = {
        name: BlockingConnection(f"127.0.0.1:{port}", user=USER, password=PASSWORD, **_PLAIN)
        for name, port in network.clients.items()
    }
    try:
        address = f"all.{random.randrange(1 << 30)}"
        receivers = {name: connection.create_receiver(address, credit=100) for name, connection in connections.items()}
        # The senders stay: at an edge router of the previous release, the first messages of a new sender may miss
        # consumers elsewhere.
        senders = [connection.create_sender(address, options=AtMostOnce()) for connection in connections.values()]

        def known() -> bool:
            """Return whether messages from all routers reach all consumers."""
            for name, sender in zip(connections, senders, strict=True):
                sender.send(_message(name))
            for connection in connections.values():
                _write(connection)
            return all(_bodies(receiver, 0.3).keys() >= connections.keys() for receiver in receivers.values())

        poll(known, "all routers know all consumers", CONVERGENCE)
        for sender in senders:
            for _ in range(5):
                sender.send(_message("counted"))
            sender.close()  # the detach is answered after the messages are forwarded
        # Probes of the last rounds may arrive late, so they are told apart by their bodies.
        counts = {name: _bodies(receiver, 1.0)["counted"] for name, receiver in receivers.items()}
        assert counts == dict.fromkeys(receivers, 5 * len(connections))
    finally:
        for connection in connections.values():
            connection.close()


def test_rolling_migration_with_kills_loses_no_message(network: MigrationNetwork) -> None:
    draw = random.Random(7)
    with FlowClients(make_flows(network)) as running:
        running.wait_progress()
        for release, names in (
            ("present", network.names),
            ("previous", network.names[::2]),  # half of the routers go back
            ("present", network.names[::2]),  # and forth again
        ):
            for name in names:
                network.exchange(name, release)
                running.wait_progress()
                network.check_policy(name)
        for _ in range(KILLS):
            name = draw.choice(network.names)
            network.routers[name].kill()
            network.start(name, draw.choice(["previous", "present"]))
            running.wait_progress()
        running.finish()
    check_multicast(network)
