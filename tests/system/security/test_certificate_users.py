"""Users by certificate without `uidFormat`: the names of Dispatch 1.19 (security.md T-21), wherever they are used."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Issued, Pki, pki
from tests.system.fixtures import Start, pass_one
from tests.system.networks import RouterView
from tests.system.router import RouterProcess, Section, listener

Client = Callable[..., AmqpPeer]

#: Certificate subjects as tests/peer/pki.py writes them -> user names.
SUBJECTS = {
    "/C=US/ST=NC/O=Red Hat/CN=alice": "CN=alice,O=Red Hat,ST=NC,C=US",
    "/CN=alice/O=Red Hat/ST=NC/C=US": "C=US,ST=NC,O=Red Hat,CN=alice",
    "/C=DE/O=Müller, Söhne/CN=host": r"CN=host,O=M\C3\BCller\, S\C3\B6hne,C=DE",
    "/O=a=b/CN=x;y": r"CN=x\;y,O=a=b",
    "/DC=com/DC=example/CN=#lead": r"CN=\#lead,DC=example,DC=com",
    "/CN= space /emailAddress=a@b.c": r"emailAddress=a@b.c,CN=\ space\ ",
    "/O=Org/CN=u+UID=7": "UID=7+CN=u,O=Org",
    "/O=Org/CN=u/UID=7": "UID=7,CN=u,O=Org",
}
ALICE, BACKWARDS, MUELLER, *_, ONE_RDN, TWO_RDNS = SUBJECTS
FORBIDDEN = ("amqp:unauthorized-access", "user_id proxy violation")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "certificate-users")


def issued(made: Pki, subject: str) -> Issued:
    return made.issue(f"user-{list(SUBJECTS).index(subject)}", subject, names="DNS:localhost")


def secure(made: Pki, own: Issued | None = None, **attributes: Any) -> list[Section]:
    own = own or made.server
    files = {"certFile": own.certificate, "privateKeyFile": own.key, "caCertFile": made.trusted}
    external = {"sslProfile": "p", "saslMechanisms": "EXTERNAL", "authenticatePeer": True, "requireSsl": True}
    return [("sslProfile", {"name": "p", **files}), listener("secure", **external, **attributes)]


@pytest.fixture
def client(made: Pki, peers: list[AmqpPeer]) -> Client:
    """Return client(router, subject), which opens a peer that has logged in by a certificate with that subject."""

    def connected(router: RouterProcess, subject: str) -> AmqpPeer:
        plain = socket.create_connection(("127.0.0.1", router.ports["secure"]), timeout=10)
        context = made.context(issued(made, subject))
        peer = AmqpPeer(context.wrap_socket(plain, server_hostname="localhost"))
        peers.append(peer)
        peer.open(container_id=subject, mechanism="EXTERNAL")
        return peer

    return connected


def test_user_is_subject_in_rfc_2253_form(start: Start, made: Pki, client: Client) -> None:
    router = start([*secure(made), listener()])
    for subject in SUBJECTS:
        client(router, subject)
    with AmqpPeer.opened(router.port) as own:
        rows = Management(own).query("connection")
    users = {row["container"]: row["user"] for row in rows if row["sasl"] == "EXTERNAL"}
    assert users == SUBJECTS
    for subject, user in users.items():
        words = ["openssl", "x509", "-nameopt", "RFC2253", "-noout", "-subject"]
        pem = issued(made, subject).certificate.read_bytes()
        done = subprocess.run(words, input=pem, capture_output=True, check=True, timeout=60)
        assert done.stdout.decode().removeprefix("subject=").rstrip("\n") == user


def policy(*users: str, **group: Any) -> list[Section]:
    rules = {"users": list(users), "remoteHosts": "*", "targets": "box, own/${user}", "sources": "*", **group}
    vhost = {"hostname": "$default", "groups": {"known": rules}}
    return [("policy", {"enableVhostPolicy": True}), ("vhost", vhost)]


def test_policy_names_users_in_rfc_2253_form(start: Start, made: Pki, client: Client) -> None:
    """`${user}` has this form as well; a certificate with the same attributes in another structure is another user."""
    router = start([*secure(made), *policy(SUBJECTS[ALICE], SUBJECTS[MUELLER], SUBJECTS[ONE_RDN])])
    for subject in (ALICE, MUELLER, ONE_RDN):
        peer = client(router, subject)
        own = f"own/{SUBJECTS[subject]}"
        pass_one(peer.sender(own, credit=False), peer.receiver(own, 10))
    for subject in (BACKWARDS, TWO_RDNS):
        closed = client(router, subject).expect_close()
        assert closed == ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


def test_message_user_id_in_rfc_2253_form_is_accepted(start: Start, made: Pki, client: Client) -> None:
    router = start([*secure(made), *policy("*")])
    peer = client(router, ALICE)
    sender, receiver = peer.sender("box", credit=False), peer.receiver("box", 10)
    pass_one(sender, receiver, user_id=SUBJECTS[ALICE].encode())
    for other in (SUBJECTS[BACKWARDS], "C=US,ST=NC,O=Red Hat,CN=alice"):
        outcome = sender.request(message.message("x", user_id=other.encode()))
        assert (outcome.name, outcome.error) == ("rejected", FORBIDDEN)


def test_allowed_routers_are_named_in_rfc_2253_form(start: Start, made: Pki) -> None:
    name = SUBJECTS[MUELLER].replace("\\", r"\\")  # escaped for the configuration file
    allowed = secure(made, role="inter-router", allowedRouters=f"{name} => B")
    a = start([("router", {"mode": "interior", "id": "A"}), listener(), *allowed])
    place = {"host": "localhost", "port": a.ports["secure"], "sslProfile": "p", "saslMechanisms": "EXTERNAL"}
    connector: Section = ("connector", {"name": "out", "role": "inter-router", **place})
    for router_id, subject in (("C", TWO_RDNS), ("B", MUELLER)):
        profile = secure(made, issued(made, subject))[0]
        start([("router", {"mode": "interior", "id": router_id}), listener(), profile, connector])
    a.wait_log(r"Router 'C' \(UID=7,CN=u,O=Org\) from \S+ may not join")
    RouterView(a).wait_nodes(B=1)
