"""Remembered addresses: the addresses of an anonymous link's recent messages, each with the plan for its messages."""
from libc.stdint cimport uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.plan cimport Plan
from sluice.router.table.table cimport ForwardingAddress
from sluice.router.policy.names cimport NameRules

cdef enum:
    REMEMBERED_ADDRESSES = 4   # most addresses remembered for one link
    # Every eighth message to an address that is not remembered replaces a remembered one.
    REPLACE_ADDRESS_EVERY = 8

# Result of the look-up of a text. Owner: the handler of the link.
cdef class RememberedAddress:
    cdef bytes text                        # address as the messages have it
    cdef ForwardingAddress address         # result of its look-up
    cdef object key                        # Table.lookups_key at that time: the result holds while it is the same
    cdef NameRules targets                 # rules that allowed the address; None: there are none
    cdef Plan plan

# Return the RememberedAddress of a text, and move it to the front of the list; NULL: not remembered. addresses: a list,
# or None. The list and the result are borrowed.
cdef void* find_address(void* addresses, const Slice* text) noexcept
# Remember an address, which must not be in the list; the one not used for longest makes room. Returns the list.
cdef list remember_address(list addresses, RememberedAddress one)
