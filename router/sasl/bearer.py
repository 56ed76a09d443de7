"""OAUTHBEARER (RFC 7628) and XOAUTH2: authentication by a token instead of a password."""

from collections.abc import Callable, Sequence
from typing import Final

from sluice.router.amqp.sasl import ExchangeError
from sluice.router.json_codec import decode, encode
from sluice.router.sasl.mechanism import (
    MAX_NAME,
    MAX_RESPONSE,
    Answer,
    Challenge,
    Failure,
    Success,
    protocol_error,
    wrong_credentials,
)
from sluice.router.sasl.scram import quoted, saslname

SEPARATOR: Final = "\x01"
MAX_TOKEN: Final = 32768  # octets

# Function that validates a token. Arguments: the user name that the client claims (empty: none), and the token. It may
# block for long.
CheckToken = Callable[[str, str], Success | Failure]


class _Bearer:
    """Base class of both servers. The client sends one message with the token.

    After a refusal, one more challenge and response tell the client the reason.
    """

    def __init__(self, check: CheckToken) -> None:
        self._check: Final = check
        self._refusal: Failure | None = None

    def step(self, response: bytes) -> Answer:
        """See ServerExchange."""
        if self._refusal is not None:  # any response to the reason ends the exchange
            return self._refusal
        if not response:
            return Challenge(b"")
        if len(response) > MAX_RESPONSE:
            return protocol_error("the response is too long")
        try:
            user, token = self.parse(response.decode())
        except UnicodeDecodeError:
            return protocol_error("the response is not UTF-8 text")
        except ValueError as error:
            return protocol_error(str(error))
        if len(user.encode()) > MAX_NAME or len(token) > MAX_TOKEN:
            return wrong_credentials("the user name or the token is too long")
        found = self._check(user, token)
        if isinstance(found, Success):
            return found
        self._refusal = found
        return Challenge(self.refusal())

    def parse(self, text: str) -> tuple[str, str]:
        """Return the user name that the client claims (empty: none), and the token. Raises ValueError."""
        raise NotImplementedError

    def refusal(self) -> bytes:
        """Return the reason of a refusal, as the challenge for the client."""
        raise NotImplementedError


class OAuthBearerServer(_Bearer):
    """Server side of OAUTHBEARER (RFC 7628)."""

    def parse(self, text: str) -> tuple[str, str]:
        header, *pairs = text.split(SEPARATOR)
        flag, _, rest = header.partition(",")
        authorization, comma, nothing = rest.partition(",")
        if flag not in ("n", "y") or not comma or nothing:
            raise ValueError("the GS2 header is malformed, or asks for channel binding")
        if authorization and not authorization.startswith("a="):
            raise ValueError("the GS2 header is malformed")
        return saslname(authorization.removeprefix("a=")), _token(pairs)

    def refusal(self) -> bytes:
        return encode({"status": "invalid_token"})


class XOAuth2Server(_Bearer):
    """Server side of XOAUTH2, as defined by Google and Microsoft."""

    def parse(self, text: str) -> tuple[str, str]:
        user, *pairs = text.split(SEPARATOR)
        name, equals, value = user.partition("=")
        if name != "user" or not equals:
            raise ValueError("the response must begin with the user")
        return value, _token(pairs)

    def refusal(self) -> bytes:
        return encode({"status": "401", "schemes": "bearer"})


class OAuthBearerClient:
    """Client side of OAUTHBEARER (RFC 7628). It answers a refusal once, so that the server ends the exchange."""

    name: Final = "OAUTHBEARER"
    computes: Final = False

    def __init__(self, token: str, user: str = "") -> None:
        """Create an exchange. `user` is the identity to act as; "": the one that the token names."""
        self.user: Final = user
        identity = f"a={quoted(user)}" if user else ""
        self.response: Final = f"n,{identity},{SEPARATOR}auth=Bearer {token}{SEPARATOR}{SEPARATOR}".encode()
        self.refusal = ""

    def __repr__(self) -> str:
        return f"OAuthBearerClient({self.user!r})"

    def choose(self, offered: Sequence[str]) -> bool:
        """See ClientExchange."""
        return True

    def step(self, challenge: bytes) -> bytes:
        """See ClientExchange. An empty challenge asks for the initial response again."""
        if self.refusal:
            raise ExchangeError("a second challenge is not expected in OAUTHBEARER")
        if not challenge:
            return self.response
        try:
            found = decode(challenge[:MAX_RESPONSE])
        except ValueError:
            found = None
        status = found.get("status") if isinstance(found, dict) else None
        self.refusal = (
            f"OAUTHBEARER: the server refuses the token: {status if isinstance(status, str) else 'no reason'}"
        )
        return SEPARATOR.encode()

    def finish(self, additional: bytes | None) -> None:
        """See ClientExchange."""
        if self.refusal:
            raise ExchangeError("OAUTHBEARER: the server reports success after it has refused the token")


def _token(pairs: list[str]) -> str:
    """Return the token of the only `auth=Bearer TOKEN` pair. Raises ValueError."""
    if len(pairs) < 3 or pairs[-1] or pairs[-2]:
        raise ValueError("the response must end with two separators")
    found = [value for name, _, value in (pair.partition("=") for pair in pairs[:-2]) if name == "auth"]
    if len(found) != 1:
        raise ValueError("the response must have one token")
    scheme, _, token = found[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable():
        raise ValueError("the response must have a bearer token")
    return token
