"""Queues of real brokers behind addresses of the router, by a connector and auto links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher
from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.router import RouterProcess, Section, listener, poll

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

ADDRESS = "queue.orders"


@pytest.fixture(params=["rabbitmq", "artemis"])
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """Broker under test: each of both in turn."""
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


def gateway_sections(broker: BrokerProcess, queue: str, directory: Path) -> list[Section]:
    """Return the configuration of a router in front of a broker. The password of the broker's user is in a file."""
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
    """Running router in front of a broker."""

    def __init__(self, router: RouterProcess) -> None:
        self.port = next(iter(router.ports.values()))
        self.management = Management(self.client())

    def client(self) -> AmqpPeer:
        return AmqpPeer.opened(self.port)

    def wait_active(self) -> None:
        """Wait until both auto links are active."""
        poll(lambda: self.states() == ["active", "active"], "both auto links are active", 30)

    def states(self) -> list[str]:
        """Return the operStatus of each auto link."""
        return [row["operStatus"] for row in self.management.query("router.config.autoLink", "operStatus")]


@pytest.fixture(params=[1, 3], ids=["1-worker", "3-workers"])
def gateway_router(broker: BrokerProcess, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayRouter]:
    """Router in front of the broker; its auto links are active."""
    router = RouterProcess(tmp_path, gateway_sections(broker, f"store{request.param}", tmp_path), request.param)
    router.start()
    gateway_router = GatewayRouter(router)
    gateway_router.wait_active()
    yield gateway_router
    router.stop()


def pass_through(gateway_router: GatewayRouter) -> None:
    """Send messages through the queue to an attached receiver and check their order."""
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


def test_auto_links_recover_after_broker_kill(gateway_router: GatewayRouter, broker: BrokerProcess) -> None:
    receiver = gateway_router.client().receiver(ADDRESS)
    broker.kill()
    poll(lambda: gateway_router.states() == ["inactive", "inactive"], "the broker is lost")
    broker.start()
    gateway_router.wait_active()
    receiver.detach()
    pass_through(gateway_router)


@pytest.mark.timeout(180)
def test_rabbitmq_without_the_queue_loses_no_message(
    rabbitmq: BrokerProcess, proton: ClientLauncher, tmp_path: Path
) -> None:
    """RabbitMQ 3.10 would accept messages for a queue that it does not have, and discard them."""
    count = 50
    router = RouterProcess(tmp_path, gateway_sections(rabbitmq, rabbitmq.existing("absent"), tmp_path), 1)
    router.start()
    gateway_router = GatewayRouter(router)
    router.wait_log(r"\(warning\) Auto link 'to' on .* is down: the broker has no '/amq/queue/absent'", 30)
    assert gateway_router.states() == ["failed", "failed"]
    steady = proton("steady", gateway_router.port, ADDRESS, count)
    assert proton("durable_queue", rabbitmq.port, "absent").result() is True
    gateway_router.wait_active()
    assert steady.result() == {"accepted": count}
    assert proton("collect", gateway_router.port, ADDRESS, count).result() == count
    router.stop()
