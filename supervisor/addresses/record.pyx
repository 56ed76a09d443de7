"""Address record: treatment of messages to one address, and the consumers and producers that use it.

Compiled with the table, because each attach and each end of a link changes a record.
"""
cimport cython

from sluice.router.addressing.settings import NETWORK
from sluice.router.control.ops import AddressAttributes, AddressOp, ConsumerOp, RemoteOp
from sluice.supervisor.addresses.consumer_edge import NOT_ON_EDGE


@cython.final
cdef class AddressRecord:
    """Address with its treatment, consumers and producers. Owner: the table."""

    def __init__(self, int number, str record_key not None, str treatment not None, priority, str overflow not None):
        self.id = number
        self.key = record_key
        self.treatment = treatment
        self.priority = priority
        self.overflow = overflow
        self.scope = NETWORK
        self.taps = ()

    def unused(self):
        """True if no consumer, producer, holder or other router uses the address."""
        return not self.consumers and not self.producers and not self.holders and not self.remotes

    @property
    def is_suspended_alone(self):
        """True if all that gets messages of the address is a suspended consumer: no other router, no fallback."""
        fallback = self.fallback
        return (
            self.suspended is not None
            and len(self.consumers or ()) == 1
            and not self.remotes
            and (fallback is None or not (fallback.consumers or fallback.remotes))
        )

    def beyond(self, conn):
        """True if there are destinations other than those on edge connection `conn`, here or at other routers."""
        if self.remotes or self.exchange is not None:
            return True
        return self.has_other_local_consumers(conn)

    def has_other_local_consumers(self, conn):
        """True if there are local consumers other than those on edge connection `conn`."""
        consumers = 0 if self.consumers is None else len(self.consumers)
        if self.edges is None:
            return consumers > 0
        return consumers > len(self.edges) or consumers > sum(each.edge == conn for each in self.edges.values())

    @property
    def consumers_at_peers(self):
        """Number of consumers at other edge routers that this router is connected to."""
        return 0 if self.edges is None else sum(each.peer != "" for each in self.edges.values())

    @property
    def local(self):
        """True if the address has local consumers or an exchange; in-process users do not count."""
        return bool(self.consumers) or self.exchange is not None

    cpdef object op(self):
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

    def consumer_ops(self):
        """Yield the ops that announce the local consumers, in order of arrival."""
        cdef int64_t consumer
        for consumer, capacity in (self.consumers or {}).items():
            slot = consumer >> GENERATION_BITS & SLOT_MASK
            way = NOT_ON_EDGE if self.edges is None else self.edges.get(consumer, NOT_ON_EDGE)
            yield ConsumerOp(
                self.id,
                consumer >> WORKER_SHIFT,
                slot,
                consumer & GENERATION_MASK,
                capacity,
                *way,
                suspended=consumer == self.suspended,
            )

    def remote_ops(self):
        """Yield the ops that announce the other routers with destinations."""
        for index, counters in (self.remotes or {}).items():
            yield RemoteOp(self.id, index, counters)


def worker_of(int64_t consumer):
    """Return the index of the worker that has the consumer with number `consumer`."""
    return consumer >> WORKER_SHIFT


def consumer_number(int64_t worker, int64_t slot, int64_t generation):
    """Return the consumer number for a link slot in one generation."""
    return number_of(worker, slot, generation)
