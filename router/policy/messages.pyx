"""Policy for the messages of one connection: addresses of anonymous senders, and user-ids (security.md P-50, P-51).

Refusals are counted and reported together, so a client whose messages are all refused causes only few control messages
to the supervisor.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from sluice.router.amqp.codec cimport Slice
from sluice.router.policy.names cimport NameRules

cdef enum:
    SHOWN = 200  # octets of a refused address in a report


cdef inline bint starts(const char* at, const char* end, const char* text, Py_ssize_t size) noexcept nogil:
    return end - at >= size and memcmp(at, text, size) == 0


cdef class MessageRules:
    """Rules for messages. They may change while links use them."""

    def __init__(self, NameRules targets not None, str user, bint proxies, on_denied, *, str rights=None):
        """Create the rules. `user` is None for an unauthenticated client.

        `proxies`: messages may have any user-id. `on_denied` is called for the first message refused after each `take`.
        `rights` is the name of the rights at management nodes; None: all rights.
        """
        self.user = b"" if user is None else user.encode("utf-8", "surrogatepass")
        self.on_denied = on_denied
        self.change(targets, proxies, rights)

    def change(self, NameRules targets not None, bint proxies, str rights):
        """Replace the rules."""
        self.rights = rights
        self.targets = targets
        self.proxies = proxies

    def take(self):
        """Return the number of messages refused since the last call because of their address, the number refused
        because of their user-id, and one of the refused addresses or None.
        """
        targets, users, last = self.targets_denied, self.users_denied, self.last
        self.targets_denied = self.users_denied = 0
        self.last = None
        self.waiting = False
        return targets, users, None if last is None else last.decode("utf-8", "replace")

    cdef bint allows_target(self, const Slice* text) noexcept:
        return self.targets.allows(
            <const uint8_t*>text.data, text.size,
            <const uint8_t*>PyBytes_AS_STRING(self.user), PyBytes_GET_SIZE(self.user))

    cdef bint concerns_management(self, const Slice* text) noexcept:
        """Return whether an address may be that of a management node at which this connection has limited rights."""
        cdef const char* at = <const char*>text.data
        cdef const char* end = at + text.size
        if self.rights is None:
            return False
        while at < end:
            at = <const char*>memchr(at, b"$", end - at)
            if at is NULL:
                return False
            at += 1
            if starts(at, end, b"management", 10) or starts(at, end, b"_management_internal", 20):
                return True
        return False

    cdef bint allows_user(self, const Slice* name) noexcept:
        if self.proxies or name.data is NULL or name.size == 0:
            return True
        return (<Py_ssize_t>name.size == PyBytes_GET_SIZE(self.user)
                and memcmp(name.data, PyBytes_AS_STRING(self.user), name.size) == 0)

    cdef int deny_target(self, const Slice* text) except -1:
        self.targets_denied += 1
        if self.last is None:
            self.last = PyBytes_FromStringAndSize(<const char*>text.data, min(text.size, <size_t>SHOWN))
        return self.denied()

    cdef int deny_user(self) except -1:
        self.users_denied += 1
        return self.denied()

    cdef int denied(self) except -1:
        if not self.waiting:
            self.waiting = True
            self.on_denied()
        return 0
