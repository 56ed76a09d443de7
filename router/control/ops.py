"""Ops: the elements of deltas and snapshots, changes of the workers' tables. See docs/internals/control-protocol.md.

On the wire an op is a list that begins with its name. Decoding checks the type of every field.
"""

from typing import Any, Literal

from msgspec import Struct

from router.addressing.settings import DEFAULT_OVERFLOW, Setting

Slot = tuple[int, int]  # of a link, with its generation


class OpBase(Struct, array_like=True, gc=False):
    """Base of all ops."""


# -- what a worker itself goes by ---------------------------------------------------------------------------------


class FailoverServer(Struct, gc=False, frozen=True):
    """A server that clients may fail over to (routing-semantics.md C-8)."""

    scheme: str | None
    host: str
    port: str


class Profile(Struct, rename="camel", kw_only=True, gc=False, frozen=True):
    """Attributes of a listener or connector, for its connections. Intervals in seconds, sizes in octets."""

    host: str
    port: str
    role: str
    cost: int
    sasl_mechanisms: list[str] | None  # that may be used; None: all
    asks_for_sasl: bool = False  # the supervisor says what is offered, and who clients are
    binds_logins: bool = False  # mechanisms with channel binding among them
    max_frame_size: int
    max_sessions: int
    max_session_frames: int | None
    idle_timeout_seconds: int
    strip_annotations_in: bool
    strip_annotations_out: bool
    link_capacity: int
    bundle_capacity: int  # of links between two Sluice routers
    max_buffered_megabytes: int
    open_properties: dict[str, Any]
    message_logging_components: str
    initial_handshake_timeout_seconds: int
    failover_servers: list[FailoverServer]
    authenticate_peer: bool = False  # clients have to log in
    require_encryption: bool = False  # requireSsl or requireEncryption
    tls: str | None = None  # name of the credentials; None: without TLS
    verify_peer: bool = False  # of a listener: clients have to present a certificate
    verify_hostname: bool = True  # of a connector
    websockets: bool = False  # AMQP over WebSocket, and nothing else
    websocket_path: str = "/"  # of a connector
    allowed_origins: list[str] = []  # of web pages that may use a listener, beside its own


class ProfileOp(OpBase, tag="profile"):
    """A profile that hand-overs may name. It never changes: a listener that changes gets one with another key."""

    key: str
    profile: Profile


class ProfileGone(OpBase, tag="-profile"):
    """Its last connection has ended."""

    key: str


class Credentials(Struct, kw_only=True, gc=False, frozen=True):
    """What TLS connections prove and trust: the contents of an sslProfile's files (security.md T-1). Holds secrets."""

    certificates: str | None = None  # PEM: our certificate, then those of intermediate authorities
    key: str | None = None  # PEM
    password: str | None = None  # of the key
    trusted: str | None = None  # PEM: certificates of authorities, and their revocation lists
    revoked: str | None = None  # PEM: lists from URLs, which each authority has to have; None: they are not demanded
    closes_revoked: bool = False  # connections whose certificate a new list names
    ciphers: str | None = None  # OpenSSL's list for TLS 1.2 and older; None: its default
    protocols: list[str] = []  # as TLSv1.2; none: TLSv1.2 and TLSv1.3
    ticket_key: bytes = b""  # 80 octets that encrypt session tickets: the same in all workers; none: no tickets

    def __repr__(self) -> str:
        return "Credentials(…)"


class CredentialsOp(OpBase, tag="tls"):
    """Credentials are new, or have changed: connections from now on use these. None: they cannot be used."""

    name: str
    credentials: Credentials | None


class CredentialsGone(OpBase, tag="-tls"):
    """No profile names these credentials any more."""

    name: str


class LogOp(OpBase, tag="log"):
    """Settings of the log. Another `opened` than before: open the log files anew."""

    settings: dict[str, Any]  # LogSettings.to_dict()
    opened: int


class TraceOp(OpBase, tag="trace"):
    """Write the frames of this connection to the log, or never, whatever the level of module PROTOCOL."""

    conn: int
    on: bool


class WorkerOp(OpBase, tag="worker"):
    """A worker has begun, or died."""

    worker: int
    generation: int
    state: Literal["up", "down"]


class LaterOp(OpBase, tag="later"):
    """Nobody waits for the acknowledgement of this epoch: it need not wake the supervisor."""


