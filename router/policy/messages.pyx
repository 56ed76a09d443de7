"""What messages of one connection may say (security.md P-50, P-51): where those of anonymous senders may go, and whose
name they may bear.

Refusals are counted here and reported together: a client that has all its messages refused costs the supervisor a
message now and then.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from router.amqp.codec cimport Slice
from router.policy.names cimport NameRules

cdef enum:
    SHOWN = 200  # octets of an address, in a report


cdef inline bint starts(const char* at, const char* end, const char* text, Py_ssize_t size) noexcept nogil:
    return end - at >= size and memcmp(at, text, size) == 0


cdef class MessageRules:
    """May change while links have it."""

    def __init__(self, NameRules targets not None, str user, bint proxies, on_denied, *, str rights=None):
        """user: None: nobody is known. proxies: messages may name any user. on_denied(): called when a message was
        refused for the first time since `take`. rights: at management nodes, by name; None: all."""
        self.user = b"" if user is None else user.encode("utf-8", "surrogatepass")
        self.on_denied = on_denied
        self.change(targets, proxies, rights)

    def change(self, NameRules targets not None, bint proxies, str rights):
        """Other rules from now on."""
        self.rights = rights
        self.targets = targets
        self.proxies = proxies

    def take(self):
        """What was refused since the last call: messages by their address, by their user, and an address, or None."""
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
        """Whether an address may be of a management node, and the rights of this connection there are limited."""
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
