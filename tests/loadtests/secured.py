"""Router whose listeners authenticate clients: over TLS, by SASL mechanism, and without TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.peer.logins import SCRAM, issuer, write_users
from tests.peer.pki import Pki
from tests.system.router import SETTINGS, Section, listener

USER, PASSWORD = "guest", "s3cret, päßword"
#: User for clients that support only ASCII.
ASCII_USER, ASCII_PASSWORD = "robin", "robin's s3cret"
#: Mechanisms. A TLS listener is named after the only mechanism that it offers.
MECHANISMS: Final = ("EXTERNAL", "OAUTHBEARER", *SCRAM, "PLAIN", "ANONYMOUS")


def sections(folder: Path, made: Pki) -> list[Section]:
    """Return sections with these listeners: "" for management; one per mechanism, over TLS; "any" mechanism over TLS;
    "elsewhere" with a certificate for another host; "scram" and "clear" without TLS."""
    write_users(folder / "users", **{USER: PASSWORD, ASCII_USER: ASCII_PASSWORD})
    profile = {
        "name": "p", "certFile": made.server.certificate, "privateKeyFile": made.server.key, "caCertFile": made.trusted,
        "uidFormat": "n",
    }  # fmt: skip
    elsewhere = made.issue("elsewhere", "/CN=elsewhere", names="DNS:elsewhere.example")
    known = {"saslUsers": "people", "tokenIssuers": "id"}
    secure = {"sslProfile": "p", "requireSsl": True, **known}
    return [
        ("sslProfile", profile),
        ("sslProfile", {"name": "other", "certFile": elsewhere.certificate, "privateKeyFile": elsewhere.key}),
        ("saslUsers", {"name": "people", "file": folder / "users"}),
        ("tokenIssuer", issuer(folder)),
        listener(),
        listener("any", **secure),
        listener("elsewhere", sslProfile="other", requireSsl=True),
        *(listener(each, **secure, saslMechanisms=each) for each in MECHANISMS),
        listener("XOAUTH2", **secure, saslMechanisms="XOAUTH2"),  # used by Microsoft's clients
        listener("scram", saslUsers="people", authenticatePeer=True, saslMechanisms=" ".join(SCRAM)),
        listener("clear", **known, authenticatePeer=True, saslMechanisms="PLAIN OAUTHBEARER"),
        *SETTINGS,
    ]
