"""Salted verifiers of passwords (RFC 5802), which a server stores instead of the passwords, and their look-up."""

import base64
import binascii
import hashlib
import hmac
import os
from typing import ClassVar, Final, Protocol

from sluice.router.record import Record

HASHES: Final = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
STRONGEST_FIRST: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
PLUS: Final = "-PLUS"  # suffix of mechanisms with channel binding
# Offered mechanisms with channel binding, the strongest first. They use the verifiers of the mechanisms without it.
BOUND_MECHANISMS: Final = ("SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS")
DEFAULT_ITERATIONS: Final = 15000  # iterations of new verifiers; the router computes them for each login with PLAIN
LEAST_ITERATIONS: Final = 4096  # RFC 5802, 5.1; RFC 7677, 4
MOST_ITERATIONS: Final = 10_000_000
SALT_OCTETS: Final = 16
MOST_SALT: Final = 128  # octets


class VerifierError(ValueError):
    """Error for a text that is not a valid verifier."""


class Verifier(Record, frozen=True):
    """Verifier of a password for one mechanism."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"salt", "stored_key", "server_key"})

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @property
    def hash(self) -> str:
        """Name of the hash function."""
        return HASHES[self.mechanism]

    def matches(self, password: str) -> bool:
        """Return whether a password matches. It has to be prepared (`saslprep`). The call computes all iterations."""
        salted = salted_password(self.hash, password, self.salt, self.iterations)
        return hmac.compare_digest(stored_key(self.hash, salted), self.stored_key)

    def text(self) -> str:
        """Return the text form MECHANISM$ITERATIONS:SALT$STORED-KEY:SERVER-KEY, with octets in base64."""
        salt, stored, server = (_base64(each) for each in (self.salt, self.stored_key, self.server_key))
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"

    @classmethod
    def parse(cls, text: str) -> "Verifier":
        """Parse the text form. Raises VerifierError, whose text contains no octets of salt or keys."""
        mechanism, _, rest = text.partition("$")
        cost, _, keys = rest.partition("$")
        iterations, _, salt = cost.partition(":")
        stored, _, server = keys.partition(":")
        if mechanism not in HASHES:
            raise VerifierError(f"unknown mechanism {mechanism[:40]!r}")
        if not (iterations.isascii() and iterations.isdecimal() and len(iterations) < 9):
            raise VerifierError(f"{mechanism}: the number of iterations is not a number")
        found = cls(mechanism, int(iterations), _octets(salt), _octets(stored), _octets(server))
        size = hashlib.new(found.hash).digest_size
        if not LEAST_ITERATIONS <= found.iterations <= MOST_ITERATIONS:
            raise VerifierError(f"{mechanism}: iterations must be {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
        if not 0 < len(found.salt) <= MOST_SALT:
            raise VerifierError(f"{mechanism}: the salt must have 1 to {MOST_SALT} octets")
        if len(found.stored_key) != size or len(found.server_key) != size:
            raise VerifierError(f"{mechanism}: keys must have {size} octets")
        return found


def make(mechanism: str, password: str, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None) -> Verifier:
    """Return a verifier of a prepared password (`saslprep`); without `salt`, with a random one."""
    salt = os.urandom(SALT_OCTETS) if salt is None else salt
    name = HASHES[mechanism]
    salted = salted_password(name, password, salt, iterations)
    return Verifier(mechanism, iterations, salt, stored_key(name, salted), hmac.digest(salted, b"Server Key", name))


def salted_password(name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Compute SaltedPassword, the function Hi() of RFC 5802, 3. The call releases the GIL."""
    return hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)


def client_key(name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", name)


def stored_key(name: str, salted: bytes) -> bytes:
    return hashlib.new(name, client_key(name, salted)).digest()


class VerifierStore(Protocol):
    """Look-up of verifiers by user."""

    def find(self, user: str, mechanism: str | None) -> tuple[Verifier, bool]:
        """Return the verifier of a user for a mechanism, and whether the user exists.

        `user` is a prepared name. Without `mechanism`, the strongest verifier is returned. For an unknown user the
        verifier is a fake one, always the same for a name, that no password matches. The caller continues the exchange
        with it, so a client cannot find out which users exist.
        """
        ...


class FakeVerifiers:
    """Fake verifiers for unknown users: they look real, and are the same each time for a name."""

    def __init__(self, key: bytes | None = None) -> None:
        """Create a generator. `key` is a persistent secret; without one, fake verifiers change at each start."""
        self._key: Final = os.urandom(32) if key is None else key

    def make(self, user: str, mechanism: str, iterations: int, salt_octets: int = SALT_OCTETS) -> Verifier:
        name = HASHES[mechanism]
        seed = hmac.digest(self._key, f"{mechanism}\0{user}".encode("utf-8", "surrogatepass"), "sha512")
        size = hashlib.new(name).digest_size
        salt = hashlib.shake_256(seed + b"salt").digest(salt_octets)
        keys = hashlib.shake_256(seed + b"keys").digest(2 * size)
        return Verifier(mechanism, iterations, salt, keys[:size], keys[size:])


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise VerifierError("the salt or a key is not base64") from None
