"""What the supervisor and the authentication process say to each other, and how it is encoded.

A message is its length in four octets, then MessagePack. Passwords and tokens are in them: they travel over a socket
pair without a name, and no message shows them in its repr.
"""

import struct
from typing import Final

import msgspec
from msgspec import Struct

MAX_MESSAGE: Final = 1 << 20  # octets; a response of SASL has at most 64 KiB
_LENGTH: Final = struct.Struct(">I")


class MessageError(ValueError):
    """Octets that are no message, or a message that is too long."""


# -- supervisor to process ----------------------------------------------------------------------------------------


class UsersFile(Struct, frozen=True, tag=True):
    """A `saslUsers` entity."""

    name: str
    path: str
    prefix: str = ""  # of the names of its users


class TokenIssuer(Struct, frozen=True, tag=True, kw_only=True):
    """A `tokenIssuer` entity. Keys come from `jwks_file` or `jwks_url`."""

    name: str
    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    jwks_file: str | None = None
    jwks_url: str | None = None
    ca_file: str | None = None  # for the URL; None: the system's
    refresh_seconds: int = 300
    leeway_seconds: int = 30
    user_claim: str = "sub"
    group_claim: str | None = None
    user_prefix: str = ""


class ServiceTls(Struct, frozen=True, kw_only=True):
    """What an `sslProfile` says for a client. fault: it can say nothing, and nobody is to be connected to."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    password: str | None = None
    ciphers: str | None = None
    protocols: str | None = None
    fault: str | None = None

    def __repr__(self) -> str:
        return f"ServiceTls({self.ca_file!r}, {self.cert_file!r})"


class Service(Struct, frozen=True, tag=True, kw_only=True):
    """An `authServicePlugin` entity."""

    name: str
    host: str
    port: int
    realm: str | None = None
    tls: ServiceTls | None = None

    @property
    def place(self) -> str:
        """As the log shows it."""
        return f"{self.host}:{self.port}"


class Library(Struct, frozen=True, kw_only=True):
    """libsasl2 is to be used: where its configuration is."""

    name: str
    folder: str | None = None


class Configure(Struct, tag=True, kw_only=True):
    """What there is to authenticate by; answered with `Configured`."""

    serial: int
    users: list[UsersFile] = []
    issuers: list[TokenIssuer] = []
    services: list[Service] = []
    library: Library | None = None


class Context(Struct, kw_only=True):
    """What an exchange has to know of its connection and its listener."""

    connection: int  # its number in the log
    host: str  # the peer's address, without port
    users: str | None = None  # name of a UsersFile
    issuers: list[str] = []  # names of TokenIssuers
    service: str | None = None  # name of a Service
    library: bool = False
    mechanisms: list[str] | None = None  # those that may be offered; None: all
    anonymous: bool = True  # ANONYMOUS may be offered: not with `authenticatePeer: yes`
    external: str | None = None  # user by the certificate of the peer; None: there is none
    encryption: int = 0  # strength (ssf) of TLS; 0: there is none
    binding: bytes | None = None  # `tls-exporter` of its connection; None: there is none

    def __repr__(self) -> str:
        return f"Context([C{self.connection}], {self.host!r})"


class Begin(Struct, tag=True):
    """A client wants to authenticate; answered with `Offer`, or `Refused`."""

    exchange: int
    context: Context


class Init(Struct, tag=True):
    """It has chosen; answered with `Challenge`, `Accepted` or `Refused`. `hostname`: of the frame."""

    exchange: int
    mechanism: str
    response: bytes
    hostname: str | None = None

    def __repr__(self) -> str:
        return f"Init({self.exchange}, {self.mechanism!r})"


class Respond(Struct, tag=True):
    """It has answered a challenge."""

    exchange: int
    response: bytes

    def __repr__(self) -> str:
        return f"Respond({self.exchange})"


class Cancel(Struct, tag=True):
    """It is gone; nothing more is said of the exchange."""

    exchange: int


class Check(Struct, tag=True):
    """A token that renews another one; answered with `Accepted` or `Refused`. No `Begin` comes before."""

    exchange: int
    context: Context
    token: str

    def __repr__(self) -> str:
        return f"Check({self.exchange})"


class Confirm(Struct, tag=True):
    """Users of established connections by passwords; answered with `Missing` where a file has some of them no more."""

    file: str  # name of a UsersFile
    users: list[str]  # as they are in the file


Request = Configure | Begin | Init | Respond | Cancel | Check | Confirm


# -- process to supervisor ----------------------------------------------------------------------------------------


class Configured(Struct, tag=True):
    """`problems`: type of entity, its name, and what is wrong with it."""

    serial: int
    problems: list[tuple[str, str, str]]


class Offer(Struct, tag=True):
    """The mechanisms for the client."""

    exchange: int
    mechanisms: list[str]


class Challenge(Struct, tag=True):
    """The exchange goes on."""

    exchange: int
    octets: bytes

    def __repr__(self) -> str:
        return f"Challenge({self.exchange})"


class Facts(Struct, kw_only=True):
    """What is known of a user beside its name."""

    groups: list[str] = []  # by a claim of its token, for policy
    token: tuple[str, str] | None = None  # its issuer, and whom it calls the user
    account: tuple[str, str] | None = None  # the name of its UsersFile, and its own name there
    expires: float | None = None  # seconds since the epoch: its token
    # Addresses that an authentication service allows: sources and targets; None: it says nothing of them.
    sources: list[str] | None = None
    targets: list[str] | None = None


class Accepted(Struct, tag=True):
    """The client is `user`."""

    exchange: int
    user: str
    facts: Facts
    additional: bytes | None = None  # goes along with the outcome

    def __repr__(self) -> str:
        return f"Accepted({self.exchange}, {self.user!r}, {self.facts!r})"


class Refused(Struct, tag=True):
    """The client is not let in. `text` is for the log; it may be empty."""

    exchange: int
    text: str


class LogLine(Struct, tag=True):
    """A line for the log."""

    module: str
    level: str
    text: str


class ProviderState(Struct):
    """What there is to say about a provider. usable: somebody can log in with what is configured here."""

    kind: str
    name: str
    usable: bool
    text: str


class States(Struct, tag=True):
    """Of all providers that have files or URLs, when something has changed."""

    states: list[ProviderState]


class UsersRead(Struct, tag=True):
    """A file of users has been read, for the first time or again."""

    file: str


class Missing(Struct, tag=True):
    """Of users that `Confirm` named, those that their file does not have."""

    file: str
    users: list[str]


Answer = Offer | Challenge | Accepted | Refused
Report = Configured | Answer | LogLine | States | UsersRead | Missing

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_reports: Final[msgspec.msgpack.Decoder[Report]] = msgspec.msgpack.Decoder(Report)


def encode(message: Request | Report) -> bytes:
    """Raises MessageError."""
    octets = _encoder.encode(message)
    if len(octets) > MAX_MESSAGE:
        raise MessageError(f"{type(message).__name__} has {len(octets)} octets, and at most {MAX_MESSAGE} are allowed")
    return _LENGTH.pack(len(octets)) + octets


def decode_request(octets: bytes) -> Request:
    """At the process. Raises MessageError."""
    try:
        return _requests.decode(octets)
    except msgspec.DecodeError as error:
        raise MessageError(f"request: {error}") from None


def decode_report(octets: bytes) -> Report:
    """At the supervisor. Raises MessageError."""
    try:
        return _reports.decode(octets)
    except msgspec.DecodeError as error:
        raise MessageError(f"report: {error}") from None


class Reader:
    """Octets to whole messages, still encoded. Owner: one end of the socket pair."""

    def __init__(self) -> None:
        self._octets = bytearray()

    def feed(self, octets: bytes) -> list[bytes]:
        """The messages that are whole now. Raises MessageError."""
        self._octets += octets
        found = []
        while len(self._octets) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._octets)
            if size > MAX_MESSAGE:
                raise MessageError(f"a message of {size} octets")
            end = _LENGTH.size + size
            if len(self._octets) < end:
                break
            found.append(bytes(self._octets[_LENGTH.size : end]))
            del self._octets[:end]
        return found
