"""Ops: changes of the workers' tables, the elements of deltas and snapshots. See docs/internals/control-protocol.md.

On the wire an op is a list that begins with the op's name. Decoding checks the type of every field.
"""

from typing import Any, Literal

from msgspec import Struct

from sluice.router.addressing.settings import DEFAULT_OVERFLOW, AddressSetting

Slot = tuple[int, int]  # slot of a link, and the slot's generation


class OpBase(Struct, array_like=True, gc=False):
    """Base class of all ops."""


# -- settings of the workers --------------------------------------------------------------------------------------


class ProfileFailoverServer(Struct, gc=False, frozen=True):
    """Server to which clients may fail over (routing-semantics.md C-8)."""

    scheme: str | None
    host: str
    port: str


class Profile(Struct, rename="camel", kw_only=True, gc=False, frozen=True):
    """Attributes of a listener or connector, for its connections. Intervals in seconds, sizes in octets."""

    host: str
    port: str
    role: str
    cost: int
    sasl_mechanisms: list[str] | None  # allowed mechanisms; None: all
    asks_for_sasl: bool = False  # the supervisor chooses the offered mechanisms and authenticates clients
    binds_logins: bool = False  # mechanisms with channel binding are offered, too
    max_frame_size: int
    max_sessions: int
    max_session_frames: int | None
    idle_timeout_seconds: int
    strip_annotations_in: bool
    strip_annotations_out: bool
    link_capacity: int
    bundle_capacity: int  # capacity of links between two Sluice routers
    capacity_adapts: bool  # without linkCapacity: links begin with these capacities
    max_buffered_megabytes: int
    open_properties: dict[str, Any]
    message_logging_components: str
    initial_handshake_timeout_seconds: int
    failover_servers: list[ProfileFailoverServer]
    authenticate_peer: bool = False  # clients have to authenticate
    require_encryption: bool = False  # requireSsl or requireEncryption
    tls: str | None = None  # name of the credentials; None: without TLS
    verify_peer: bool = False  # listener: clients have to present a certificate
    certificate_optional: bool = False  # with `verify_peer`: only if they have one
    verify_hostname: bool = True  # connector: the server's certificate must match its host name
    websockets: bool = False  # only AMQP over WebSocket is accepted
    websocket_path: str = "/"  # connector: path of the request
    allowed_origins: list[str] = []  # origins of web pages that may use a listener, besides its own


class ProfileOp(OpBase, tag="profile"):
    """New profile for hand-overs. Profiles are immutable: a changed listener gets a profile with another key."""

    key: str
    profile: Profile


class ProfileGone(OpBase, tag="-profile"):
    """Removal of a profile whose last connection has ended."""

    key: str


class Credentials(Struct, kw_only=True, gc=False, frozen=True):
    """Credentials of TLS connections: contents of an sslProfile's files (security.md T-1). Contains secrets."""

    certificates: str | None = None  # PEM: the router's certificate, then those of intermediate authorities
    key: str | None = None  # PEM
    password: str | None = None  # password of the key
    trusted: str | None = None  # PEM: certificates of authorities, and their revocation lists
    revoked: str | None = None  # PEM: lists from URLs; if set, each authority must have a list
    closes_revoked: bool = False  # close connections whose certificate is in a new list
    ciphers: str | None = None  # OpenSSL's list for TLS 1.2 and older; None: its default
    protocols: list[str] = []  # such as TLSv1.2; empty: TLSv1.2 and TLSv1.3
    ticket_key: bytes = b""  # 80 octets to encrypt session tickets, equal in all workers; empty: no tickets

    def __repr__(self) -> str:
        return "Credentials(…)"


class CredentialsOp(OpBase, tag="tls"):
    """New or changed credentials, used by all connections from now on. None: the credentials are invalid."""

    name: str
    credentials: Credentials | None


class CredentialsGone(OpBase, tag="-tls"):
    """Removal of credentials that no profile uses."""

    name: str


class LogOp(OpBase, tag="log"):
    """Log settings of the workers. If `opened` differs from the last op's, the workers reopen their log files."""

    settings: dict[str, Any]  # LogSettings.to_dict()
    opened: int  # how often the log files were ordered to be reopened


class TraceOp(OpBase, tag="trace"):
    """Frame logging of one connection: always or never, whatever the level of module PROTOCOL."""

    conn: int
    on: bool


class SamplingOp(OpBase, tag="sampling"):
    """Rules of the deliveries that have spans; they replace the rules before. Without rules, none has."""

    rules: list[tuple[str, float]]  # pattern of addresses, and ratio of deliveries from 0 to 1
    per_second: int  # most spans of a worker
    parents: bool  # deliveries to these addresses that their producer has sampled have spans, too


class WorkerOp(OpBase, tag="worker"):
    """Start or exit of a worker."""

    worker: int
    generation: int
    state: Literal["up", "down"]


class UnawaitedOp(OpBase, tag="later"):
    """Mark of an epoch for whose acknowledgement nobody waits, so it need not wake the supervisor."""


# -- addresses ----------------------------------------------------------------------------------------------------


