"""Links between routers (inter-router.md 2.6 to 2.9): data links by priority, and streaming links."""
from libc.stdint cimport uint32_t

from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.links.producer_link cimport ProducerLink
from sluice.router.message.content cimport Content
from sluice.router.links.consumer_link cimport ConsumerLink

cdef enum:
    POOL_STEP = 10             # idle streaming links that one `trim` closes, at most

# Link by which another router sends. Owner: its session.
cdef class RouterIn(ProducerLink):
    pass

# Link by which another router receives. Owner: its session.
cdef class RouterOut(ConsumerLink):
    cdef public StreamPool pool            # streaming links of its connection; None: streams leave by this link
    cdef StreamPool home                   # of a streaming link: pool that it returns to when idle
    cdef bint busy                         # of a streaming link: it is not in its pool
    cdef bint checks                       # the peer is a Sluice router that tracks deliveries (Content.checkpoint)
    cdef int send(self, InDelivery* d, Content* c, int overflow) except -1
    cdef int rest(self) except -1

# Idle streaming links of a connection. Owner: the handler of the connection.
cdef class StreamPool:
    cdef list idle                         # RouterOut
    cdef object make                       # () -> RouterOut whose attach is sent, or None
    cdef uint32_t most                     # idle links that `trim` leaves
    cdef readonly bint closed
    cdef RouterOut take(self)
    cdef int put(self, RouterOut link) except -1
