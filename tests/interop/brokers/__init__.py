"""Real brokers on loopback, each in a folder of its own. Their processes are signalled by process id only."""

from tests.interop.brokers.artemis import Artemis
from tests.interop.brokers.process import Broker, BrokerError, Unavailable
from tests.interop.brokers.rabbitmq import RabbitMQ

__all__ = ["Artemis", "Broker", "BrokerError", "RabbitMQ", "Unavailable"]
