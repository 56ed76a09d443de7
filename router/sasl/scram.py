"""SCRAM (RFC 5802, 7677): messages, server side and client side.

Mechanisms with `-PLUS` bind the exchange to the TLS connection (`tls-exporter`, RFC 9266). A man in the middle has a
different TLS connection to each side, so the bindings differ.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from typing import Final

from sluice.router.amqp.sasl import ExchangeError
from sluice.router.sasl.mechanism import (
    MAX_NAME,
    MAX_NONCE,
    MAX_RESPONSE,
    Answer,
    Challenge,
    Success,
    protocol_error,
    wrong_credentials,
)
from sluice.router.sasl.saslprep import PrepareError, prepare
from sluice.router.sasl.verifiers import HASHES, PLUS, VerifierStore, client_key, salted_password, stored_key

NONCE_OCTETS: Final = 24
MOST_ITERATIONS: Final = 5_000_000  # iterations that a client accepts from a server
BINDING_TYPE: Final = "tls-exporter"
WRONG_PROOF: Final = "Password verification failed"


class ScramError(ValueError):
    """Error for a message that violates RFC 5802."""


def new_nonce() -> str:
    return base64.b64encode(os.urandom(NONCE_OCTETS)).decode()


def attributes(message: str) -> list[tuple[str, str]]:
    """Split `a=1,b=2` into pairs of name and value. Raises ScramError."""
    found = []
    for item in message.split(","):
        name, equals, value = item.partition("=")
        if len(name) != 1 or not name.isascii() or not name.isalpha() or not equals:
            raise ScramError("an attribute is malformed")
        found.append((name, value))
    return found


def saslname(text: str) -> str:
    """Decode a user name from a message. Raises ScramError."""
    pieces = text.split("=")
    for piece in pieces[1:]:
        if not piece.startswith(("2C", "3D")):
            raise ScramError("a name has a '=' without a valid code")
    return pieces[0] + "".join({"2C": ",", "3D": "="}[piece[:2]] + piece[2:] for piece in pieces[1:])


def quoted(name: str) -> str:
    """Encode a user name for a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _printable(nonce: str) -> bool:
    """Return whether a nonce has only printable characters without commas (RFC 5802, 7)."""
    return nonce.isascii() and nonce.isprintable() and " " not in nonce and "," not in nonce


def _decode(octets: bytes) -> str:
    if len(octets) > MAX_RESPONSE:
        raise ScramError("the message is too long")
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8 text") from None
    if "\0" in text:
        raise ScramError("the message has a NUL")
    return text


def _base64(text: str, what: str) -> bytes:
    """Decode an attribute. what: its name for errors. Raises ScramError."""
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError(f"{what} is not base64") from None
    if base64.b64encode(octets).decode() != text:
        # Unused bits of the last digit must be 0 (RFC 4648, 3.5); otherwise one proof would have several texts.
        raise ScramError(f"{what} is base64 with extra bits")
    return octets


