"""Routers that authenticate each other by certificates: TLS and SASL EXTERNAL (security.md T-14 to T-17)."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.peer import message
from tests.peer.pki import Issued, Pki, SwappableCertificate, pki
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19
from tests.system.fixtures import Start, pass_one
from tests.system.networks import CONVERGENCE, MessageFlow, RouterView, TwoRouterNetwork, ports
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Authority with a certificate for each router; the host name in all of them is `localhost`."""
    return pki(tmp_path_factory.getbasetemp(), "routers")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Authority that the routers do not trust."""
    return pki(tmp_path_factory.getbasetemp(), "strangers")


@pytest.fixture
def router19_loop() -> Iterator[Router19Loop]:
    """Event loop of the routers of 1.19."""
    opened = Router19Loop()
    yield opened
    opened.close()


def certificate(authority: Pki, name: str, host: str = "localhost") -> Issued:
    return authority.issue(f"router-{name}", f"/CN={name}", names=f"DNS:{host}")


def secured_interior(
    name: str,
    own: Issued | None,
    trusted: Path,
    port: int = 0,
    to: Iterable[int] = (),
    profile: dict[str, Any] | None = None,
) -> list[Section]:
    """Return sections of a router that accepts other routers, and connects to ports `to`, with TLS and EXTERNAL."""
    files = {} if own is None else {"certFile": own.certificate, "privateKeyFile": own.key}
    external = {"role": "inter-router", "sslProfile": "network", "saslMechanisms": "EXTERNAL"}
    name_of_listener, attributes = listener("net", requireSsl=True, authenticatePeer=True, **external)
    return [
        ("router", {"mode": "interior", "id": name}),
        ("sslProfile", {"name": "network", "caCertFile": trusted, **files, **(profile or {})}),
        listener(),
        *([] if own is None else [(name_of_listener, {**attributes, "port": port})]),
        *(("connector", {"name": f"to{other}", "host": "localhost", "port": other, **external}) for other in to),
    ]


def inter_router_rows(router: RouterProcess) -> list[dict[str, Any]]:
    """Return the rows of open inter-router connections."""
    return [row for row in RouterView(router).query("connection") if row["role"] == "inter-router" and row["opened"]]


# security.md S-9.
def test_routers_authenticate_by_certificate(start: Start, workers: int, authority: Pki) -> None:
    a_port, b_port = ports(2)
    a = start(secured_interior("A", certificate(authority, "A"), authority.trusted, a_port), workers)
    b = start(secured_interior("B", certificate(authority, "B"), authority.trusted, b_port, [a_port]), workers)
    c = start(secured_interior("C", certificate(authority, "C"), authority.trusted, to=[a_port, b_port]), workers)
    for router, rest in ((a, "BC"), (b, "AC"), (c, "AB")):
        RouterView(router).wait_nodes(**dict.fromkeys(rest, 1))
    for router, incoming in ((a, {"CN=B", "CN=C"}), (b, {"CN=C"})):
        rows = inter_router_rows(router)
        assert {(row["sasl"], row["isAuthenticated"], row["isEncrypted"], row["sslProto"]) for row in rows} == {
            ("EXTERNAL", True, True, "TLSv1.3")
        }
        assert {row["user"] for row in rows if row["dir"] == "in"} == incoming
    pair = TwoRouterNetwork(a, c)
    receiver = pair.connect(c).receiver("orders", 10)
    pair.at_a.wait_remote("M0orders", "C")
    pass_one(pair.connect(a).sender("orders"), receiver)
    pair.drop()


#: Log line of the connecting router when it does not trust the server.
DISTRUST = r"Connection to localhost:\d+ failed: amqp:connection:framing-error SSL Failure: .*certificate verify failed"


@pytest.mark.parametrize(
    ("case", "here", "there"),
    [
        ("the connector trusts another authority", DISTRUST, r"SSL Failure: .*unknown ca"),
        ("the server is another host", DISTRUST, r"SSL Failure: .*(bad certificate|handshake failure)"),
        ("the connector's certificate is from another authority", "", r"SSL Failure: .*certificate verify failed"),
        ("the connector has no certificate", "", r"SSL Failure: .*peer did not return a certificate"),
        ("the connector's certificate has expired", "", r"SSL Failure: .*certificate verify failed"),
    ],
)
def test_router_without_valid_certificate_is_refused(
    start: Start, authority: Pki, other_authority: Pki, case: str, here: str, there: str
) -> None:
    host = "elsewhere.example" if case == "the server is another host" else "localhost"
    a = start(secured_interior("A", certificate(authority, "A", host), authority.trusted))
    own, trusted = certificate(authority, "B"), authority.trusted
    match case:
        case "the connector trusts another authority":
            trusted = other_authority.trusted
        case "the connector's certificate is from another authority":
            own = certificate(other_authority, "B")
        case "the connector's certificate has expired":
            own = authority.issue("late", "/CN=B", names="DNS:localhost", days=-1)
    has = None if case == "the connector has no certificate" else own
    b = start(secured_interior("B", has, trusted, to=[a.ports["net"]]))
    b.wait_log(here or r"Connection to localhost:\d+ failed: ")
    a.wait_log(rf"\[C\d+\] Connection from \S+ \(to 127.0.0.1:\d+\) failed: amqp:connection:framing-error {there}")
    assert inter_router_rows(a) == inter_router_rows(b) == []
    assert set(RouterView(a).nodes()) == {"A"}


def test_router_without_tls_is_refused(start: Start, authority: Pki) -> None:
    a = start(secured_interior("A", certificate(authority, "A"), authority.trusted))
    place = {"host": "127.0.0.1", "port": a.ports["net"], "role": "inter-router", "saslMechanisms": "ANONYMOUS"}
    b = start([("router", {"mode": "interior", "id": "B"}), listener(), ("connector", place)])
    a.wait_log(r"failed: amqp:connection:policy-error Client connection unencrypted - forbidden")
    b.wait_log(r"Connection to 127.0.0.1:\d+ failed: ")
    assert set(RouterView(a).nodes()) == {"A"}


@pytest.mark.parametrize("old", ["keep", "retire"])
def test_certificate_replaced_under_load_loses_no_message(
    start: Start, workers: int, authority: Pki, tmp_path: Path, old: str
) -> None:
    """Replace the certificates at both ends. Kept connections stay open, retired ones are reopened, no message is
    lost."""
    routers: list[RouterProcess] = []
    swapped: list[SwappableCertificate] = []
    for name in "AB":
        directory = tmp_path / name
        directory.mkdir()
        swapped.append(SwappableCertificate(directory, certificate(authority, name)))
        to = [router.ports["net"] for router in routers]
        profile = {"oldConnections": old, "uidFormat": "2"}
        routers.append(
            start(secured_interior(name, swapped[-1].issued, authority.trusted, to=to, profile=profile), workers)
        )
    a, b = routers
    RouterView(a).wait_nodes(B=1)
    (connected,) = inter_router_rows(a)
    flow = MessageFlow(a, b, "orders")
    try:
        flow.wait_more()
        for name, router, files in (("B", b, swapped[1]), ("A", a, swapped[0])):
            new = authority.issue(f"new-{name}", f"/CN={name}", names="DNS:localhost")
            files.put(new.certificate.read_bytes(), new.key.read_bytes())
            router.wait_log("sslProfile 'network': new credentials are in use")
            if old == "retire":
                (connected,) = poll(
                    partial(_other_rows, a, connected), f"they are connected after {name}'s new certificate"
                )
            flow.wait_more()
        if old == "keep":
            assert [row["identity"] for row in inter_router_rows(a)] == [connected["identity"]]
        else:
            assert connected["user"] == _fingerprint(tmp_path / "B" / "tls.crt")
            # B has logged this when it closed the connection.
            a.wait_log("The credentials of sslProfile 'network' have been replaced")
            RouterView(a).wait_nodes(B=1)
            flow.wait_more()
    finally:
        flow.stop()


def _other_rows(router: RouterProcess, known: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of inter-router connections other than `known`."""
    return [row for row in inter_router_rows(router) if row["identity"] != known["identity"]]


