"""Real brokers on loopback, each in a folder of its own: started, stopped, killed and restarted by their own ids."""

from tests.interop.brokers.artemis import Artemis
from tests.interop.brokers.process import Broker, BrokerError, Unavailable
from tests.interop.brokers.rabbitmq import RabbitMQ

__all__ = ["Artemis", "Broker", "BrokerError", "RabbitMQ", "Unavailable"]
