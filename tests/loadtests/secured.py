"""Router whose listeners authenticate clients: over TLS, by SASL mechanism, and without TLS."""

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
from tests.peer.pki import Pki
from tests.system.router import SETTINGS, Section, listener

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = "https://id.example"
SCRAM = ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"]
USER, PASSWORD = "guest", "s3cret, päßword"
#: User for clients that support only ASCII.
ASCII_USER, ASCII_PASSWORD = "robin", "robin's s3cret"
#: Mechanisms. A TLS listener is named after the only mechanism that it offers.
MECHANISMS: Final = ("EXTERNAL", "OAUTHBEARER", *SCRAM, "PLAIN", "ANONYMOUS")


def write_users(path: Path, **passwords: str) -> None:
    """Write a file of `saslUsers`."""
    users = Users({}, b"k" * 32)
    for user, password in passwords.items():
        users = users.with_user(user, [make(name, password, 4096) for name in SCRAM])
    path.write_text(users.text())


def write_keys(path: Path) -> None:
    """Write the file with the public key of `token`."""
    jwks = {"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]}
    path.write_text(json.dumps(jwks))


def token(**changes: Any) -> str:
    """Return a token for alice that is valid for ten minutes."""
    claims = {"iss": ISSUER, "aud": "sluice", "sub": "alice", "exp": int(time.time()) + 600, **changes}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "k"})


def sections(folder: Path, made: Pki) -> list[Section]:
    """Return sections with these listeners: "" for management; one per mechanism, over TLS; "any" mechanism over TLS;
    "elsewhere" with a certificate for another host; "scram" and "clear" without TLS."""
    write_users(folder / "users", **{USER: PASSWORD, ASCII_USER: ASCII_PASSWORD})
    write_keys(folder / "keys.json")
    profile = {
        "name": "p", "certFile": made.server.certificate, "privateKeyFile": made.server.key, "caCertFile": made.trusted,
        "uidFormat": "n",
    }  # fmt: skip
    elsewhere = made.issue("elsewhere", "/CN=elsewhere", names="DNS:elsewhere.example")
    issuer = {"name": "id", "issuer": ISSUER, "audience": "sluice", "jwksFile": folder / "keys.json"}
    known = {"saslUsers": "people", "tokenIssuers": "id"}
    secure = {"sslProfile": "p", "requireSsl": True, **known}
    return [
        ("sslProfile", profile),
        ("sslProfile", {"name": "other", "certFile": elsewhere.certificate, "privateKeyFile": elsewhere.key}),
        ("saslUsers", {"name": "people", "file": folder / "users"}),
        ("tokenIssuer", issuer),
        listener(),
        listener("any", **secure),
        listener("elsewhere", sslProfile="other", requireSsl=True),
        *(listener(each, **secure, saslMechanisms=each) for each in MECHANISMS),
        listener("XOAUTH2", **secure, saslMechanisms="XOAUTH2"),  # used by Microsoft's clients
        listener("scram", saslUsers="people", authenticatePeer=True, saslMechanisms=" ".join(SCRAM)),
        listener("clear", **known, authenticatePeer=True, saslMechanisms="PLAIN OAUTHBEARER"),
        *SETTINGS,
    ]
