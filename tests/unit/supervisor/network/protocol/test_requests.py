"""Queue of requests for missing data."""

from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.nodes import RouterNode
from sluice.supervisor.network.protocol.requests import RequestQueue
from sluice.supervisor.network.protocol.timers import NEVER, ProtocolLimits, Timers

NOW = 1000.0


def request_queue() -> RequestQueue:
    return RequestQueue(LocalRouter("A", 100, 0, Timers(pull_grace=0.25), ProtocolLimits(), NOW))


def test_request_to_foreign_router_is_due_at_once() -> None:
    queue, node = request_queue(), RouterNode("B", 1)
    queue.add(node, False, NOW)
    assert queue.due_at == NOW
    assert queue.take_due(NOW) == [node]
    assert queue.due_at == NEVER


def test_request_behind_sluice_neighbour_waits_for_news() -> None:
    queue, early, late = request_queue(), RouterNode("B", 1), RouterNode("C", 2)
    queue.add(early, True, NOW)
    queue.add(late, True, NOW + 1)
    assert queue.take_due(NOW) == []
    assert queue.take_due(NOW + 0.25) == [early]
    assert queue.due_at == NOW + 1.25


def test_second_request_for_router_keeps_earlier_time() -> None:
    queue, node = request_queue(), RouterNode("B", 1)
    queue.add_at(node, NEVER)
    assert queue.awaits_path(node)
    queue.add(node, False, NOW)
    queue.add(node, True, NOW)
    assert not queue.awaits_path(node)
    assert queue.take_due(NOW) == [node]


def test_removed_request_is_never_due() -> None:
    queue, node = request_queue(), RouterNode("B", 1)
    queue.add(node, False, NOW)
    queue.remove(node)
    assert queue.take_due(NOW) == []
