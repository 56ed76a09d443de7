"""Real brokers on loopback, each in a folder of its own. Their processes are signalled by process id only."""

from tests.interop.brokers.artemis import Artemis
from tests.interop.brokers.process import BrokerError, BrokerProcess, BrokerUnavailable
from tests.interop.brokers.rabbitmq import RabbitMQ

__all__ = ["Artemis", "BrokerError", "BrokerProcess", "BrokerUnavailable", "RabbitMQ"]
