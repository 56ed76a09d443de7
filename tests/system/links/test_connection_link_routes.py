"""Link routes created by a client for its own connection, which becomes the container, whatever its listener's role."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver
from tests.peer.management import PREFIX, Management, ManagementStatusError
from tests.peer.route_container import RouteContainer
from tests.system.fixtures import Connect, Fresh
from tests.system.links.test_link_routes import LOST, attached, receiving, sending
from tests.system.router import RouterProcess

KIND = "router.connection.linkRoute"
MAX_WORKERS = 3  # maximum number of workers: of as many connections, each worker gets one


class LinkRouteCreator:
    """A container that creates link routes for its own connection."""

    def __init__(self, router: RouterProcess, container_id: str) -> None:
        self.peer = RouteContainer.connected(router.port, container_id)
        self.management = Management(self.peer)
        self.peer.own = len(self.peer.sessions)
        for answer in ("begin", "attach"):
            self.peer.take(answer)

    def create(self, pattern: str, direction: str, name: str | None = None) -> Any:
        named = {} if name is None else {"name": name}
        return self.management.call("CREATE", {"pattern": pattern, "direction": direction}, type=PREFIX + KIND, **named)


def fresh_name(fresh: Fresh) -> str:
    """Return a new name of one token."""
    return fresh("con").replace("/", "-")


def test_client_links_reach_creating_connection(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    for _ in range(MAX_WORKERS):
        name = fresh_name(fresh)
        creator = LinkRouteCreator(router, name)
        assert creator.create(f"{name}.#", "in", name)["containerId"] == name
        creator.create(f"{name}.x", "out")
        router.wait_log(f"Link Route Activated '{name}' on container {name}")
        for _ in range(MAX_WORKERS):
            sender, end = sending(creator.peer, connect(), f"{name}.any")
            sent = sender.send(message.message("there"))
            end.next().settle()
            assert sender.outcome(sent).name == "accepted"
            receiver, back = receiving(creator.peer, connect(), f"{name}.x")
            sent = back.send(message.message("back"))
            receiver.next().settle()
            assert back.outcome(sent).name == "accepted"
        creator.peer.close()


def test_link_route_is_visible_to_its_connection_only(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    name = fresh_name(fresh)
    first, *others = (LinkRouteCreator(router, name) for _ in range(MAX_WORKERS + 1))
    row = first.create(f"{name}.#", "in", "mine")
    for other in others:
        assert other.management.query(KIND) == []
        for operation in ("READ", "DELETE"):
            with pytest.raises(ManagementStatusError, match="404 Not Found"):
                other.management.call(operation, type=PREFIX + KIND, name="mine")
        assert other.management.one("router.address", key=f"C{name}")["containerCount"] == 1
    assert first.management.query(KIND) == [row]
    assert first.management.query("router.config.linkRoute") == []
    sender, end = sending(first.peer, connect(), f"{name}.a")
    first.management.delete(KIND, "mine")
    assert first.management.query(KIND) == []
    assert isinstance(end, PeerReceiver)
    end.flow(11)
    assert sender.wait_credit(11) == 11, "links that are attached stay"
    for each in (first, *others):
        each.peer.close()


def test_closed_connection_deletes_its_link_routes(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    name = fresh_name(fresh)
    for number in range(MAX_WORKERS):
        creator = LinkRouteCreator(router, name)
        creator.create(f"{name}.#", "in", f"{name}{number}")
        sender = connect().sender(f"{name}.a", wait=False)
        attached(creator.peer, sender)
        creator.peer.drop()
        assert sender.wait_detached() == LOST
        router.wait_log(f"Link Route Deactivated '{name}{number}' on container {name}")
    last = LinkRouteCreator(router, name)
    assert f"C{name}" not in [row["key"] for row in last.management.query("router.address")]
    last.create(f"{name}.#", "out")
    router_made = connect().sender(f"{name}.a", wait=False).wait_attached()
    assert router_made.target is not None, "in that direction it is an address like others"
    last.peer.close()


def test_connections_with_one_prefix_take_turns(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    name = fresh_name(fresh)
    both = [LinkRouteCreator(router, name), LinkRouteCreator(router, name)]
    for creator in both:
        creator.create(f"{name}.#", "in")
    for _ in range(2):
        for creator in both:
            attached(creator.peer, connect().sender(f"{name}.a", wait=False))
    both[0].peer.close()
    router.wait_log(f"Link Route Deactivated '' on container {name}")
    for _ in range(2):
        attached(both[1].peer, connect().sender(f"{name}.a", wait=False))
    both[1].peer.close()
