"""Invariants of the lists of links that wait to write, and of lists with borrowed pointers."""
from libc.stdint cimport uint8_t

from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport Endpoint
from sluice.router.amqp.node_list cimport ListNode, NodeList, list_append, list_clear
from sluice.router.amqp.session cimport Session


cdef object _list_fault(Session session, NodeList* waiting):
    """Return the violated invariant of one list of the session as text, or None.

    Only pointers are compared, since a link that does not belong to the session may be freed.
    """
    cdef ListNode* node = waiting.first
    cdef ListNode* before = NULL
    cdef set known = set()
    cdef Endpoint link
    for link in session.by_handle.values():
        if link is not None:
            known.add(<size_t>&link.turn)
    while node is not NULL:
        if <size_t>node not in known:
            return "a link waits for its turn that the session does not have"
        if node.list is not waiting or node.previous is not before:
            return "a link that waits for its turn is not linked both ways"
        before = node
        node = node.next
    return None if waiting.last is before else "the last link that waits for its turn is not the last of the list"


def check_turns(Connection connection not None):
    """Raise AssertionError if the lists of links that wait to write do not fit the sessions' links."""
    cdef Session session
    for session in connection.local_channels.values():
        for wrong in (_list_fault(session, &session.ready), _list_fault(session, &session.waiting),
                      _list_fault(session, &session.served)):
            assert wrong is None, f"session {session.local_channel}: {wrong}"


def live(int life, int event):
    """Return the state of a link after an event in the state `life`. Raises the errors of `Endpoint.live`."""
    cdef Endpoint link = Endpoint()
    link.name = "tested"
    link.life = <uint8_t>life
    link.live(<uint8_t>event)
    return link.life


def deallocate_in_list():
    """Deallocate an object that is in a list. Return the number of objects left in the list."""
    cdef NodeList l
    cdef int left = 0
    cdef ListNode* node
    cdef Endpoint link = Endpoint()
    cdef Endpoint other = Endpoint()
    l.first = l.last = NULL
    list_append(&l, &link.turn)
    list_append(&l, &other.turn)
    link = None
    node = l.first
    while node is not NULL:
        left += 1
        node = node.next
    list_clear(&l)
    return left
