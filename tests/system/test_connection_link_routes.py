"""Link routes created by a client for its own connection, which becomes the container, whatever its listener's role."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer import message
from tests.peer.management import PREFIX, Management, ManagementStatusError
from tests.peer.peer import PeerReceiver
from tests.peer.route_container import RouteContainer
from tests.system.fixtures import Connect, Fresh
from tests.system.router import Router
from tests.system.test_link_routes import LOST, attached, receiving, sending

KIND = "router.connection.linkRoute"
MOST = 3  # maximum number of workers: of as many connections, each worker gets one


class Maker:
    """A container that creates link routes for its own connection."""

    def __init__(self, router: Router, container_id: str) -> None:
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


def test_links_of_clients_go_to_the_connection_that_asked(router: Router, connect: Connect, fresh: Fresh) -> None:
    for _ in range(MOST):
        name = fresh_name(fresh)
        maker = Maker(router, name)
        assert maker.create(f"{name}.#", "in", name)["containerId"] == name
        maker.create(f"{name}.x", "out")
        router.wait_log(f"Link Route Activated '{name}' on container {name}")
        for _ in range(MOST):
            sender, end = sending(maker.peer, connect(), f"{name}.any")
            sent = sender.send(message.message("there"))
            end.next().settle()
            assert sender.outcome(sent).name == "accepted"
            receiver, back = receiving(maker.peer, connect(), f"{name}.x")
            sent = back.send(message.message("back"))
            receiver.next().settle()
            assert back.outcome(sent).name == "accepted"
        maker.peer.close()


def test_others_do_not_see_it_and_its_addresses_are_there(router: Router, connect: Connect, fresh: Fresh) -> None:
    name = fresh_name(fresh)
    first, *others = (Maker(router, name) for _ in range(MOST + 1))
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


def test_the_end_of_the_connection(router: Router, connect: Connect, fresh: Fresh) -> None:
    name = fresh_name(fresh)
    for number in range(MOST):
        maker = Maker(router, name)
        maker.create(f"{name}.#", "in", f"{name}{number}")
        sender = connect().sender(f"{name}.a", wait=False)
        attached(maker.peer, sender)
        maker.peer.drop()
        assert sender.wait_detached() == LOST
        router.wait_log(f"Link Route Deactivated '{name}{number}' on container {name}")
    last = Maker(router, name)
    assert f"C{name}" not in [row["key"] for row in last.management.query("router.address")]
    last.create(f"{name}.#", "out")
    router_made = connect().sender(f"{name}.a", wait=False).wait_attached()
    assert router_made.target is not None, "in that direction it is an address like others"
    last.peer.close()


def test_two_connections_take_turns(router: Router, connect: Connect, fresh: Fresh) -> None:
    name = fresh_name(fresh)
    both = [Maker(router, name), Maker(router, name)]
    for maker in both:
        maker.create(f"{name}.#", "in")
    for _ in range(2):
        for maker in both:
            attached(maker.peer, connect().sender(f"{name}.a", wait=False))
    both[0].peer.close()
    router.wait_log(f"Link Route Deactivated '' on container {name}")
    for _ in range(2):
        attached(both[1].peer, connect().sender(f"{name}.a", wait=False))
    both[1].peer.close()
