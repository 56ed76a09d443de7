"""Tokens of an issuer that a router trusts, and their presentation by clients."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from router.amqp.message import Message, decode
from tests.peer.frames import AMQP_HEADER
from tests.peer.peer import AmqpPeer, PeerReceiver, PeerSender
from tests.system.router import Section

KEY: Final = ec.generate_private_key(ec.SECP256R1())
ISSUER: Final = "https://id.example"


def token(**changes: Any) -> str:
    """Return a token of alice for this router, with changed claims."""
    claims = {"iss": ISSUER, "aud": "sluice", "sub": "alice", "exp": int(time.time()) + 600, **changes}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "k"})


def issuer(folder: Path, **attributes: Any) -> Section:
    """Return the tokenIssuer `id`, with its keys in a file of `folder`."""
    jwks = {"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]}
    (folder / "keys.json").write_text(json.dumps(jwks))
    return "tokenIssuer", {
        "name": "id", "issuer": ISSUER, "audience": "sluice", "jwksFile": folder / "keys.json", "leewaySeconds": 0,
        **attributes,
    }  # fmt: skip


def open_with(peer: AmqpPeer, shown: str, hostname: str | None = None) -> AmqpPeer:
    """Log in with the token `shown`, and open the connection."""
    assert peer.sasl("OAUTHBEARER", f"n,,\x01auth=Bearer {shown}\x01\x01".encode()).code == 0
    assert peer.header() == AMQP_HEADER
    peer.frame("open", container_id="client", hostname=hostname)
    peer.expect("open")
    return peer


class Renewal:
    """A link to `$cbs` and a link for its replies. Owner: the test of one connection."""

    def __init__(self, peer: AmqpPeer) -> None:
        self.answers: PeerReceiver = peer.receiver(None, 20, dynamic=True)
        self.sender: PeerSender = peer.sender("$cbs")

    def put(self, body: Any, operation: str = "put-token") -> tuple[int, str]:
        """Send a request and return the reply."""
        self.ask(body, operation)
        return self.answer()

    def ask(self, body: Any, operation: str = "put-token", reply_to: str | None = None) -> None:
        """Send a request. reply_to: address for the reply if not this link."""
        properties = {"operation": operation, "type": "jwt"}
        message = Message(body, reply_to=reply_to or self.answers.address, properties=properties)
        self.sender.send(message.encode(), settled=True)

    def answer(self) -> tuple[int, str]:
        """Return status and description of the next reply."""
        found = decode(self.answers.next().payload).properties
        return found["status-code"], found["status-description"]
