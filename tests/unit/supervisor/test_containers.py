"""Containers: which connections link routes and auto links find, and when they hear of them."""

import pytest

from router.config.load import load_text
from supervisor.connections import Connection
from supervisor.containers import Containers

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
    """Containers, and what their watcher was told."""

    def __init__(self):
        self.listeners = load_text("router.conf", TEXT).listeners
        self.containers = Containers()
        self.told: list[tuple[str, int]] = []
        self.containers.watch(
            lambda connection: self.told.append(("opened", connection.number)),
            lambda connection: self.told.append(("closed", connection.number)),
        )

    def open(self, number, listener, container):
        connection = Connection(number, self.listeners[listener], "here", "there", "offer")
        connection.opened, connection.opened_at, connection.container = True, float(number), container
        self.containers.opened(connection)
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
    rig.containers.closed(connection)
    assert rig.matching("broker", "clients") == []
    assert rig.told == []


def test_watchers_hear_of_each_when_it_can_be_found_and_when_it_is_gone(rig):
    first, second = rig.open(1, NAMED, "broker"), rig.open(2, NAMED, "broker")
    rig.containers.closed(first)
    assert rig.matching("broker", "brokers") == [2]
    rig.containers.closed(second)
    assert rig.matching("broker", "brokers") == []
    assert rig.told == [("opened", 1), ("opened", 2), ("closed", 1), ("closed", 2)]


def test_a_connection_that_never_opened_is_never_told(rig):
    rig.containers.closed(Connection(9, rig.listeners[NAMED], "here", "there", "offer"))
    assert rig.told == []
