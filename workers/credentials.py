"""Credentials of this worker's TLS connections, by name, as sent by the supervisor."""

from typing import Final

from sluice.router.control.ops import Credentials, CredentialsGone, CredentialsOp, Profile
from sluice.router.process import forbid_memory_access
from sluice.router.tls.context import TlsContext, TlsError

UNKNOWN: Final = "the worker has no credentials of this name"


class CredentialStore:
    """Credentials by name. A TLS context is created when the first connection needs it. Owner: the worker."""

    def __init__(self) -> None:
        self._known: dict[str, Credentials | None] = {}
        self._contexts: dict[tuple[str, bool, bool, bool], TlsContext] = {}

    def apply(self, op: CredentialsOp | CredentialsGone) -> None:
        """Replace or remove credentials for new connections. Existing connections keep theirs."""
        for key in [key for key in self._contexts if key[0] == op.name]:
            del self._contexts[key]
        if isinstance(op, CredentialsGone):
            self._known.pop(op.name, None)
        else:
            forbid_memory_access()  # the credentials contain private keys
            self._known[op.name] = op.credentials

    def clear(self) -> None:
        """Forget all credentials, before a snapshot replaces them."""
        self._known = {}
        self._contexts = {}

    def trusts(self, name: str) -> bool:
        """True if the credentials name authorities that certificates of clients can be verified against."""
        credentials = self._known.get(name)
        return credentials is not None and credentials.trusted is not None

    def closes_revoked(self, name: str) -> bool:
        """True if connections are closed when their certificate is revoked."""
        credentials = self._known.get(name)
        return credentials is not None and credentials.closes_revoked

    def of_endpoint(self, profile: Profile, *, server: bool) -> TlsContext:
        """Return the context for a listener (`server`) or connector with credentials. Raises TlsError."""
        assert profile.tls is not None
        verify_peer = profile.verify_peer and (not profile.websockets or self.trusts(profile.tls))
        return self.context(profile.tls, server=server, verify_peer=verify_peer, optional=profile.certificate_optional)

    def context(self, name: str, *, server: bool, verify_peer: bool, optional: bool = False) -> TlsContext:
        """Return the context for the credentials of this name. Raises TlsError."""
        key = name, server, verify_peer, optional
        found = self._contexts.get(key)
        if found is None:
            credentials = self._known.get(name)
            if credentials is None:
                raise TlsError("certificates", UNKNOWN)
            found = self._contexts[key] = TlsContext(
                credentials, server=server, verify_peer=verify_peer, optional=optional
            )
        return found
