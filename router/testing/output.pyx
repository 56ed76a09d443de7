"""Octets that wait in the write buffer of a connection."""
from router.amqp.buffer cimport buffer_used
from router.amqp.connection cimport Connection


def octets_waiting(Connection connection not None):
    """Return the octets of the connection's write buffer that its socket has not taken."""
    return buffer_used(&connection.out)
