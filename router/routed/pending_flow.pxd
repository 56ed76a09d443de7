"""Pending flow of a routed link: flows of the other end, merged into the latest state until they can be written."""
from libc.stdint cimport uint8_t

from sluice.router.amqp.frames cimport Flow

cdef enum:
    # Octets of properties that the pending flows of a worker may keep in all. Further properties are dropped: AMQP
    # gives flow properties no meaning, while credit must not get lost.
    PROPERTIES_MOST = 16777216

# Flow to be passed on. Owner: a link, or the remote end of one. All zero: no flow has arrived yet. `flow` keeps the
# last flow after it was passed on; its properties are freed then.
cdef struct PendingFlow:
    Flow flow
    uint8_t* octets            # octets of its properties (owned); `flow.properties` points to them
    bint due                   # the flow is not passed on yet

# Merge the next flow of the other end into the pending one. Fields that it leaves out keep their values; `echo` stays
# set.
cdef int pending_merge(PendingFlow* p, const Flow* f) except -1
# Mark the flow as passed on, or as not wanted; free its properties.
cdef void pending_passed(PendingFlow* p) noexcept
