"""What messages of one connection may say: checked for each of them, without the interpreter."""
from libc.stdint cimport uint64_t

from router.amqp.codec cimport Slice
from router.policy.names cimport NameRules

# Owner: the connection; its links borrow it.
cdef class MessageRules:
    cdef NameRules targets
    cdef bytes user
    cdef readonly bint proxies             # messages may name other users
    cdef object on_denied                  # called once, until `take`
    cdef bint waiting
    cdef uint64_t targets_denied
    cdef uint64_t users_denied
    cdef bytes last
    cdef readonly object rights            # of requests to management nodes, by name; None: all
    cdef bint allows_target(self, const Slice* text) noexcept
    cdef bint allows_user(self, const Slice* name) noexcept
    cdef bint concerns_management(self, const Slice* text) noexcept
    cdef int deny_target(self, const Slice* text) except -1
    cdef int deny_user(self) except -1
    cdef int denied(self) except -1