def _fingerprint(path: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text())).hexdigest()


def context_of_19(authority: Pki, purpose: ssl.Purpose) -> ssl.SSLContext:
    """Return the context of a router of 1.19: it presents a certificate, and requires one from the authority."""
    context = ssl.create_default_context(purpose, cafile=str(authority.trusted))
    context.load_cert_chain(*certificate(authority, "N"))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_router_of_dispatch_connects_over_tls(
    start: Start, workers: int, authority: Pki, router19_loop: Router19Loop
) -> None:
    a = start(secured_interior("A", certificate(authority, "A"), authority.trusted), workers)
    other = Router19(router19_loop, "N")
    try:
        other.connect(a.ports["net"], tls=context_of_19(authority, ssl.Purpose.SERVER_AUTH))
        _exchange(a, other)
        (row,) = inter_router_rows(a)
        assert (row["user"], row["sasl"], row["sslProto"], row["container"]) == ("CN=N", "EXTERNAL", "TLSv1.3", "N")
    finally:
        other.stop()


def test_connector_to_router_of_dispatch_works_over_tls(
    start: Start, workers: int, authority: Pki, router19_loop: Router19Loop
) -> None:
    other = Router19(router19_loop, "N")
    try:
        port = other.listen(tls=context_of_19(authority, ssl.Purpose.CLIENT_AUTH))
        a = start(secured_interior("A", certificate(authority, "A"), authority.trusted, to=[port]), workers)
        _exchange(a, other)
    finally:
        other.stop()


def _exchange(a: RouterProcess, other: Router19) -> None:
    """Wait until the two routers are neighbours, then send one message in each direction."""
    RouterView(a).wait_nodes(N=1)
    pair = TwoRouterNetwork(a, a)
    consumer = other.consumer("there")
    pair.at_a.wait_remote("M0there", "N")
    sender = pair.connect(a).sender("there")
    number = sender.send(message.message("x"))
    assert sender.outcome(number).name == "accepted"
    assert consumer.next().body == "x"
    receiver = pair.connect(a).receiver("here", 1)
    other.wait_key("M0here", "A", timeout=CONVERGENCE)
    injection = other.send("here", message.message("y"))
    receiver.next().settle()
    assert injection.outcome() == "accepted"
    pair.drop()
