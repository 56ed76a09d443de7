"""A router that clients reach over TLS, with a listener for each login method."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.peer.logins import issuer, write_users
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki
from tests.system.router import SETTINGS, RouterProcess, Section, listener

USER: Final = "guest"
PASSWORD: Final = "s3cret"


def sections(folder: Path, made: Pki) -> list[Section]:
    """Return listeners over TLS and without.

    Over TLS: `people` (SCRAM, PLAIN), `certificates` (EXTERNAL), `tokens`, `anybody` (ANONYMOUS), `misnamed` (with a
    certificate for other.example). Without TLS: `bare` (PLAIN), and an unnamed listener for management.
    """
    write_users(folder / "users", **{USER: PASSWORD})
    certificate, key = made.server
    credentials = {"certFile": certificate, "privateKeyFile": key, "caCertFile": made.trusted, "uidFormat": "n"}
    elsewhere = made.issue("elsewhere", "/CN=other.example", names="DNS:other.example")
    tls = {"sslProfile": "p", "requireSsl": True}
    users = {"saslUsers": "users", "authenticatePeer": True}
    return [
        ("sslProfile", {"name": "p", **credentials}),
        ("sslProfile", {"name": "q", "certFile": elsewhere.certificate, "privateKeyFile": elsewhere.key}),
        ("saslUsers", {"name": "users", "file": folder / "users"}),
        ("tokenIssuer", issuer(folder)),
        listener(),
        listener("bare", saslMechanisms="PLAIN", **users),
        listener("people", **tls, **users),
        listener("certificates", saslMechanisms="EXTERNAL", authenticatePeer=True, **tls),
        listener("tokens", tokenIssuers="id", authenticatePeer=True, **tls),
        listener("anybody", saslMechanisms="ANONYMOUS", **tls),
        listener("misnamed", sslProfile="q", requireSsl=True),
        *SETTINGS,
    ]


def logins(router: RouterProcess) -> dict[str, tuple[str, str, bool]]:
    """Return user, mechanism and encryption of each connection, by its container id."""
    with AmqpPeer.opened(router.port) as peer:
        rows = Management(peer).query("connection")
    return {row["container"]: (row["user"], row["sasl"], row["isEncrypted"]) for row in rows}
