"""Verification of JSON Web Tokens (RFC 7519) of configured issuers: signature, issuer, audience, times, claims.

Only public-key signatures are accepted, and each type of key only with its own algorithms. So neither a token without
signature nor one with an HMAC computed from a public key is valid. Headers that refer to keys (`jku`, `x5u`, `jwk`)
are ignored.
"""

import codecs
import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import jwt
from jwt.exceptions import PyJWTError

from sluice.router import json_codec
from sluice.router.deadline_answer import DeadlineAnswer
from sluice.router.sasl.bearer import MAX_TOKEN
from sluice.router.sasl.mechanism import MAX_NAME, Failure, Success, wrong_credentials
from sluice.supervisor.auth.messages import Facts, TokenIssuer

# Algorithms by type of key (RFC 7518, 3.1; RFC 8037).
ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_CURVES: Final = {"ES256": 256, "ES384": 384, "ES512": 521}  # bits of the curve of each algorithm (RFC 7518, 3.4)
ALL_ALGORITHMS: Final = tuple(name for names in ALGORITHMS.values() for name in names)
MAX_JWKS: Final = 1 << 20  # maximum octets of a JWKS document
MAX_KEYS: Final = 200  # maximum number of keys in it
MAX_GROUPS: Final = 100  # maximum number of groups of a user
FETCH_SECONDS: Final = 5.0  # time limit for connecting, for the whole answer, and for waits for the keys
MIN_REFRESH_SECONDS: Final = 10.0  # minimum seconds between two refreshes for unknown keys
LEAST_RSA_BITS: Final = 2048
KEPT: Final = "; the keys read before stay in force"
NOT_READ: Final = "the document has not been read yet"  # problem of a new key source


class KeysError(ValueError):
    """Raised when a document is not a valid set of keys, or no keys are available."""


class Key:
    """Public key with the algorithms that it may be used for."""

    __slots__ = ("algorithms", "id", "value")

    def __init__(self, found: jwt.PyJWK, entry: Mapping[str, Any], algorithms: tuple[str, ...]) -> None:
        self.id: Final = entry.get("kid")
        self.value: Final = found.key
        self.algorithms: Final = algorithms


def parse_keys(text: str | bytes) -> list[Key]:
    """Return the signature keys of a JWKS; other keys are left out. Raises KeysError if none is left."""
    try:
        # Editors of some systems write a byte order mark, which orjson refuses.
        document = json_codec.decode(text.removeprefix(codecs.BOM_UTF8) if isinstance(text, bytes) else text)
    except json_codec.JsonError as error:
        raise KeysError(f"the document is not JSON: {error}") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise KeysError("the document is not a JWKS, because it has no list `keys`")
    if len(entries) > MAX_KEYS:
        raise KeysError(f"the document has more than {MAX_KEYS} keys")
    keys = [key for entry in entries if (key := _key(entry)) is not None]
    if not keys:
        raise KeysError("the document has no usable signature key")
    return keys


def _key(entry: object) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    algorithms: tuple[str, ...] = ALGORITHMS.get(entry.get("kty", ""), ())
    if entry.get("kty") == "EC":
        algorithms = tuple(name for name in algorithms if entry.get("crv") == f"P-{_CURVES[name]}")
    if "alg" in entry:
        algorithms = tuple(name for name in algorithms if name == entry["alg"])
    if not algorithms:
        return None
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        found = jwt.PyJWK(public, algorithms[0])
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if entry["kty"] == "RSA" and found.key.key_size < LEAST_RSA_BITS:
        return None
    return Key(found, entry, algorithms)


class KeySource(Protocol):
    """Source of the keys of an issuer."""

    def keys(self) -> list[Key]:
        """Return the last keys that were read. Raises KeysError, with the reason, if none were ever read."""
        ...

    def refresh(self) -> bool:
        """Read the keys again, because a token refers to an unknown key. Returns False if that was done just now."""
        ...


