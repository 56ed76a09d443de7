"""Origin of a producer's messages: facts about its connection that hold for each of them."""
from libc.stdint cimport uint32_t

from sluice.router.policy.messages cimport MessageRules

# Origin of messages. Owner: the handler of a link.
cdef class ProducerOrigin:
    cdef bint honour                       # router annotations of messages are used (the listener does not strip them)
    cdef str tenant                        # prefix of addresses; None: no tenant
    cdef bint container                    # the producer is a route container
    cdef MessageRules rules                # of the connection; None: nothing in a message is restricted
    cdef uint32_t edge                     # number of the edge connection; 0: none
    cdef bytes mark                        # on an uplink: own mark in x-opt-sluice.served, encoded; else None
    cdef bint checks                       # the peer tracks settled messages, as this router does (decision 0013)
