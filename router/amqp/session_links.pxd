"""Links of a session: handles and names, attach and detach, and their end with the session."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.channel cimport Channel
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport Endpoint
from sluice.router.amqp.object_table cimport ObjectTable

cdef enum:
    # Highest handle that a peer may use, announced in this side's begin. Between routers it is not announced, because
    # their begins are like those of Dispatch 1.19.
    HANDLE_MAX = 65535

# Base class of a session: its links. Owner: its connection.
cdef class SessionLinks(Channel):
    cdef readonly Connection connection
    cdef readonly object handler           # SessionHandler, see session.pyx
    cdef Endpoint went_on                  # link that was last found able to make progress
    cdef ObjectTable by_remote_handle
    cdef ObjectTable by_handle             # links by local handle
    cdef readonly uint32_t handle_max      # highest handle that the peer allows
    cdef uint32_t copies                   # number of names that free_name made up
    cdef set names                         # (name, incoming) of attached links
    cdef uint32_t names_most               # largest size of `names` since its creation; its memory follows this size
    cdef bint routers                      # both ends are routers
    cdef dict attaching                    # (name, incoming) -> Link attached by this side and not answered yet
    cdef readonly bint ended
    cdef list losing                       # of an ended session: links that may not have ended yet, in reverse order
    cdef readonly bint empty               # the session and all of its links have ended
    cdef uint32_t answers                  # number of links for which the answer to the peer's end waits
    cdef bint end_due
    cdef int attach(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int detach(self, const uint8_t* p, const uint8_t* end) except -1
    cdef Endpoint link_of(self, uint32_t handle)
    cdef bint any_can_progress(self) noexcept
    cdef bint any_unrouted(self) noexcept
    cdef int release(self, Endpoint link) except -1
    cdef int link_gone(self, Endpoint link) except -1
    cdef bint any_left(self) except *
    cdef int handle_failed_loss(self, Endpoint link, object fault) except -1
    cdef int send_end(self) except -1
    cdef int end_if_due(self) except -1
    # Write all reports that are due, before an end of which the peer is notified.
    cdef int flush_reports(self) except -1
    cdef int stop(self) except -1           # stop writing: the session is lost
