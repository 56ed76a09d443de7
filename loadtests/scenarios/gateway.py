"""Scenario of a router in front of two brokers: a queue on each, one on both, and traffic without a broker.

    python -m loadtests.load --scenario gateway       with a router, a RabbitMQ and an Artemis of its own

`receive` on a queue is the time from a sender through router, broker and router to a receiver.
"""

from __future__ import annotations

from typing import ClassVar

from loadtests import users


class QueueSender(users.SendingUser):
    """Base class of senders to queues: durable messages, ten in flight."""

    abstract = True
    rate = 10
    window = 10
    fields: ClassVar[dict[str, object]] = {"durable": True}


class RabbitReceiver(users.ReceivingUser):
    """Two consumers of the queue on RabbitMQ."""

    fixed_count = 2
    address = "q.RabbitMQ"


class ArtemisReceiver(users.ReceivingUser):
    """Two consumers of the queue on Artemis."""

    fixed_count = 2
    address = "q.Artemis"


class ShardedReceiver(users.ReceivingUser):
    """Two consumers of the queue that is on both brokers."""

    fixed_count = 2
    address = "q.sharded"


class GatewayService(users.RespondingUser):
    """Service that clients reach directly."""

    fixed_count = 1
    address = "closest/service"


class RabbitSender(QueueSender):
    """Sender to the queue on RabbitMQ."""

    weight = 4
    address = "q.RabbitMQ"


class ArtemisSender(QueueSender):
    """Sender to the queue on Artemis."""

    weight = 4
    address = "q.Artemis"


class ShardedSender(QueueSender):
    """Sender to the queue that is on both brokers."""

    weight = 4
    address = "q.sharded"


class GatewayRequester(users.RequestingUser):
    """Requester with one request at a time, without a broker."""

    weight = 2
    rate = 10
    address = "closest/service"


class GatewayShortConnection(users.ReconnectingUser):
    """Client that connects for a single message to a queue."""

    weight = 1
    rate = 2
    messages = 1
    address = "q.sharded"
