"""Messages between the supervisor and the authentication process, and their encoding.

Messages are MessagePack. They contain passwords and tokens, so they travel over an unnamed socket pair, and no message
shows them in its repr.
"""

from typing import Final

import msgspec
from msgspec import Struct

from sluice.supervisor.children.framing import MessageError

MAX_MESSAGE: Final = 1 << 20  # maximum octets of a message; a SASL response has at most 64 KiB

# -- supervisor to process ----------------------------------------------------------------------------------------


class UsersFile(Struct, frozen=True, tag=True):
    """Configuration of a `saslUsers` entity."""

    name: str
    path: str
    prefix: str = ""  # prefix of the names of its users


class TokenIssuer(Struct, frozen=True, tag=True, kw_only=True):
    """Configuration of a `tokenIssuer` entity. Its keys come from `jwks_file` or `jwks_url`."""

    name: str
    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    jwks_file: str | None = None
    jwks_url: str | None = None
    ca_file: str | None = None  # trusted CAs for the URL; None: those of the system
    refresh_seconds: int = 300
    leeway_seconds: int = 30
    user_claim: str = "sub"
    group_claim: str | None = None
    user_prefix: str = ""


class ServiceTls(Struct, frozen=True, kw_only=True):
    """Settings of an `sslProfile` for a TLS client. fault: reason for which no connection may be opened with it."""

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
    """Configuration of an `authServicePlugin` entity."""

    name: str
    host: str
    port: int
    realm: str | None = None
    tls: ServiceTls | None = None

    @property
    def place(self) -> str:
        """Host and port of the service for the log."""
        return f"{self.host}:{self.port}"


class LibrarySettings(Struct, frozen=True, kw_only=True):
    """Configuration of libsasl2: name and directory of its configuration file."""

    name: str
    folder: str | None = None


class Configure(Struct, tag=True, kw_only=True):
    """Complete configuration of the process; answered with `Configured`."""

    serial: int
    users: list[UsersFile] = []
    issuers: list[TokenIssuer] = []
    services: list[Service] = []
    library: LibrarySettings | None = None


class ExchangeContext(Struct, kw_only=True):
    """Facts about the connection and the listener of an exchange."""

    connection: int  # number of the connection in the log
    host: str  # the peer's address, without port
    users: str | None = None  # name of a UsersFile
    issuers: list[str] = []  # names of TokenIssuers
    service: str | None = None  # name of a Service
    library: bool = False
    mechanisms: list[str] | None = None  # mechanisms that may be offered; None: all
    anonymous: bool = True  # True: ANONYMOUS may be offered; false with `authenticatePeer: yes`
    external: str | None = None  # user by the peer's certificate; None: no certificate
    encryption: int = 0  # strength (ssf) of TLS; 0: no TLS
    binding: bytes | None = None  # channel binding `tls-exporter` of the connection; None: no binding

    def __repr__(self) -> str:
        return f"Context([C{self.connection}], {self.host!r})"


class BeginExchange(Struct, tag=True):
    """Begin of an exchange; answered with `LoginOffer` or `LoginRefused`."""

    exchange: int
    context: ExchangeContext


class Init(Struct, tag=True):
    """Client's choice of a mechanism (sasl-init); answered with `LoginChallenge`, `LoginAccepted` or `LoginRefused`."""

    exchange: int
    mechanism: str
    response: bytes
    hostname: str | None = None

    def __repr__(self) -> str:
        return f"Init({self.exchange}, {self.mechanism!r})"


class Respond(Struct, tag=True):
    """Client's response to a challenge; answered like `Init`."""

    exchange: int
    response: bytes

    def __repr__(self) -> str:
        return f"Respond({self.exchange})"


class CancelExchange(Struct, tag=True):
    """End of an exchange whose client has left; there is no answer."""

    exchange: int


