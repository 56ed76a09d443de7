"""An address record: how messages to the address are treated, and its users."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from router.addressing.settings import NETWORK
from router.control.ops import AddressAttributes, AddressOp, ConsumerOp, RemoteOp

# A consumer as one number, the key of a record's consumers: worker, link slot, generation of the slot.
_SLOT_BITS: Final = 20
_GENERATION_BITS: Final = 32
_WORKER_SHIFT: Final = _SLOT_BITS + _GENERATION_BITS
_SLOT_MASK: Final = (1 << _SLOT_BITS) - 1
_GENERATION_MASK: Final = (1 << _GENERATION_BITS) - 1


class Way(NamedTuple):
    """The edge connection that a consumer is on."""

    edge: int = 0  # its number, for the table; 0: it is on none
    cost: int = 0  # at an edge router
    peer: str = ""  # the mark of another edge router at its other end


HERE: Final = Way()  # on no edge connection


class Record:
    """An address: how it is treated and who uses it. Owner: the table."""

    __slots__ = (
        "consumers",
        "edge_producers",
        "edges",
        "epoch",
        "exchange",
        "fallback",
        "fixed",
        "hint",
        "holders",
        "id",
        "inproc",
        "key",
        "overflow",
        "primary",
        "priority",
        "producers",
        "rejects",
        "remotes",
        "scope",
        "treatment",
        "users_epoch",
    )

    def __init__(self, number: int, record_key: str, treatment: str, priority: int | None, overflow: str) -> None:
        self.id = number
        self.key = record_key
        self.treatment = treatment
        self.priority = priority
        self.overflow = overflow
        self.inproc = False
        self.rejects = False  # messages to the router itself: an endpoint for tests
        self.scope = NETWORK  # of an edge router
        self.fixed = False  # settings do not apply
        self.hint: str | None = None  # treatment that another router announced; a setting that matches overrides it
        self.exchange: int | None = None
        self.fallback: Record | None = None  # the fallback instance, of a primary one
        self.primary: Record | None = None  # the primary instance, of a fallback one
        self.consumers: dict[int, int] | None = None  # capacity by consumer, in order of arrival
        self.edges: dict[int, Way] | None = None  # the edge connection by consumer, of those on one
        self.remotes: dict[int, int] | None = None  # id of counters by index of a router that has destinations
        self.producers = 0  # links
        self.edge_producers = 0  # … of these on edge connections
        self.holders = 0  # configuration objects and in-process users
        self.epoch = 0  # that announced it as it is now
        self.users_epoch = 0  # that announced the last change of its consumers, here or at other routers

    def unused(self) -> bool:
        return not self.consumers and not self.producers and not self.holders and not self.remotes

    def beyond(self, conn: int) -> bool:
        """Whether there are destinations but those on this edge connection."""
        if self.remotes or self.exchange is not None:
            return True
        return self.on_others(conn)

    def on_others(self, conn: int) -> bool:
        """Whether there are consumers here but those on this edge connection."""
        consumers = 0 if self.consumers is None else len(self.consumers)
        if self.edges is None:
            return consumers > 0
        return consumers > len(self.edges) or consumers > sum(each.edge == conn for each in self.edges.values())

    @property
    def at_peers(self) -> int:
        """How many consumers are at other edge routers that this one is connected to."""
        return 0 if self.edges is None else sum(each.peer != "" for each in self.edges.values())

    @property
    def local(self) -> bool:
        """Whether the address has consumers here; in-process users do not count."""
        return bool(self.consumers) or self.exchange is not None

    def op(self) -> AddressOp:
        """The op that announces this record."""
        attributes = AddressAttributes(
            treatment=self.treatment,
            priority=self.priority,
            fallback=None if self.fallback is None else self.fallback.id,
            overflow=self.overflow,
            inproc=self.inproc,
            exchange=self.exchange,
            rejects=self.rejects,
            confined=self.scope != NETWORK,
        )
        return AddressOp(self.id, self.key, attributes)

    def consumer_ops(self) -> Iterator[ConsumerOp]:
        """The ops that announce its consumers, in order of arrival."""
        for consumer, capacity in (self.consumers or {}).items():
            slot = consumer >> _GENERATION_BITS & _SLOT_MASK
            way = HERE if self.edges is None else self.edges.get(consumer, HERE)
            yield ConsumerOp(self.id, consumer >> _WORKER_SHIFT, slot, consumer & _GENERATION_MASK, capacity, *way)

    def remote_ops(self) -> Iterator[RemoteOp]:
        """The ops that announce the routers that have destinations."""
        for index, counters in (self.remotes or {}).items():
            yield RemoteOp(self.id, index, counters)


def worker_of(consumer: int) -> int:
    """The worker of a consumer, by its number."""
    return consumer >> _WORKER_SHIFT


def consumer_number(worker: int, slot: int, generation: int) -> int:
    """A consumer as one number."""
    return worker << _WORKER_SHIFT | slot << _GENERATION_BITS | generation
