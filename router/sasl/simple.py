"""ANONYMOUS (RFC 4505), EXTERNAL (RFC 4422, appendix A) and PLAIN (RFC 4616): the client speaks once."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from router.amqp.sasl import ExchangeError
from router.sasl.mechanism import (
    BAD_PASSWORD,
    MAX_NAME,
    MAX_PASSWORD,
    MAX_RESPONSE,
    Answer,
    Challenge,
    Failure,
    Success,
    protocol_error,
    refused,
)
from router.sasl.saslprep import PrepareError, prepare
from router.sasl.verifiers import Verifiers

ANONYMOUS_USER: Final = "anonymous"


class AnonymousServer:
    """Anybody; the trace is not used."""

    def step(self, response: bytes) -> Answer:
        """See ServerExchange."""
        return Success(ANONYMOUS_USER)


class ExternalServer:
    """Who the layer below says that it is; what the client says is ignored (security.md S-7)."""

    def __init__(self, user: str | None) -> None:
        """user: by its certificate; None: there is none that names somebody."""
        self._user: Final = user

    def step(self, response: bytes) -> Answer:
        """See ServerExchange."""
        return refused("no name from the layer below") if self._user is None else Success(self._user)


class PlainServer:
    """A name and a password, compared with a salted verifier: `step` takes as long as its iterations."""

    def __init__(self, verifiers: Verifiers) -> None:
        self._verifiers: Final = verifiers

    def step(self, response: bytes) -> Answer:
        """See ServerExchange. The authorization identity is ignored (security.md S-7)."""
        if not response:
            return Challenge(b"")
        if len(response) > MAX_RESPONSE:
            return protocol_error("the response is too long")
        parts = response.split(b"\0")
        if len(parts) != 3:
            return protocol_error("the response must be three texts with a NUL between")
        _, name, password = parts
        if not name or not password:
            return refused("the user name or the password is empty")
        if len(name) > MAX_NAME or len(password) > MAX_PASSWORD:
            return refused("the user name or the password is too long")
        try:
            user = prepare(name.decode())
            verifier, known = self._verifiers.find(user, None)
            # A user that does not exist costs the same.
            if verifier.matches(prepare(password.decode())) and known:
                return Success(user)
        except (UnicodeDecodeError, PrepareError):
            return refused("the user name or the password has characters that cannot be")
        return Failure(BAD_PASSWORD, credentials=True)


class OneResponse(NamedTuple):
    """A mechanism in which the client speaks once. Its repr holds no secret."""

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
        """See ClientExchange. A server that wants to hear the first response gets it."""
        if challenge:
            raise ExchangeError(f"a challenge is not expected in {self.name}")
        return self.response

    def finish(self, additional: bytes | None) -> None:
        """See ClientExchange: there is nothing to prove."""

    @property
    def refusal(self) -> str:
        """See ClientExchange."""
        return ""

    def __repr__(self) -> str:
        return f"OneResponse({self.name}, {self.user!r})"


def anonymous_client(host: str) -> OneResponse:
    """ANONYMOUS, with where we are as the trace. host: name of this machine."""
    return OneResponse("ANONYMOUS", f"anonymous@{host}".encode(), ANONYMOUS_USER)


def plain_client(user: str, password: str) -> OneResponse:
    """PLAIN, acting as the user itself."""
    return OneResponse("PLAIN", b"\0" + user.encode() + b"\0" + password.encode(), user)


def external_client() -> OneResponse:
    """EXTERNAL: who the certificate says that we are."""
    return OneResponse("EXTERNAL", b"", "")
