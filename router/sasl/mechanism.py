"""Interface of the server side of SASL mechanisms.

An object of a mechanism runs one exchange and knows no transport. It answers with a value: `Challenge`, `Success` or
`Failure`. The texts of failures are for the router's log, in the words of the library that Dispatch 1.19 uses
(security.md S-6). They are never sent to a peer, and contain nothing that the peer has sent.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct, field

from sluice.router.record import Record

MAX_RESPONSE: Final = 65536  # octets of a response or challenge; real ones are much shorter
MAX_NAME: Final = 1024  # octets of a user name
MAX_PASSWORD: Final = 1024  # octets of a password
MAX_NONCE: Final = 512  # octets of a nonce; 18 to 64 are common

BAD_PASSWORD: Final = "SASL(-13): authentication failure: Password verification failed"


def protocol_error(text: str) -> "Failure":
    """Return the failure for a response that violates the mechanism."""
    return Failure(f"SASL(-5): bad protocol / cancel: {text}")


def wrong_credentials(text: str) -> "Failure":
    """Return the failure for wrong credentials."""
    return Failure(f"SASL(-13): authentication failure: {text}", credentials=True)


class Challenge(Record, frozen=True):
    """Challenge that the client has to answer; the exchange continues."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"octets"})

    octets: bytes


class Success(Record, frozen=True):
    """Successful end of an exchange: the client is authenticated as `user`.

    `additional` is sent with the outcome. `facts` has further properties of the user, by names that the authentication
    provider documents.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"additional"})

    user: str
    additional: bytes | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class Failure(Struct, frozen=True):
    """Failed end of an exchange. `credentials`: the credentials are wrong, so the attempt counts as a guess."""

    text: str
    credentials: bool = False


Answer = Challenge | Success | Failure


class ServerExchange(Protocol):
    """Server side of one exchange. Owner: the caller, which uses it in one thread at a time."""

    def step(self, response: bytes) -> Answer:
        """Process a response of the client and return the answer.

        The first call gets the initial response, empty if the client sent none. After Success or Failure it must not
        be called again.
        """
        ...