class SettingsOp(OpBase, tag="settings"):
    """All address settings by canonical pattern, and the default distribution. Part of a snapshot."""

    entries: list[tuple[str, AddressSetting]]
    default: str


class SettingOp(OpBase, tag="setting"):
    """New or changed setting of one pattern; None: the setting is removed."""

    pattern: str
    setting: AddressSetting | None


class DefaultOp(OpBase, tag="default"):
    """Distribution of addresses without a matching pattern."""

    distribution: str


class AddressAttributes(Struct, omit_defaults=True, gc=False, frozen=True):
    """Attributes that determine how an address is treated."""

    treatment: str
    priority: int | None = None
    fallback: int | None = None  # id of the fallback instance
    overflow: str = DEFAULT_OVERFLOW
    inproc: bool = False
    exchange: int | None = None
    rejects: bool = False  # messages to the router itself are rejected (option -T)
    confined: bool = False  # edge router: messages never leave through its uplink
    taps: tuple[int, ...] = ()  # ids of the taps that copy its messages


class AddressOp(OpBase, tag="addr"):
    """New or replaced address record. `id`: small integer, index of its counters. `key`: such as `M0orders`."""

    id: int
    key: str
    attributes: AddressAttributes


class AddressGone(OpBase, tag="-addr"):
    """Removal of an address record; a later epoch may reuse the id."""

    id: int


class ConsumerOp(OpBase, tag="+c"):
    """New consumer of an address: an outgoing link, by its slot. Consumers are listed in the order of their ops."""

    address: int
    worker: int
    slot: int
    generation: int
    capacity: int
    edge: int = 0  # number of its edge connection; messages never return to the connection they came from; 0: none
    cost: int = 0  # cost of that connection, at an edge router
    peer: str = ""  # mark of the edge router at the other end, if it is one
    suspended: bool = False  # True: a change of a consumer that is known, whose peer is lost and is awaited


class ConsumerGone(OpBase, tag="-c"):
    """Removal of a consumer."""

    address: int
    worker: int
    slot: int
    generation: int


class ExchangeAttributes(Struct, rename="camel", omit_defaults=True, gc=False, frozen=True):
    """Attributes of an exchange, without its bindings."""

    address: int  # id of an address; so are `counters` and `alternate`
    match: str  # "amqp" or "mqtt"
    counters: int
    alternate: int | None = None
    alternate_phase: int = 0


class ExchangeOp(OpBase, tag="exchange"):
    """New exchange of an address."""

    id: int
    attributes: ExchangeAttributes


class ExchangeGone(OpBase, tag="-exchange"):
    """Removal of an exchange."""

    id: int


class BindingOp(OpBase, tag="bind"):
    """New binding of an exchange."""

    exchange: int
    id: int
    key: str
    next_hop: int  # id of an address
    counters: int


class BindingGone(OpBase, tag="-bind"):
    """Removal of a binding."""

    exchange: int
    id: int


class TapOp(OpBase, tag="tap"):
    """New tap. A tap never changes, and its id is never used again."""

    id: int
    key: str  # of the address that gets the copies
    pattern: str
    required: bool
    counters: int  # number of its counter slot


class TapGone(OpBase, tag="-tap"):
    """Removal of a tap. Address records may name it until later epochs."""

    id: int


# -- the network --------------------------------------------------------------------------------------------------


class NextHopOp(OpBase, tag="hop"):
    """New or changed next hop: inter-router connection `conn` with its outgoing data links by priority."""

    conn: int
    worker: int
    links: list[Slot | None]  # None: use the link of the next lower priority
    neighbour: int | None = None  # index of the router at its other end, if known


class NextHopGone(OpBase, tag="-hop"):
    """Removal of a next hop."""

    conn: int


class RouterOp(OpBase, tag="router"):
    """New or changed remote router: its next-hop connections, its cost, and its valid origins as hexadecimal number."""

    index: int
    id: str
    conns: list[int]
    cost: int
    origins: str
    awaited: bool = False  # the router is unreachable, and messages wait on the way that was the last one


class RouterGone(OpBase, tag="-router"):
    """Removal of a remote router."""

    index: int


class RadiusOp(OpBase, tag="radius"):
    """Number of hops to the farthest router."""

    hops: int


class RemoteOp(OpBase, tag="+r"):
    """Announcement of an address by a remote router. `counters`: id of the counter of deliveries unsettled there."""

    address: int
    index: int
    counters: int


class RemoteGone(OpBase, tag="-r"):
    """Withdrawal of a remote router's announcement of an address."""

    address: int
    index: int


WorkerStateOp = (
    ProfileOp | ProfileGone | CredentialsOp | CredentialsGone | LogOp | TraceOp | SamplingOp | WorkerOp | UnawaitedOp
)
TableOp = (
    SettingsOp
    | SettingOp
    | DefaultOp
    | AddressOp
    | AddressGone
    | ConsumerOp
    | ConsumerGone
    | ExchangeOp
    | ExchangeGone
    | BindingOp
    | BindingGone
    | TapOp
    | TapGone
    | NextHopOp
    | NextHopGone
    | RouterOp
    | RouterGone
    | RadiusOp
    | RemoteOp
    | RemoteGone
)
Op = WorkerStateOp | TableOp
