"""Octets held by a connection, in its write buffer and as incoming messages."""
from sluice.router.amqp.buffer cimport buffer_used
from sluice.router.amqp.connection cimport Connection
from sluice.router.message.content cimport uncharged


def octets_waiting(Connection connection not None):
    """Return the octets in the connection's write buffer."""
    return buffer_used(&connection.out)


def octets_held(Connection connection not None):
    """Return the octets held of the connection's incoming messages, as its meter counts them."""
    return connection.content.held if connection.content is not NULL else 0


def octets_uncharged():
    """Return the octets of copies in this process that no connection's meter counts."""
    return uncharged
