"""Credentials of test clients: a users file, and tokens of an issuer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make

SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
ITERATIONS: Final = 4096  # of the password's key derivation: few, so that tests compute little
ISSUER: Final = "https://id.example"
AUDIENCE: Final = "sluice"
KEY: Final = ec.generate_private_key(ec.SECP256R1())


def write_users(path: Path, **passwords: str) -> None:
    """Write a file of `saslUsers` with the password of each user."""
    users = Users({}, b"k" * 32)
    for user, password in passwords.items():
        users = users.with_user(user, [make(name, password, ITERATIONS) for name in SCRAM])
    path.write_text(users.text())


def issuer(folder: Path) -> dict[str, Any]:
    """Write the public key of `token` into `folder`. Return the attributes of the `tokenIssuer` named id."""
    jwks = {"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]}
    (folder / "keys.json").write_text(json.dumps(jwks))
    return {"name": "id", "issuer": ISSUER, "audience": AUDIENCE, "jwksFile": folder / "keys.json"}


def token(**changes: Any) -> str:
    """Return a token of `alice` that is valid for ten minutes, with changed claims."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 600, **changes}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "k"})