class UrlKeys:
    """Cached keys from a URL, refreshed by a thread. If reading fails, the last keys stay in force.

    Owner: the process.
    """

    def __init__(
        self,
        url: str,
        ca_file: str | None,
        every: float,
        log: Callable[[str, str], None],
        fetch: Callable[[str, str | None], bytes] | None = None,
    ) -> None:
        """Create the thread, which `start` starts. every: seconds between reads. log: called with level and text."""
        self._url: Final = url
        self._ca_file: Final = ca_file
        self._every: Final = every
        self._log: Final = log
        self._fetch: Final = fetch or fetch_https
        self._keys: list[Key] | None = None
        self.problem: str | None = NOT_READ
        self._changed: Final = threading.Condition()
        self._wanted = False  # True: `refresh` waits for another read
        self._ended = False
        self._rounds = 0  # number of reads, failed ones included
        self._last = 0.0  # time of the last read, by the monotonic clock
        self._thread: Final = threading.Thread(target=self._run, name="jwks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def state(self) -> str:
        """State of the keys for management."""
        with self._changed:
            if self.problem is None:
                return "keys read"
            return self.problem + (KEPT if self._keys is not None else "")

    def keys(self) -> list[Key]:
        """See KeySource. Waits for the first read, at most FETCH_SECONDS."""
        with self._changed:
            self._changed.wait_for(lambda: self._rounds or self._ended, FETCH_SECONDS)
            if self._keys is None:
                raise KeysError(self.problem or NOT_READ)
            return self._keys

    def refresh(self) -> bool:
        """See KeySource. Waits for the read, at most FETCH_SECONDS."""
        with self._changed:
            if self._rounds and time.monotonic() - self._last < MIN_REFRESH_SECONDS:
                return False
            before, self._wanted = self._rounds, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._rounds > before or self._ended, FETCH_SECONDS)
            return self._rounds > before

    def _run(self) -> None:
        while not self._ended:
            keys, problem = self._read()
            with self._changed:
                if keys is not None:
                    self._keys = keys
                if problem is not None and problem != self.problem:
                    kept = KEPT if self._keys is not None else ""
                    self._log("warning", f"Keys for tokens cannot be read from {self._url}: {problem}{kept}")
                self.problem = problem
                self._rounds += 1
                self._last = time.monotonic()
                self._wanted = False
                self._changed.notify_all()
                # A failed read is repeated soon.
                pause = self._every if problem is None else min(self._every, MIN_REFRESH_SECONDS)
                self._changed.wait_for(lambda: self._wanted or self._ended, pause)

    def _read(self) -> tuple[list[Key] | None, str | None]:
        try:
            return parse_keys(self._fetch(self._url, self._ca_file)), None
        except (OSError, http.client.HTTPException, ValueError) as error:
            return None, str(error) or type(error).__name__


