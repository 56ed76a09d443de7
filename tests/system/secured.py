"""A router that clients reach over TLS, with a listener for each login method."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from router.sasl.users import Users
from router.sasl.verifiers import make
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki
from tests.system.router import SETTINGS, RouterProcess, Section, listener

USER: Final = "guest"
PASSWORD: Final = "s3cret"
SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
ITERATIONS: Final = 4096
ISSUER: Final = "https://id.example"
_KEY: Final = ec.generate_private_key(ec.SECP256R1())


def sections(folder: Path, made: Pki) -> list[Section]:
    """Return listeners over TLS and without.

    Over TLS: `people` (SCRAM, PLAIN), `certificates` (EXTERNAL), `tokens`, `anybody` (ANONYMOUS), `misnamed` (with a
    certificate for other.example). Without TLS: `bare` (PLAIN), and an unnamed listener for management.
    """
    verifiers = [make(name, PASSWORD, ITERATIONS) for name in SCRAM]
    (folder / "users").write_text(Users({}, b"k" * 32).with_user(USER, verifiers).text())
    jwks = {"keys": [{**json.loads(ECAlgorithm.to_jwk(_KEY.public_key())), "kid": "k"}]}
    (folder / "keys.json").write_text(json.dumps(jwks))
    certificate, key = made.server
    credentials = {"certFile": certificate, "privateKeyFile": key, "caCertFile": made.trusted, "uidFormat": "n"}
    elsewhere = made.issue("elsewhere", "/CN=other.example", names="DNS:other.example")
    tls = {"sslProfile": "p", "requireSsl": True}
    users = {"saslUsers": "users", "authenticatePeer": True}
    return [
        ("sslProfile", {"name": "p", **credentials}),
        ("sslProfile", {"name": "q", "certFile": elsewhere.certificate, "privateKeyFile": elsewhere.key}),
        ("saslUsers", {"name": "users", "file": folder / "users"}),
        ("tokenIssuer", {"name": "id", "issuer": ISSUER, "audience": "sluice", "jwksFile": folder / "keys.json"}),
        listener(),
        listener("bare", saslMechanisms="PLAIN", **users),
        listener("people", **tls, **users),
        listener("certificates", saslMechanisms="EXTERNAL", authenticatePeer=True, **tls),
        listener("tokens", tokenIssuers="id", authenticatePeer=True, **tls),
        listener("anybody", saslMechanisms="ANONYMOUS", **tls),
        listener("misnamed", sslProfile="q", requireSsl=True),
        *SETTINGS,
    ]


def token(**changes: Any) -> str:
    """Return a token of `alice`, with changed claims."""
    claims = {"iss": ISSUER, "aud": "sluice", "sub": "alice", "exp": int(time.time()) + 600, **changes}
    return jwt.encode(claims, _KEY, "ES256", headers={"kid": "k"})


def logins(router: RouterProcess) -> dict[str, tuple[str, str, bool]]:
    """Return user, mechanism and encryption of each connection, by its container id."""
    with AmqpPeer.opened(router.port) as peer:
        rows = Management(peer).query("connection")
    return {row["container"]: (row["user"], row["sasl"], row["isEncrypted"]) for row in rows}
