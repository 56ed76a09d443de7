"""Links between routers (inter-router.md 2.6 to 2.9): data links by priority, and streaming links."""
from libc.stdint cimport uint32_t

from router.delivery.delivery cimport InDelivery
from router.links.producer_link cimport ProducerLink
from router.message.content cimport Content
from router.links.consumer_link cimport ConsumerLink

cdef enum:
    POOL_STEP = 10             # idle streaming links that are closed at a time

cdef class RouterIn(ProducerLink):
    pass

cdef class RouterOut(ConsumerLink):
    cdef public StreamPool pool            # of its connection: where streams go; None: they go here
    cdef StreamPool home                   # of a streaming link: where it is when it is idle
    cdef bint busy                         # … and is not there
    cdef bint checks                       # the peer is one of ours and knows of Content.checkpoint
    cdef int send(self, InDelivery* d, Content* c, int overflow) except -1
    cdef int rest(self) except -1

# Owner: what handles its connection.
cdef class StreamPool:
    cdef list idle                         # RouterOut
    cdef object make                       # () -> RouterOut that is being attached, or None
    cdef uint32_t most                     # idle links: more are closed
    cdef readonly bint closed
    cdef RouterOut take(self)
    cdef int put(self, RouterOut link) except -1
