"""The flow that is to be passed on for a routed link: flows of its other end, merged into their latest state."""
from libc.stdint cimport uint8_t

from router.amqp.frames cimport Flow

cdef enum:
    # Octets of properties that pending flows of a worker may keep in all. Properties beyond them are left out: AMQP
    # gives flow properties no meaning, while credit must not get lost.
    PROPERTIES_MOST = 16777216

# Owner: a link, or the remote end of one. All zero: no flow has come yet. `flow` keeps the last flow after it was
# passed on; its properties are freed then.
cdef struct PendingFlow:
    Flow flow
    uint8_t* octets            # of its properties; `flow.properties` points to them
    bint due                   # it is to be passed on

# Merge the next flow of the other end into the pending one: fields that it leaves out keep their values, `echo` stays.
cdef int pending_merge(PendingFlow* p, const Flow* f) except -1
# Note that the flow was passed on, or is not wanted any more: free its properties.
cdef void pending_passed(PendingFlow* p) noexcept
