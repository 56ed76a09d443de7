"""Access of tests to the scans of message sections, also the short ones that plans use, and to annotations."""
from libc.stdint cimport SIZE_MAX, uint8_t
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.message.annotations cimport compose, compose_room
from sluice.router.message.content cimport Content
from sluice.router.message.sections cimport SCAN_MORE, SCAN_OK, Sections, scan, scan_needs, scan_to, scan_user


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


def needs(bytes data not None):
    """Return `scan_needs` of the octets; None: SIZE_MAX."""
    cdef const uint8_t* p = data
    cdef size_t least = scan_needs(p, len(data))
    return None if least == SIZE_MAX else least


def scan_dict(bytes data not None, properties=True, honour=True):
    """Return (result, fields of Sections as a dict)."""
    cdef Sections s
    cdef const uint8_t* p = data
    memset(&s, 0, sizeof(Sections))
    result = scan(p, len(data), properties, honour, &s)
    return int(result), {
        "at": s.at, "end": s.end, "pairs": s.pairs, "router": bool(s.router), "rewrite": bool(s.rewrite),
        "phase": s.phase, "stream": bool(s.stream), "priority": s.priority,
        "to": s.to.data[:s.to.size] if s.to.data is not NULL else None,
        "subject": s.subject.data[:s.subject.size] if s.subject.data is not NULL else None,
        "user_id": s.user_id.data[:s.user_id.size] if s.user_id.data is not NULL else None,
        "ingress": s.ingress.data[:s.ingress.size] if s.ingress.data is not NULL else None,
        "trace": s.trace.data[:s.trace.size] if s.trace.data is not NULL else None,
        "served": s.served.data[:s.served.size] if s.served.data is not NULL else None,
        "to_override": s.to_override.data[:s.to_override.size] if s.to_override.data is not NULL else None,
    }


def rewrite_annotations(bytes data not None, router=False, honour=False, bytes to=b"", phase=0, bytes served=b""):
    """Return `data` with its annotations as an outgoing copy has them; None: its leading sections are malformed."""
    cdef Content c
    cdef const uint8_t* p = data
    memset(&c, 0, sizeof(Content))
    result = scan(p, len(data), False, honour, &c.sections)
    if result > SCAN_MORE:
        return None
    c.data = p
    c.size = len(data)
    c.phase = phase
    if to:
        c.to.data = to
        c.to.size = len(to)
    if served:
        c.served.data = served
        c.served.size = len(served)
    if not router and not c.sections.rewrite:
        return data
    room = bytearray(compose_room(&c))
    cdef uint8_t* w = room
    n = compose(w, &c, router)
    return data[:c.sections.at] + bytes(room[:n]) + data[c.sections.end:]
