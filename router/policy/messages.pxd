"""Policy for the messages of one connection. It is checked for each message, without the interpreter."""
from libc.stdint cimport uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.policy.names cimport NameRules

# Owner: the connection; its links borrow it.
cdef class MessageRules:
    cdef NameRules targets
    cdef bytes user
    cdef readonly bint proxies             # messages may have other user-ids than the connection's user
    cdef object on_denied                  # called at the first refusal after each `take`
    cdef bint waiting                      # on_denied was called, and `take` was not
    cdef uint64_t targets_denied
    cdef uint64_t users_denied
    cdef bytes last                        # address of the first message refused since `take`
    cdef readonly object rights            # name of the rights for requests to management nodes; None: all
    cdef bint allows_target(self, const Slice* text) noexcept
    cdef bint allows_user(self, const Slice* name) noexcept
    cdef bint concerns_management(self, const Slice* text) noexcept
    cdef int deny_target(self, const Slice* text) except -1
    cdef int deny_user(self) except -1
    cdef int denied(self) except -1
