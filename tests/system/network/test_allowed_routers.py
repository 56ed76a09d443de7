"""`allowedRouters`, with members and intruders whose certificates are from one authority."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Issued, Pki, pki
from tests.system.edges import EdgeView
from tests.system.fixtures import Start
from tests.system.networks import RouterView
from tests.system.router import RouterProcess, Section, listener

DENIED = ("amqp:unauthorized-access", "allowedRouters does not let this router join")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "allowed-routers")


def certificate(made: Pki, name: str) -> Issued:
    return made.issue(f"router-{name}", f"/CN={name}", names="DNS:localhost")


def member(made: Pki, name: str, subject: str, *more: Section, mode: str = "interior") -> list[Section]:
    own = certificate(made, subject)
    files = {"certFile": own.certificate, "privateKeyFile": own.key, "caCertFile": made.trusted}
    return [("router", {"mode": mode, "id": name}), ("sslProfile", {"name": "p", **files}), listener(), *more]


def entry(role: str = "inter-router", **attributes: Any) -> Section:
    external = {"sslProfile": "p", "saslMechanisms": "EXTERNAL", "authenticatePeer": True, "requireSsl": True}
    return listener("net", role=role, **external, **attributes)


def to(router: RouterProcess, role: str = "inter-router", **attributes: Any) -> Section:
    place = {"host": "localhost", "port": router.ports["net"], "sslProfile": "p", "saslMechanisms": "EXTERNAL"}
    return "connector", {"name": "out", "role": role, **place, **attributes}


@pytest.mark.parametrize("allowed", ["CN=B", "CN=x | CN=* => B"])
def test_member_joins_and_client_certificate_is_refused(start: Start, made: Pki, allowed: str) -> None:
    a = start(member(made, "A", "A", entry(allowedRouters=allowed)))
    intruder = start(member(made, "I", "client", to(a)))
    a.wait_log(
        r"ROUTER_CORE \(warning\) \[C\d+\] Router 'I' \(CN=client\) from \S+ may not join: "
        "allowedRouters of listener 'net' does not name it"
    )
    b = start(member(made, "B", "B", to(a)))
    RouterView(a).wait_nodes(B=1)
    RouterView(b).wait_nodes(A=1)
    assert set(RouterView(intruder).nodes()) == {"I"}
    assert set(RouterView(a).nodes()) == {"A", "B"}


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_intruder_receives_the_reason(start: Start, made: Pki, role: str) -> None:
    a = start(member(made, "A", "A", entry(role, allowedRouters="CN=B")))
    dialled = socket.create_connection(("127.0.0.1", a.ports["net"]), timeout=10)
    context = made.context(certificate(made, "client"))
    with AmqpPeer(context.wrap_socket(dialled, server_hostname="localhost")) as peer:
        peer.open(mechanism="EXTERNAL")
        assert peer.expect_close() == DENIED


def test_member_with_foreign_router_id_is_refused(start: Start, made: Pki) -> None:
    a = start(member(made, "A", "A", entry(allowedRouters="CN=B => B | CN=C => C")))
    start(member(made, "B", "C", to(a)))
    a.wait_log(r"Router 'B' \(CN=C\) from \S+ may not join")
    assert set(RouterView(a).nodes()) == {"A"}


def test_connector_to_unlisted_router_closes(start: Start, made: Pki) -> None:
    a = start(member(made, "A", "A", entry()))
    b = start(member(made, "B", "B", to(a, allowedRouters="CN=X => A")))
    b.wait_log(r"Router 'A' \(CN=A\) from localhost:\d+ may not join: allowedRouters of connector 'out'")
    c = start(member(made, "C", "C", to(a, allowedRouters="CN=A => A")))
    RouterView(c).wait_nodes(A=1)
    assert set(RouterView(b).nodes()) == {"B"}


def test_edge_listener_lists_allowed_edge_routers(start: Start, made: Pki) -> None:
    a = start(member(made, "A", "A", entry("edge", allowedRouters="CN=E => E")))
    start(member(made, "F", "F", to(a, "edge"), mode="edge"))
    a.wait_log(r"Router 'F' \(CN=F\) from \S+ may not join")
    start(member(made, "E", "E", to(a, "edge"), mode="edge"))
    EdgeView(a).wait_consumers("HE", 1)
    assert EdgeView(a).address("HF") is None


def test_reloaded_list_applies_to_new_connections(start: Start, made: Pki) -> None:
    sections = member(made, "A", "A", entry(allowedRouters="CN=B"))
    a = start(sections)
    b = start(member(made, "B", "B", to(a)))
    RouterView(b).wait_nodes(A=1)
    c = start(member(made, "C", "C", to(a)))
    a.wait_log(r"Router 'C' \(CN=C\) from \S+ may not join")
    a.configure(member(made, "A", "A", entry(allowedRouters="CN=B|CN=C")))
    with AmqpPeer.opened(a.port) as peer:
        Management(peer).call("RELOAD")
    RouterView(c).wait_nodes(A=1, B=2)
    assert len([line for line in b.log.splitlines() if "Connection Opened: dir=out" in line]) == 1, "it has stayed"
