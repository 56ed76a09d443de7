"""Locust users for AMQP 1.0, on python-qpid-proton's engine: connections, links, users and their metrics.

locust replaces blocking calls of the standard library by gevent's when it is imported: import this package only in a
process that locust started.
"""

from loadtests.users.messaging import ReceivingUser, ReconnectingUser, RequestingUser, RespondingUser, SendingUser

__all__ = ["ReceivingUser", "ReconnectingUser", "RequestingUser", "RespondingUser", "SendingUser"]
