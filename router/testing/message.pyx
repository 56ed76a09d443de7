"""Access of tests to the short scans of message sections that plans use."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from router.amqp.codec cimport Slice
from router.message.sections cimport SCAN_MORE, SCAN_OK, Sections, scan, scan_to, scan_user


cdef object octets_in(const Slice* text):
    return None if text.data is NULL else text.data[:text.size]


def short_scan(bytes section not None):
    """Return (user-id, `to`) as `scan_to` finds them behind the descriptor of properties; None: it does not."""
    cdef Slice user, to
    cdef const uint8_t* p = section
    return (octets_in(&user), octets_in(&to)) if scan_to(p, p + len(section), &user, &to) else None


def user_scan(bytes section not None):
    """Return (user-id,) as `scan_user` finds it behind the descriptor of properties; None: malformed."""
    cdef Slice user
    cdef const uint8_t* p = section
    return (octets_in(&user),) if scan_user(p, p + len(section), &user) else None


def full_scan(bytes section not None):
    """Return (user-id, `to`) as `scan` finds them in a message that begins with these properties; None: malformed."""
    cdef Sections s
    cdef bytes message = b"\0\x53\x73" + section
    cdef const uint8_t* p = message
    memset(&s, 0, sizeof(Sections))
    if scan(p, len(message), True, False, &s) not in (SCAN_OK, SCAN_MORE):
        return None
    return octets_in(&s.user_id), octets_in(&s.to)