class CheckTokenRequest(Struct, tag=True):
    """Token with which a client renews its login, outside SASL; answered with `LoginAccepted` or `LoginRefused`."""

    exchange: int
    context: ExchangeContext
    token: str

    def __repr__(self) -> str:
        return f"Check({self.exchange})"


class ConfirmUsers(Struct, tag=True):
    """Query whether a file still has all users of present connections; answered with `UsersMissing` if not."""

    file: str  # name of a UsersFile
    users: list[str]  # names as in the file, without prefix


Request = Configure | BeginExchange | Init | Respond | CancelExchange | CheckTokenRequest | ConfirmUsers


# -- process to supervisor ----------------------------------------------------------------------------------------


class Configured(Struct, tag=True):
    """Report that a configuration is in use. problems: type of entity, name, and text for each invalid provider."""

    serial: int
    problems: list[tuple[str, str, str]]


class LoginOffer(Struct, tag=True):
    """Mechanisms that the client may choose from."""

    exchange: int
    mechanisms: list[str]


class LoginChallenge(Struct, tag=True):
    """Challenge for the client; the exchange continues."""

    exchange: int
    octets: bytes

    def __repr__(self) -> str:
        return f"Challenge({self.exchange})"


class Facts(Struct, kw_only=True):
    """Facts about a user beside its name."""

    groups: list[str] = []  # groups by a claim of the token, for policy
    token: tuple[str, str] | None = None  # issuer of the token, and the user name in it
    account: tuple[str, str] | None = None  # name of the UsersFile, and the user name in it
    expires: float | None = None  # expiry of the token in seconds since the epoch
    # Addresses that an authentication service allows; None: the service does not restrict addresses.
    sources: list[str] | None = None
    targets: list[str] | None = None


class LoginAccepted(Struct, tag=True):
    """Success of an exchange: the client is `user`."""

    exchange: int
    user: str
    facts: Facts
    additional: bytes | None = None  # additional data of the sasl-outcome

    def __repr__(self) -> str:
        return f"Accepted({self.exchange}, {self.user!r}, {self.facts!r})"


class LoginRefused(Struct, tag=True):
    """Failure of an exchange. text: reason for the log; may be empty."""

    exchange: int
    text: str


class LogLine(Struct, tag=True):
    """Line for the log."""

    module: str
    level: str
    text: str


class ProviderState(Struct):
    """State of a provider. sound: an operator has nothing to repair. usable: logins are possible."""

    kind: str
    name: str
    usable: bool
    sound: bool
    text: str


class States(Struct, tag=True):
    """Report of the states of all providers with files or URLs, sent when one has changed."""

    states: list[ProviderState]


class UsersRead(Struct, tag=True):
    """Report that a users file was read, for the first time or again."""

    file: str


class UsersMissing(Struct, tag=True):
    """Users named by `ConfirmUsers` that their file does not have."""

    file: str
    users: list[str]


LoginReply = LoginOffer | LoginChallenge | LoginAccepted | LoginRefused
Report = Configured | LoginReply | LogLine | States | UsersRead | UsersMissing

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_reports: Final[msgspec.msgpack.Decoder[Report]] = msgspec.msgpack.Decoder(Report)


def encode(message: Request | Report) -> bytes:
    """Encode a message. Raises MessageError."""
    octets = _encoder.encode(message)
    if len(octets) > MAX_MESSAGE:
        raise MessageError(f"{type(message).__name__} has {len(octets)} octets, and at most {MAX_MESSAGE} are allowed")
    return octets


def decode_request(octets: bytes) -> Request:
    """Decode a message to the process. Raises MessageError."""
    try:
        return _requests.decode(octets)
    except msgspec.DecodeError as error:
        raise MessageError(f"a request from the supervisor is malformed: {error}") from None


def decode_report(octets: bytes) -> Report:
    """Decode a message to the supervisor. Raises MessageError."""
    try:
        return _reports.decode(octets)
    except msgspec.DecodeError as error:
        raise MessageError(f"a report from the authentication process is malformed: {error}") from None