# -- addresses ----------------------------------------------------------------------------------------------------


class SettingsOp(OpBase, tag="settings"):
    """All address settings, in a snapshot: by canonical pattern, and the default distribution."""

    entries: list[tuple[str, Setting]]
    default: str


class SettingOp(OpBase, tag="setting"):
    """The setting of one pattern is new or changed; None: it is gone."""

    pattern: str
    setting: Setting | None


class DefaultOp(OpBase, tag="default"):
    """The distribution of addresses that no pattern matches."""

    distribution: str


class AddressAttributes(Struct, omit_defaults=True, gc=False, frozen=True):
    """How an address is treated."""

    treatment: str
    priority: int | None = None
    fallback: int | None = None  # id of the fallback instance
    overflow: str = DEFAULT_OVERFLOW
    inproc: bool = False
    exchange: int | None = None
    rejects: bool = False  # messages for the router itself are rejected (option -T)
    confined: bool = False  # at an edge router: messages never leave by its uplink


class AddressOp(OpBase, tag="addr"):
    """Create or replace an address record. `id`: small integer, index of its counters. `key`: as `M0orders`."""

    id: int
    key: str
    attributes: AddressAttributes


class AddressGone(OpBase, tag="-addr"):
    """Forget an address record; the id may be used again by a later epoch."""

    id: int


class ConsumerOp(OpBase, tag="+c"):
    """A consumer of an address: an outgoing link, by its slot. Order of arrival is the order in the list."""

    address: int
    worker: int
    slot: int
    generation: int
    capacity: int
    edge: int = 0  # number of its edge connection: what came by that does not go back; 0: it is on none
    cost: int = 0  # of that, at an edge router
    peer: str = ""  # the mark of another edge router that it is at


class ConsumerGone(OpBase, tag="-c"):
    """A consumer is gone."""

    address: int
    worker: int
    slot: int
    generation: int


class ExchangeAttributes(Struct, rename="camel", omit_defaults=True, gc=False, frozen=True):
    """An exchange, without its bindings."""

    address: int  # ids of addresses
    match: str  # "amqp" or "mqtt"
    counters: int
    alternate: int | None = None
    alternate_phase: int = 0


class ExchangeOp(OpBase, tag="exchange"):
    """An exchange of an address is new."""

    id: int
    attributes: ExchangeAttributes


class ExchangeGone(OpBase, tag="-exchange"):
    """An exchange is gone."""

    id: int


class BindingOp(OpBase, tag="bind"):
    """A binding of an exchange."""

    exchange: int
    id: int
    key: str
    next_hop: int  # id of an address
    counters: int


class BindingGone(OpBase, tag="-bind"):
    """A binding is gone."""

    exchange: int
    id: int


# -- the network --------------------------------------------------------------------------------------------------


class NextHopOp(OpBase, tag="hop"):
    """A next hop: inter-router connection `conn` with its outgoing data links by priority."""

    conn: int
    worker: int
    links: list[Slot | None]  # None: use the next lower one that there is
    neighbour: int | None = None  # index of the router at its other end, where it is known


class NextHopGone(OpBase, tag="-hop"):
    """A next hop is gone."""

    conn: int


class RouterOp(OpBase, tag="router"):
    """Another router: its next-hop connections, its cost, and its valid origins as a hexadecimal number."""

    index: int
    id: str
    conns: list[int]
    cost: int
    origins: str


class RouterGone(OpBase, tag="-router"):
    """Forget another router."""

    index: int


class RadiusOp(OpBase, tag="radius"):
    """Hops to the farthest router."""

    hops: int


class RemoteOp(OpBase, tag="+r"):
    """Another router has announced an address. counters: id for what is unsettled there."""

    address: int
    index: int
    counters: int


class RemoteGone(OpBase, tag="-r"):
    """Another router does not announce an address any more."""

    address: int
    index: int


WorkerStateOp = ProfileOp | ProfileGone | CredentialsOp | CredentialsGone | LogOp | TraceOp | WorkerOp | LaterOp
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
    | NextHopOp
    | NextHopGone
    | RouterOp
    | RouterGone
    | RadiusOp
    | RemoteOp
    | RemoteGone
)
Op = WorkerStateOp | TableOp
