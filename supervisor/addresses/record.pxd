"""Address record: treatment of messages to one address, and the consumers and producers that use it."""
from libc.stdint cimport int64_t

# Layout of a consumer number, the key of `AddressRecord.consumers`: worker, link slot, generation of the slot.
cdef enum:
    SLOT_BITS = 20
    GENERATION_BITS = 32
    WORKER_SHIFT = 52                  # SLOT_BITS + GENERATION_BITS
    SLOT_MASK = 0xFFFFF
    GENERATION_MASK = 0xFFFFFFFF


cdef class AddressRecord:
    cdef public int id                 # number of the counter slot
    cdef public str key
    cdef public str treatment
    cdef public object priority
    cdef public str overflow
    cdef public bint inproc
    cdef public bint rejects           # True: messages to this in-process address are rejected (endpoint of option -T)
    cdef public str scope              # scope of the address, at an edge router
    cdef public bint fixed             # True: address settings do not apply
    cdef public str hint               # treatment that another router announced; a matching setting overrides it
    cdef public object exchange
    cdef public tuple taps             # numbers of the taps that copy its messages
    cdef public AddressRecord fallback  # of a primary instance: its fallback instance
    cdef public AddressRecord primary  # of a fallback instance: its primary instance
    cdef public dict consumers         # link capacity by consumer number, in order of arrival
    cdef public dict edges             # edge connection by consumer number; absent: on none
    cdef public object suspended       # number of the consumer whose peer is lost and awaited; the only consumer
    cdef public dict remotes           # counter slot by index of each router with destinations
    cdef public long producers         # number of producer links
    cdef public long edge_producers    # number of producer links on edge connections; `producers` includes them
    cdef public long holders           # number of configuration objects and in-process users that keep the record
    cdef public int64_t epoch          # epoch that announced the present state of the record
    cdef public int64_t users_epoch    # epoch that announced the last change of consumers, local or remote

    cpdef object op(self)


cdef inline int64_t number_of(int64_t worker, int64_t slot, int64_t generation) noexcept:
    """Return the consumer number for a link slot in one generation."""
    return worker << WORKER_SHIFT | slot << GENERATION_BITS | generation
