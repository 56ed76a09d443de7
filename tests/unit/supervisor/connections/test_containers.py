"""Containers: connections that match link routes and auto links."""

import pytest

from router.config.load import load_text
from router.control.messages import Opened
from supervisor.connections.connections import Connection
from supervisor.connections.containers import Containers

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


class Rig:
    """Containers, with connections that open and close."""

    def __init__(self):
        self.listeners = load_text("router.conf", TEXT).listeners
        self.containers = Containers()

    def open(self, number, listener, container):
        connection = Connection(number, self.listeners[listener], "here", "there", "profile")
        connection.opened, connection.opened_at, connection.container = True, float(number), container
        opened = Opened(conn=number, container=container, hostname=None, user=None, properties={}, tls=None)
        self.containers.connection_opened(connection, opened)
        return connection

    def matching(self, container_id=None, name=None):
        return [connection.number for connection in self.containers.matching(container_id, name)]


@pytest.fixture
def rig():
    return Rig()


def test_a_container_is_found_by_its_id(rig):
    for number in (1, 2):
        rig.open(number, NAMED, "broker")
    rig.open(3, NAMED, "other")
    assert rig.matching("broker") == [1, 2]
    assert rig.matching("none") == rig.matching() == []


def test_a_container_is_found_by_the_name_of_its_listener(rig):
    rig.open(1, NAMED, "broker")
    rig.open(2, UNNAMED, "broker")
    assert rig.matching(name="brokers") == [1]


def test_a_name_that_the_router_made_up_does_not_count(rig):
    rig.open(1, UNNAMED, "broker")
    assert rig.matching(name=rig.listeners[UNNAMED].name) == []


def test_one_that_matches_in_both_ways_is_found_once_in_order_of_opening(rig):
    rig.open(1, NAMED, "other")
    rig.open(2, UNNAMED, "broker")
    rig.open(3, NAMED, "broker")
    assert rig.matching("broker", "brokers") == [1, 2, 3]


def test_connections_of_other_roles_are_no_containers(rig):
    connection = rig.open(1, NORMAL, "broker")
    rig.containers.connection_closed(connection)
    assert rig.matching("broker", "clients") == []


def test_one_that_is_gone_is_not_found(rig):
    first, second = rig.open(1, NAMED, "broker"), rig.open(2, NAMED, "broker")
    rig.containers.connection_closed(first)
    assert rig.matching("broker", "brokers") == [2]
    rig.containers.connection_closed(second)
    assert rig.matching("broker", "brokers") == []


def test_a_connection_that_never_opened_was_none(rig):
    rig.open(1, NAMED, "broker")
    rig.containers.connection_closed(Connection(9, rig.listeners[NAMED], "here", "there", "profile"))
    assert rig.matching("broker", "brokers") == [1]