def fetch_https(url: str, ca_file: str | None) -> bytes:
    """Return the body of a document. Redirections are not followed. Raises OSError, HTTPException, KeysError.

    The server has FETCH_SECONDS for the connection, and for the answer as a whole: one that sends an octet now and then
    would otherwise keep withdrawn keys in force.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise KeysError("the URL must be https://HOST/…")
    context = ssl.create_default_context(cafile=ca_file)
    connection: Any = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=FETCH_SECONDS, context=context)
    try:
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path, headers={"Accept": "*/*"})
        connection.response_class = partial(DeadlineAnswer, deadline=time.monotonic() + FETCH_SECONDS)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise KeysError(f"HTTP status {answer.status}")
        body: bytes = answer.read(MAX_JWKS + 1)
    finally:
        connection.close()
    if len(body) > MAX_JWKS:
        raise KeysError(f"the document has more than {MAX_JWKS} octets")
    return body


class FileKeys:
    """Keys of a watched file."""

    def __init__(self, current: Callable[[], list[Key] | None], look: Callable[[], None]) -> None:
        """Create the source. current: return the last keys. look: read the file now if it has changed."""
        self._current: Final = current
        self._look: Final = look

    def keys(self) -> list[Key]:
        """See KeySource."""
        found = self._current()
        if found is None:
            raise KeysError("the key file is not valid")
        return found

    def refresh(self) -> bool:
        """See KeySource."""
        self._look()
        return True


class Issuer:
    """Token issuer with its key source. Owner: the process."""

    def __init__(self, config: TokenIssuer, source: KeySource) -> None:
        self.config: Final = config
        self.source: Final = source

    def check(self, token: str, header: Mapping[str, Any]) -> Success | Failure:
        """Verify a token of this issuer and return its user. May block while keys are read."""
        algorithm = header.get("alg")
        if algorithm not in self.config.algorithms or algorithm not in ALL_ALGORITHMS:
            return wrong_credentials("the algorithm of the token is not allowed")
        if "crit" in header or "b64" in header:
            return wrong_credentials("the token requires an extension (crit or b64)")
        try:
            keys = _usable_keys(self.source.keys(), algorithm, header.get("kid"))
            if not keys and self.source.refresh():
                keys = _usable_keys(self.source.keys(), algorithm, header.get("kid"))
        except KeysError as error:
            return Failure(f"SASL(-24): the keys of tokenIssuer {self.config.name} are not available: {error}")
        if not keys:
            return wrong_credentials("the issuer has no key for the signature of the token")
        failure = wrong_credentials("the token is malformed")
        for key in keys:
            try:
                claims = jwt.decode(
                    token,
                    key.value,
                    algorithms=[algorithm],
                    audience=self.config.audiences,
                    issuer=self.config.issuer,
                    leeway=self.config.leeway_seconds,
                    options={"require": ["exp", "iss", "aud"]},
                )
            except jwt.InvalidSignatureError:
                failure = wrong_credentials("the signature of the token is wrong")
            except PyJWTError as error:
                return wrong_credentials(f"the token is refused: {error}")
            except (ValueError, TypeError, OverflowError, RecursionError):
                return wrong_credentials("the token is malformed")
            else:
                try:
                    return self._user(claims, float(claims["exp"]))
                except (OverflowError, ValueError, TypeError):
                    return wrong_credentials("the token is malformed")
        return failure

    def _user(self, claims: Mapping[str, Any], expires: float) -> Success | Failure:
        user = _claim(claims, self.config.user_claim)
        if not isinstance(user, str) or not user:
            return wrong_credentials(f"claim {self.config.user_claim!r} of the token is missing or not a string")
        if len(user.encode("utf-8", "surrogatepass")) > MAX_NAME or not user.isprintable():
            return wrong_credentials(f"claim {self.config.user_claim!r} of the token is not a valid user name")
        groups: list[str] = []
        if self.config.group_claim is not None:
            found = _claim(claims, self.config.group_claim)
            listed = found if isinstance(found, list) else [found]
            groups = [each for each in listed if isinstance(each, str) and each][:MAX_GROUPS]
        facts = Facts(groups=groups, expires=expires, token=(self.config.issuer, user))
        return Success(self.config.user_prefix + user, facts={"facts": facts})


def check_token(issuers: Iterable[Issuer], token: str) -> Success | Failure:
    """Verify a token by those of `issuers` that it names, and return its user."""
    if len(token) > MAX_TOKEN:
        return wrong_credentials("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
        # The unverified claim only selects the issuer; it is compared again when the signature is verified.
        named = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        return wrong_credentials("the token is malformed")
    # Several entities may name one issuer, with different audiences.
    failure = wrong_credentials("the issuer of the token is not known")
    for issuer in issuers:
        if issuer.config.issuer == named:
            found = issuer.check(token, header)
            if isinstance(found, Success):
                return found
            failure = found
    return failure


def _usable_keys(keys: Iterable[Key], algorithm: str, identifier: object) -> list[Key]:
    """Return the keys that may have signed a token: those for its algorithm, with its key id if it has one."""
    fitting = [key for key in keys if algorithm in key.algorithms]
    return fitting if identifier is None else [key for key in fitting if key.id == identifier]


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim by its name. A name with dots may lead into nested claims (`realm_access.roles`)."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
