"""One router by itself: consumers that compete, a broadcast, requests over dynamic addresses, short connections.

    python -m loadtests.load                                   with a router of its own
    locust -f loadtests/scenarios/standalone.py --host amqp://127.0.0.1:5672      with one that runs

Receivers have fixed numbers and start first. The rest is shared out by weight: 10 : 2 : 4 : 1.
"""

from __future__ import annotations

from loadtests import users


class QueueReceiver(users.Receiver):
    """Four consumers compete for the queue."""

    fixed_count = 4
    address = "balanced/load"


class NewsReceiver(users.Receiver):
    """Three consumers get a copy each."""

    fixed_count = 3
    address = "multicast/load"


class Service(users.Responder):
    """Two instances of a service."""

    fixed_count = 2
    address = "closest/service"


class QueueSender(users.Sender):
    """Most of the load: unsettled, some messages in flight."""

    weight = 10
    rate = 20
    window = 10
    address = "balanced/load"


class NewsSender(users.Sender):
    """Presettled, larger."""

    weight = 2
    rate = 10
    presettled = True
    body_size = 1000
    address = "multicast/load"


class Client(users.Requester):
    """One request at a time."""

    weight = 4
    rate = 10
    address = "closest/service"


class Visitor(users.Churn):
    """A connection for a single message."""

    weight = 1
    rate = 2
    messages = 1
    address = "balanced/load"
