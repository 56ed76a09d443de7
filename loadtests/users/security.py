"""Credentials of the users and encryption of their connections. Proton's engine implements both."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from proton import SASL, SSL, SSLDomain, SSLException, Transport


@dataclass(frozen=True)
class Security:
    """Security settings of all users. An empty string means that the setting is not given.

    user, password: replace those in the URL. mechanisms: separated by blanks. ca: trusted authorities; empty for the
    system's.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    mechanisms: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def log_in(self, sasl: SASL) -> None:
        """Limit the SASL mechanisms of a connection: by default PLAIN with a user, else EXTERNAL with a certificate."""
        found = "PLAIN" if self.user else "EXTERNAL" if self.certificate else "ANONYMOUS"
        sasl.allow_insecure_mechs = True  # requested by the user: tests have passwords of their own
        sasl.allowed_mechs(self.mechanisms or found)

    def encrypt(self, transport: Transport, host: str) -> None:
        """Encrypt a connection with TLS. The peer's certificate must be for `host`. Raises ValueError."""
        SSL(transport, _domain(self.ca, self.certificate, self.key)).peer_hostname = host


@cache
def _domain(ca: str, certificate: str, key: str) -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    try:
        if ca:
            domain.set_trusted_ca_db(ca)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, ca or None)
        if certificate:
            domain.set_credentials(certificate, key or certificate, None)
    except SSLException:
        raise ValueError(f"a file cannot be used: {ca or 'the system'}, {certificate}, {key}") from None
    return domain
