"""A router in front of two brokers: a queue on each, one sharded over both, and traffic that no broker sees.

    python -m loadtests.load --scenario gateway       with a router, a RabbitMQ and an Artemis of its own

`receive` on a queue is the time from a sender through router, broker and router to a receiver.
"""

from __future__ import annotations

from typing import ClassVar

from loadtests import users


class QueueSender(users.Sender):
    """What all senders to queues share: durable messages, ten in flight."""

    abstract = True
    rate = 10
    window = 10
    fields: ClassVar[dict[str, object]] = {"durable": True}


class RabbitReceiver(users.Receiver):
    """Two consumers of the queue on RabbitMQ."""

    fixed_count = 2
    address = "q.RabbitMQ"


class ArtemisReceiver(users.Receiver):
    """Two consumers of the queue on Artemis."""

    fixed_count = 2
    address = "q.Artemis"


class ShardedReceiver(users.Receiver):
    """Two consumers of the queue on both."""

    fixed_count = 2
    address = "q.sharded"


class Service(users.Responder):
    """A service that clients reach directly."""

    fixed_count = 1
    address = "closest/service"


class RabbitSender(QueueSender):
    """To the queue on RabbitMQ."""

    weight = 4
    address = "q.RabbitMQ"


class ArtemisSender(QueueSender):
    """To the queue on Artemis."""

    weight = 4
    address = "q.Artemis"


class ShardedSender(QueueSender):
    """To the queue on both."""

    weight = 4
    address = "q.sharded"


class Client(users.Requester):
    """One request at a time, no broker involved."""

    weight = 2
    rate = 10
    address = "closest/service"


class Visitor(users.Churn):
    """A connection for a single message into a queue."""

    weight = 1
    rate = 2
    messages = 1
    address = "q.sharded"
