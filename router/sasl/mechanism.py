"""What a mechanism is to those that run it: the server's side and the client's.

A mechanism has one exchange and knows no transport. What it answers is a value: `Challenge`, `Success` or `Failure`.
Texts of failures are for the router's log, in the words of the library that Dispatch 1.19 uses (security.md S-6). A
peer never sees them, and they hold nothing of what it sent.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct, field

from router.record import Record

MAX_RESPONSE: Final = 65536  # octets of a response or challenge that a mechanism looks at; no real one is near
MAX_NAME: Final = 1024  # octets of a user name
MAX_PASSWORD: Final = 1024  # octets of a password
MAX_NONCE: Final = 512  # octets of a nonce: people send 18 to 64

BAD_PASSWORD: Final = "SASL(-13): authentication failure: Password verification failed"


def protocol_error(text: str) -> "Failure":
    """The peer does not keep to the mechanism."""
    return Failure(f"SASL(-5): bad protocol / cancel: {text}")


def refused(text: str) -> "Failure":
    """The credentials are not good."""
    return Failure(f"SASL(-13): authentication failure: {text}", credentials=True)


class Challenge(Record, frozen=True):
    """The exchange goes on: what the client has to answer."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"octets"})

    octets: bytes


class Success(Record, frozen=True):
    """The client is who it says. additional: what goes along with the outcome. facts: what else is known of the user,
    by names that the provider documents."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"additional"})

    user: str
    additional: bytes | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class Failure(Struct, frozen=True):
    """The client is not let in. credentials: because what it knows is wrong, so that the attempt counts."""

    text: str
    credentials: bool = False


Answer = Challenge | Success | Failure


class ServerExchange(Protocol):
    """The server's side of one exchange. Owner: who runs it, in one thread at a time."""

    def step(self, response: bytes) -> Answer:
        """The client's response, the initial one first (empty where it sent none). Not called again after an end."""
        ...
