"""Queues of real brokers behind addresses of the router, through a connector and auto links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.router import RouterProcess, Section, listener, poll

#: The brokers take half a minute of processor time to start.
pytestmark = pytest.mark.long

ADDRESS = "queue.orders"


@pytest.fixture(params=["rabbitmq", "artemis"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker."""
    found: Broker = request.getfixturevalue(request.param)
    return found


def gateway_sections(broker: Broker, queue: str, directory: Path) -> list[Section]:
    """A router in front of the broker: it logs in with the broker's user, the password in a file."""
    password = directory / "password"
    password.write_text(f"{broker.password or ''}\n")
    login = {"saslUsername": broker.user, "saslPassword": f"file:{password}"} if broker.user else {}
    own = {"address": ADDRESS, "externalAddress": queue, "connection": "broker"}
    return [
        listener(idleTimeoutSeconds=0),  # the test's clients are silent while a broker starts
        ("connector", {"name": "broker", "port": broker.port, "role": "route-container", **login}),
        ("address", {"prefix": "queue", "waypoint": True}),
        ("autoLink", {"name": "to", "direction": "out", **own}),
        ("autoLink", {"name": "from", "direction": "in", **own}),
    ]


class GatewayRouter:
    """A router that runs in front of a broker."""

    def __init__(self, router: RouterProcess) -> None:
        self.port = next(iter(router.ports.values()))
        self.management = Management(self.client())

    def client(self) -> AmqpPeer:
        return AmqpPeer.opened(self.port)

    def wait_active(self) -> None:
        """Wait until both links are taken."""

        poll(lambda: self.states() == ["active", "active"], "both auto links are active", 30)

    def states(self) -> list[str]:
        """Those of the auto links."""
        return [row["operStatus"] for row in self.management.query("router.config.autoLink", "operStatus")]


@pytest.fixture(params=[1, 3], ids=["1-worker", "3-workers"])
def gateway_router(broker: Broker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayRouter]:
    """The gateway, its links taken."""
    router = Router(tmp_path, gateway_sections(broker, f"store{request.param}", tmp_path), request.param)
    router.start()
    gateway_router = GatewayRouter(router)
    gateway_router.wait_active()
    yield gateway_router
    router.stop()


def pass_through(gateway_router: GatewayRouter) -> None:
    """Messages go into the queue and come out of it, in order while somebody receives."""
    wanted = [f"message {number}" for number in range(20)]
    receiver = gateway_router.client().receiver(ADDRESS, credit=100)
    sender = gateway_router.client().sender(ADDRESS)
    numbers = [sender.send(message.message(body)) for body in wanted]
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    got = receiver.receive(len(wanted), 20)
    assert [message.body(delivery.payload) for delivery in got] == wanted
    for delivery in got:
        delivery.settle()
    receiver.detach()


def test_queue_stores_and_forwards(gateway_router: GatewayRouter) -> None:
    pass_through(gateway_router)


def test_auto_links_recover_after_broker_kill(gateway_router: GatewayRouter, broker: Broker) -> None:
    receiver = gateway_router.client().receiver(ADDRESS)
    broker.kill()
    poll(lambda: gateway_router.states() == ["inactive", "inactive"], "the broker is lost")
    broker.start()
    gateway_router.wait_active()
    receiver.detach()
    pass_through(gateway_router)
