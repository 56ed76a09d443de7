"""Mechanisms with one message of the client: ANONYMOUS (RFC 4505), EXTERNAL (RFC 4422, A) and PLAIN (RFC 4616)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sluice.router.amqp.sasl import ExchangeError
from sluice.router.sasl.mechanism import (
    BAD_PASSWORD,
    MAX_NAME,
    MAX_PASSWORD,
    MAX_RESPONSE,
    Answer,
    Challenge,
    Failure,
    Success,
    protocol_error,
    wrong_credentials,
)
from sluice.router.sasl.saslprep import PrepareError, prepare
from sluice.router.sasl.verifiers import VerifierStore

ANONYMOUS_USER: Final = "anonymous"


class AnonymousServer:
    """Server side of ANONYMOUS: accepts every client and ignores the trace information."""

    def step(self, response: bytes) -> Answer:
        """See ServerExchange."""
        return Success(ANONYMOUS_USER)


class ExternalServer:
    """Server side of EXTERNAL: the client is the user that TLS has authenticated.

    The client's response is ignored (security.md S-7).
    """

    def __init__(self, user: str | None) -> None:
        """Create an exchange. `user` is the name from the client's certificate; None: no certificate names a user."""
        self._user: Final = user

    def step(self, response: bytes) -> Answer:
        """See ServerExchange."""
        return wrong_credentials("no certificate names a user") if self._user is None else Success(self._user)


class PlainServer:
    """Server side of PLAIN: compares the password with a salted verifier. `step` takes as long as its iterations."""

    def __init__(self, verifiers: VerifierStore) -> None:
        self._verifiers: Final = verifiers

    def step(self, response: bytes) -> Answer:
        """See ServerExchange. The authorization identity is ignored (security.md S-7)."""
        if not response:
            return Challenge(b"")
        if len(response) > MAX_RESPONSE:
            return protocol_error("the response is too long")
        parts = response.split(b"\0")
        if len(parts) != 3:
            return protocol_error("the response must be three texts separated by NUL")
        _, name, password = parts
        if not name or not password:
            return wrong_credentials("the user name or the password is empty")
        if len(name) > MAX_NAME or len(password) > MAX_PASSWORD:
            return wrong_credentials("the user name or the password is too long")
        try:
            user = prepare(name.decode())
            verifier, known = self._verifiers.find(user, None)
            # An unknown user takes the same time.
            if verifier.matches(prepare(password.decode())) and known:
                return Success(user)
        except (UnicodeDecodeError, PrepareError):
            return wrong_credentials("the user name or the password has characters that are not allowed")
        return Failure(BAD_PASSWORD, credentials=True)


class OneResponse(NamedTuple):
    """Client side of a mechanism with one message. Its repr contains no secret."""

    name: str
    response: bytes
    user: str

    def choose(self, offered: Sequence[str]) -> bool:
        """See ClientExchange."""
        return True

    @property
    def computes(self) -> bool:
        """See ClientExchange."""
        return False

    def step(self, challenge: bytes) -> bytes:
        """See ClientExchange. An empty challenge asks for the initial response again."""
        if challenge:
            raise ExchangeError(f"a challenge is not expected in {self.name}")
        return self.response

    def finish(self, additional: bytes | None) -> None:
        """See ClientExchange. The server has nothing to prove."""

    @property
    def refusal(self) -> str:
        """See ClientExchange."""
        return ""

    def __repr__(self) -> str:
        return f"OneResponse({self.name}, {self.user!r})"


def anonymous_client(host: str) -> OneResponse:
    """Return the client side of ANONYMOUS. `host`, the name of this machine, is sent as trace information."""
    return OneResponse("ANONYMOUS", f"anonymous@{host}".encode(), ANONYMOUS_USER)


def plain_client(user: str, password: str) -> OneResponse:
    """Return the client side of PLAIN, without an authorization identity."""
    return OneResponse("PLAIN", b"\0" + user.encode() + b"\0" + password.encode(), user)


def external_client() -> OneResponse:
    """Return the client side of EXTERNAL: the client's certificate names the user."""
    return OneResponse("EXTERNAL", b"", "")
