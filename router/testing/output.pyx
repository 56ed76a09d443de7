"""Octets that a connection holds: in its write buffer, and of messages that came by it."""
from router.amqp.buffer cimport buffer_used
from router.amqp.connection cimport Connection
from router.message.content cimport uncharged


def octets_waiting(Connection connection not None):
    """Return the octets of the connection's write buffer that its socket has not taken."""
    return buffer_used(&connection.out)


def octets_held(Connection connection not None):
    """Return the octets of messages that came by the connection and wait in queues, as its meter counts them."""
    return connection.content.held if connection.content is not NULL else 0


def octets_uncharged():
    """Return the octets of copies in this process that no connection's meter counts."""
    return uncharged
