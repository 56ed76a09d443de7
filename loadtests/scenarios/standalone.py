"""Scenario of a single router: competing consumers, multicast, requests over dynamic addresses, short connections.

    python -m loadtests.load                                   with a router of its own
    locust -f loadtests/scenarios/standalone.py --host amqp://127.0.0.1:5672      with one that runs

Receivers have fixed numbers and start first. The other users are divided by weight: 10 : 2 : 4 : 1.
"""

from __future__ import annotations

from loadtests import users


class QueueReceiver(users.ReceivingUser):
    """Four competing consumers of the queue."""

    fixed_count = 4
    address = "balanced/load"


class NewsReceiver(users.ReceivingUser):
    """Three consumers that receive a copy each."""

    fixed_count = 3
    address = "multicast/load"


class StandaloneService(users.RespondingUser):
    """Two instances of a service."""

    fixed_count = 2
    address = "closest/service"


class StandaloneQueueSender(users.SendingUser):
    """Sender that causes most of the load: unsettled, some messages in flight."""

    weight = 10
    rate = 20
    window = 10
    address = "balanced/load"


class NewsSender(users.SendingUser):
    """Sender of larger, presettled messages."""

    weight = 2
    rate = 10
    presettled = True
    body_size = 1000
    address = "multicast/load"


class StandaloneRequester(users.RequestingUser):
    """Requester with one request at a time."""

    weight = 4
    rate = 10
    address = "closest/service"


class StandaloneShortConnection(users.ReconnectingUser):
    """Client that connects for a single message."""

    weight = 1
    rate = 2
    messages = 1
    address = "balanced/load"
