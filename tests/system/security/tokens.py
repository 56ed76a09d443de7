"""Tokens of an issuer that a router trusts, and their presentation by clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sluice.router.client.message import Message, decode
from tests.peer import logins
from tests.peer.frames import AMQP_HEADER
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.system.router import Section


def issuer(folder: Path, **attributes: Any) -> Section:
    """Return the tokenIssuer `id`, with its keys in a file of `folder`."""
    return "tokenIssuer", {**logins.issuer(folder), "leewaySeconds": 0, **attributes}


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
