"""The links that a session carries: handles and names, attach and detach, and their end with it."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.channel cimport Channel
from router.amqp.connection cimport Connection
from router.amqp.endpoint cimport Endpoint
from router.amqp.object_table cimport ObjectTable

cdef enum:
    # Highest handle of a peer, announced in our begin. Routers are told none: begins between routers are those of 1.19.
    HANDLE_MAX = 65535

# Base of a session. Owner: its connection.
cdef class SessionLinks(Channel):
    cdef readonly Connection connection
    cdef readonly object handler           # SessionHandler, see session.pyx
    cdef Endpoint went_on                      # the link that was found to go on last
    cdef ObjectTable by_remote_handle
    cdef ObjectTable by_handle             # links by our handle
    cdef readonly uint32_t handle_max      # of the peer: the highest handle that a link of ours may have
    cdef uint32_t copies                   # names that free_name made of others
    cdef set names                         # (name, incoming) of links that are attached
    cdef uint32_t names_most               # most of them since the set was made: its memory follows this number
    cdef bint routers                      # both ends are routers
    cdef dict attaching                    # (name, incoming) -> Link that we attached and the peer has not answered
    cdef readonly bint ended
    cdef list losing                       # of an ended session: links that may not have ended yet, last first
    cdef readonly bint empty               # it has ended, and so have all of its links
    cdef uint32_t answers                  # links whose end the peer's `end` waits for
    cdef bint end_due
    cdef int attach(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int detach(self, const uint8_t* p, const uint8_t* end) except -1
    cdef Endpoint link_of(self, uint32_t handle)
    cdef bint any_goes_on(self) noexcept
    cdef bint any_unrouted(self) noexcept
    cdef int release(self, Endpoint link) except -1
    cdef int link_gone(self, Endpoint link) except -1
    cdef bint any_left(self) except *
    cdef int lost_badly(self, Endpoint link, object fault) except -1
    cdef int send_end(self) except -1
    cdef int end_if_due(self) except -1
    cdef int flush_reports(self) except -1  # write all that is due, before an end that the peer is told
    cdef int stop(self) except -1           # it is lost: nothing more is written