class ScramServer:
    """Server side of one exchange."""

    def __init__(
        self,
        name: str,
        verifiers: VerifierStore,
        nonce: Callable[[], str] = new_nonce,
        *,
        binding: bytes = b"",
        offers_bound: bool = False,
    ) -> None:
        """Create an exchange of the mechanism `name`.

        `nonce` generates the server's part of the nonce. `binding` is the channel binding of the connection, used by
        mechanisms with `-PLUS`. `offers_bound`: such mechanisms were offered to the client.
        """
        self._name: Final = name.removesuffix(PLUS)
        self._bound: Final = name.endswith(PLUS)
        self._binding: Final = binding
        self._offers_bound: Final = offers_bound
        self._hash: Final = HASHES[self._name]
        self._verifiers: Final = verifiers
        self._nonce_part: Final = nonce
        self._started = False
        self._gs2 = ""
        self._nonce = ""
        self._messages = ""  # client-first-bare "," server-first

    def step(self, response: bytes) -> Answer:
        """See ServerExchange. The client sends first; an empty response is answered with an empty challenge."""
        if not self._started and not response:
            return Challenge(b"")
        try:
            text = _decode(response)
            if not self._started:
                return self._first(text)
            return self._final(text)
        except ScramError as error:
            return protocol_error(str(error))
        except PrepareError as error:
            return wrong_credentials(f"the user name cannot be used: {error}")

    def _first(self, text: str) -> Answer:
        flag, comma, rest = text.partition(",")
        authorization, second, bare = rest.partition(",")
        if not comma or not second:
            raise ScramError("the GS2 header is malformed")
        refusal = self._flag_refusal(flag)
        if refusal is not None:
            return wrong_credentials(refusal)
        if authorization and (not authorization.startswith("a=") or not saslname(authorization[2:])):
            raise ScramError("the authorization identity is malformed")
        self._gs2 = f"{flag},{authorization},"
        items = attributes(bare)
        names = [name for name, _ in items[:2]]
        if items[0][0] == "m":
            return wrong_credentials("a mandatory extension is not supported")
        if names != ["n", "r"]:
            raise ScramError("the first message must be a name and a nonce")
        name, nonce = saslname(items[0][1]), items[1][1]
        if not name or len(name.encode()) > MAX_NAME:
            return wrong_credentials("the user name is empty or too long")
        if not nonce or not _printable(nonce) or len(nonce) > MAX_NONCE:
            raise ScramError("the nonce is malformed")
        self._user = prepare(name)
        self._verifier, self._known = self._verifiers.find(self._user, self._name)
        self._started = True
        self._nonce = nonce + self._nonce_part()
        salt = base64.b64encode(self._verifier.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._messages = f"{bare},{first}"
        return Challenge(first.encode())

    def _flag_refusal(self, flag: str) -> str | None:
        """Return the reason to refuse a client with this GS2 flag (RFC 5802, 6), or None. Raises ScramError."""
        if flag.startswith("p="):
            if not self._bound:
                # A mechanism without -PLUS has no channel binding: an attacker changed its name, or the client errs.
                return "channel binding is not supported"
            return None if flag[2:] == BINDING_TYPE else f"the channel binding is not {BINDING_TYPE}"
        if flag not in ("n", "y"):
            raise ScramError("the GS2 flag is malformed")
        if self._bound:
            return "the mechanism has a channel binding, and the client sends none"
        if flag == "y" and self._offers_bound:
            return "the client has not seen the offer of channel binding: the offer was changed on the way"
        return None

    def _final(self, text: str) -> Answer:
        without_proof, comma, proof_item = text.rpartition(",")
        items = attributes(without_proof) if comma else []
        if [name for name, _ in items[:2]] != ["c", "r"] or not proof_item.startswith("p="):
            raise ScramError("the last message must be a channel binding, a nonce and a proof")
        if any(name in ("c", "r", "p", "m") for name, _ in items[2:]):
            raise ScramError("the last message has an attribute that is not allowed there")
        # Comparing both completely detects a flag or a nonce that was changed in transit.
        expected = self._gs2.encode() + (self._binding if self._bound else b"")
        binding = hmac.compare_digest(_base64(items[0][1], "the channel binding"), expected)
        nonce = hmac.compare_digest(items[1][1].encode(), self._nonce.encode())
        proof = _base64(proof_item[2:], "the proof")
        if not binding:
            return wrong_credentials("the channel binding differs from that of the first message")
        if not nonce:
            return wrong_credentials("the nonce differs from that of the first message")
        verifier, size = self._verifier, hashlib.new(self._hash).digest_size
        if len(proof) != size:
            return wrong_credentials(WRONG_PROOF)
        message = f"{self._messages},{without_proof}".encode()
        signature = hmac.digest(verifier.stored_key, message, self._hash)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        good = hmac.compare_digest(hashlib.new(self._hash, key).digest(), verifier.stored_key)
        if not good or not self._known:
            return wrong_credentials(WRONG_PROOF)
        own = hmac.digest(verifier.server_key, message, self._hash)
        return Success(self._user, b"v=" + base64.b64encode(own))


class ScramClient:
    """Client side of one exchange. It requires the server to prove that it knows the password, too."""

    def __init__(
        self,
        name: str,
        user: str,
        password: str,
        nonce: Callable[[], str] = new_nonce,
        *,
        find_binding: Callable[[], bytes | None] | None = None,
    ) -> None:
        """Create an exchange. Raises PrepareError.

        `find_binding` returns the channel binding of the connection, or None if it has none. It is called after the
        server's offer has arrived, when TLS is complete. Without it, mechanisms with `-PLUS` are not used.
        """
        self.name: Final = name
        self.user: Final = user
        self._bound: Final = name.endswith(PLUS)
        self._find_binding: Final = find_binding
        self._gs2 = "n,,"
        self._binding = b""
        self._hash: Final = HASHES[name.removesuffix(PLUS)]
        self._password: Final = prepare(password)
        self._nonce: Final = nonce()
        self._bare: Final = f"n={quoted(prepare(user))},r={self._nonce}"
        self._expected: bytes | None = None  # the server's signature
        self._proven = False

    def __repr__(self) -> str:
        return f"ScramClient({self.name}, {self.user!r})"

    @property
    def response(self) -> bytes:
        """See ClientExchange."""
        return f"{self._gs2}{self._bare}".encode()

    def choose(self, offered: Sequence[str]) -> bool:
        """See ClientExchange. A mechanism with `-PLUS` needs a channel binding.

        A client that has a binding and was offered no mechanism with `-PLUS` reports this to the server (flag `y`).
        """
        binding = None if self._find_binding is None else self._find_binding()
        if self._bound:
            if binding is None:
                return False
            self._gs2, self._binding = f"p={BINDING_TYPE},,", binding
        elif binding is not None and not any(name.endswith(PLUS) for name in offered):
            self._gs2 = "y,,"
        return True

    @property
    def computes(self) -> bool:
        """See ClientExchange. The step that derives the key from the password takes long."""
        return self._expected is None

    @property
    def refusal(self) -> str:
        """See ClientExchange."""
        return ""

    def step(self, challenge: bytes) -> bytes:
        """See ClientExchange."""
        try:
            text = _decode(challenge)
            if self._expected is None:
                return self._final(text)
        except ScramError as error:
            raise ExchangeError(f"{self.name}: the server's message is invalid: {error}") from None
        self._check(challenge)
        return b""

    def finish(self, additional: bytes | None) -> None:
        """See ClientExchange."""
        if additional and not self._proven:
            self._check(additional)
        if not self._proven:
            raise ExchangeError(f"{self.name}: the server has not proved that it knows the password")

    def _final(self, first: str) -> bytes:
        items = attributes(first)
        if [name for name, _ in items[:3]] != ["r", "s", "i"]:
            raise ScramError("the server's first message must be a nonce, a salt and iterations")
        nonce, salt, count = (value for _, value in items[:3])
        own = nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)
        if not own or not _printable(nonce) or len(nonce) > 2 * MAX_NONCE:
            raise ScramError("the server's nonce is malformed")
        if not (count.isascii() and count.isdecimal() and len(count) < 9 and 0 < int(count) <= MOST_ITERATIONS):
            raise ScramError("the number of iterations is malformed, or too high")
        salt_octets = _base64(salt, "the salt")
        if not salt_octets:
            raise ScramError("the salt is empty")
        salted = salted_password(self._hash, self._password, salt_octets, int(count))
        binding = base64.b64encode(self._gs2.encode() + self._binding).decode()
        without_proof = f"c={binding},r={nonce}"
        message = f"{self._bare},{first},{without_proof}".encode()
        signature = hmac.digest(stored_key(self._hash, salted), message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key(self._hash, salted), signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._expected = hmac.digest(server_key, message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, final: bytes) -> None:
        """Check the server's last message. Raises ExchangeError."""
        if self._expected is None:
            raise ExchangeError(f"{self.name}: the server ends the exchange too early")
        wanted = b"v=" + base64.b64encode(self._expected)
        if not hmac.compare_digest(final.split(b",")[0], wanted):
            raise ExchangeError(
                f"{self.name}: the server's signature is wrong, so the server does not know the password"
            )
        self._proven = True
