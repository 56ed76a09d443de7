"""Who the users are, and how their connections are encrypted; proton's engine does both."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from proton import SASL, SSL, SSLDomain, SSLException, Transport


@dataclass(frozen=True)
class Security:
    """What is empty is not given. user, password: of all users, in place of those in the URL. mechanisms: separated by
    blanks. ca: trusted authorities; the system's without. certificate, key: of all users."""

    user: str = ""
    password: str = field(default="", repr=False)
    mechanisms: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def log_in(self, sasl: SASL) -> None:
        """Limit what a connection may use: by default PLAIN with a user, else EXTERNAL with a certificate."""
        found = "PLAIN" if self.user else "EXTERNAL" if self.certificate else "ANONYMOUS"
        sasl.allow_insecure_mechs = True  # the user's word: tests have passwords of their own
        sasl.allowed_mechs(self.mechanisms or found)

    def encrypt(self, transport: Transport, host: str) -> None:
        """TLS on a connection; the certificate of the peer has to be for that host. Raises ValueError."""
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
