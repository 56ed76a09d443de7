"""locust's users over AMQP 1.0: connections and links on python-qpid-proton's engine, users, what they measure.

locust replaces blocking calls of the standard library by gevent's when it is imported: import this package only in a
process that locust started.
"""

from loadtests.users.messaging import Churn, Receiver, Requester, Responder, Sender

__all__ = ["Churn", "Receiver", "Requester", "Responder", "Sender"]
