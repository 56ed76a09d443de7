"""Containers: connections that match link routes and auto links."""

import pytest

from sluice.router.config.load import load_text
from sluice.router.control.messages import Opened
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.containers import Containers

TEXT = """
router {
    id: R
}
listener {
    name: brokers
    port: 0
    role: route-container
}
listener {
    port: 1
    role: route-container
}
listener {
    name: clients
    port: 2
}
"""
NAMED, UNNAMED, NORMAL = range(3)


class ContainerConnections:
    """Containers, with connections that open and close."""

    def __init__(self):
        self.listeners = load_text("router.conf", TEXT).listeners
        self.containers = Containers()

    def open(self, number, listener, container):
        connection = RegisteredConnection(number, self.listeners[listener], "here", "there", "profile")
        connection.opened, connection.opened_at, connection.container = True, float(number), container
        opened = Opened(conn=number, container=container, hostname=None, user=None, properties={}, tls=None)
        self.containers.connection_opened(connection, opened)
        return connection

    def matching(self, container_id=None, name=None):
        return [connection.number for connection in self.containers.matching(container_id, name)]


@pytest.fixture
def connections():
    return ContainerConnections()


# brokers-and-edge.md LR-5.
def test_container_is_found_by_its_id(connections):
    for number in (1, 2):
        connections.open(number, NAMED, "broker")
    connections.open(3, NAMED, "other")
    assert connections.matching("broker") == [1, 2]
    assert connections.matching("none") == connections.matching() == []


def test_container_is_found_by_listener_name(connections):
    connections.open(1, NAMED, "broker")
    connections.open(2, UNNAMED, "broker")
    assert connections.matching(name="brokers") == [1]


def test_generated_listener_name_is_ignored(connections):
    connections.open(1, UNNAMED, "broker")
    assert connections.matching(name=connections.listeners[UNNAMED].name) == []


def test_container_matching_twice_is_found_once_in_order(connections):
    connections.open(1, NAMED, "other")
    connections.open(2, UNNAMED, "broker")
    connections.open(3, NAMED, "broker")
    assert connections.matching("broker", "brokers") == [1, 2, 3]


# routing-semantics.md A-7.
# brokers-and-edge.md W-12.
def test_connection_of_other_role_is_no_container(connections):
    connection = connections.open(1, NORMAL, "broker")
    connections.containers.connection_closed(connection)
    assert connections.matching("broker", "clients") == []


def test_closed_container_is_not_found(connections):
    first, second = connections.open(1, NAMED, "broker"), connections.open(2, NAMED, "broker")
    connections.containers.connection_closed(first)
    assert connections.matching("broker", "brokers") == [2]
    connections.containers.connection_closed(second)
    assert connections.matching("broker", "brokers") == []


def test_unopened_connection_is_no_container(connections):
    connections.open(1, NAMED, "broker")
    connections.containers.connection_closed(
        RegisteredConnection(9, connections.listeners[NAMED], "here", "there", "profile")
    )
    assert connections.matching("broker", "brokers") == [1]
