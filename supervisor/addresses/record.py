"""Address record: treatment of messages to one address, and the consumers and producers that use it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from sluice.router.addressing.settings import NETWORK
from sluice.router.control.ops import AddressAttributes, AddressOp, ConsumerOp, RemoteOp

# Layout of a consumer number, the key of `AddressRecord.consumers`: worker, link slot, generation of the slot.
_SLOT_BITS: Final = 20
_GENERATION_BITS: Final = 32
_WORKER_SHIFT: Final = _SLOT_BITS + _GENERATION_BITS
_SLOT_MASK: Final = (1 << _SLOT_BITS) - 1
_GENERATION_MASK: Final = (1 << _GENERATION_BITS) - 1


class ConsumerEdge(NamedTuple):
    """Edge connection that a consumer's link is on."""

    edge: int = 0  # number of the edge connection in the workers' tables; 0: the consumer is on none
    cost: int = 0  # cost of the connection, at an edge router
    peer: str = ""  # mark of the edge router at the other end, if this router is an edge router, too


NOT_ON_EDGE: Final = ConsumerEdge()  # for consumers that are on no edge connection


class AddressRecord(Struct, eq=False):
    """Address with its treatment, consumers and producers. Owner: the table."""

    id: int  # number of the counter slot
    key: str
    treatment: str
    priority: int | None
    overflow: str
    inproc: bool = False
    rejects: bool = False  # True: messages to this in-process address are rejected (a test endpoint of option -T)
    scope: str = NETWORK  # scope of the address, at an edge router
    fixed: bool = False  # True: address settings do not apply
    hint: str | None = None  # treatment that another router announced; a matching setting overrides it
    exchange: int | None = None
    taps: tuple[int, ...] = ()  # numbers of the taps that copy its messages
    fallback: "AddressRecord | None" = None  # of a primary instance: its fallback instance
    primary: "AddressRecord | None" = None  # of a fallback instance: its primary instance
    consumers: dict[int, int] | None = None  # link capacity by consumer number, in order of arrival
    edges: dict[int, ConsumerEdge] | None = None  # edge connection by consumer number; absent: on none
    suspended: int | None = None  # number of the consumer whose peer is lost and awaited; the only consumer
    remotes: dict[int, int] | None = None  # counter slot by index of each router with destinations
    producers: int = 0  # number of producer links
    edge_producers: int = 0  # number of producer links on edge connections; `producers` includes them
    holders: int = 0  # number of configuration objects and in-process users that keep the record
    epoch: int = 0  # epoch that announced the present state of the record
    users_epoch: int = 0  # epoch that announced the last change of consumers, local or remote

    __repr__ = object.__repr__  # the two instances of an address refer to each other

    def unused(self) -> bool:
        """True if no consumer, producer, holder or other router uses the address."""
        return not self.consumers and not self.producers and not self.holders and not self.remotes

    @property
    def is_suspended_alone(self) -> bool:
        """True if all that gets messages of the address is a suspended consumer: no other router, no fallback."""
        fallback = self.fallback
        return (
            self.suspended is not None
            and len(self.consumers or ()) == 1
            and not self.remotes
            and (fallback is None or not (fallback.consumers or fallback.remotes))
        )

    def beyond(self, conn: int) -> bool:
        """True if there are destinations other than those on edge connection `conn`, here or at other routers."""
        if self.remotes or self.exchange is not None:
            return True
        return self.has_other_local_consumers(conn)

    def has_other_local_consumers(self, conn: int) -> bool:
        """True if there are local consumers other than those on edge connection `conn`."""
        consumers = 0 if self.consumers is None else len(self.consumers)
        if self.edges is None:
            return consumers > 0
        return consumers > len(self.edges) or consumers > sum(each.edge == conn for each in self.edges.values())

    @property
    def consumers_at_peers(self) -> int:
        """Number of consumers at other edge routers that this router is connected to."""
        return 0 if self.edges is None else sum(each.peer != "" for each in self.edges.values())

    @property
    def local(self) -> bool:
        """True if the address has local consumers or an exchange; in-process users do not count."""
        return bool(self.consumers) or self.exchange is not None

    def op(self) -> AddressOp:
        """Return the op that announces this record."""
        attributes = AddressAttributes(
            treatment=self.treatment,
            priority=self.priority,
            fallback=None if self.fallback is None else self.fallback.id,
            overflow=self.overflow,
            inproc=self.inproc,
            exchange=self.exchange,
            rejects=self.rejects,
            confined=self.scope != NETWORK,
            taps=self.taps,
        )
        return AddressOp(self.id, self.key, attributes)

    def consumer_ops(self) -> Iterator[ConsumerOp]:
        """Yield the ops that announce the local consumers, in order of arrival."""
        for consumer, capacity in (self.consumers or {}).items():
            slot = consumer >> _GENERATION_BITS & _SLOT_MASK
            way = NOT_ON_EDGE if self.edges is None else self.edges.get(consumer, NOT_ON_EDGE)
            yield ConsumerOp(
                self.id,
                consumer >> _WORKER_SHIFT,
                slot,
                consumer & _GENERATION_MASK,
                capacity,
                *way,
                suspended=consumer == self.suspended,
            )

    def remote_ops(self) -> Iterator[RemoteOp]:
        """Yield the ops that announce the other routers with destinations."""
        for index, counters in (self.remotes or {}).items():
            yield RemoteOp(self.id, index, counters)


def worker_of(consumer: int) -> int:
    """Return the index of the worker that has the consumer with number `consumer`."""
    return consumer >> _WORKER_SHIFT


def consumer_number(worker: int, slot: int, generation: int) -> int:
    """Return the consumer number for a link slot in one generation."""
    return worker << _WORKER_SHIFT | slot << _GENERATION_BITS | generation
