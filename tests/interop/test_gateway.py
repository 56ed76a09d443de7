"""Router in front of real brokers: queues by auto links, a queue on both brokers, a broker killed under load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher
from tests.interop.gateway import auto_links, connector
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.router import SETTINGS, RouterProcess, listener

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

COUNT = 50
#: Messages sent while a broker is killed and restarted.
UNDER_LOAD = 2000


@contextmanager
def management(router: RouterProcess) -> Iterator[Management]:
    """Management client on a connection of its own."""
    peer = AmqpPeer.opened(router.port)
    yield Management(peer)
    peer.drop()


@pytest.fixture(scope="module")
def brokers(rabbitmq: BrokerProcess, artemis: BrokerProcess) -> list[BrokerProcess]:
    """Both brokers."""
    return [rabbitmq, artemis]


@pytest.fixture(scope="module", params=[1, 3], ids=["1-worker", "3-workers"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, brokers: list[BrokerProcess]
) -> Iterator[RouterProcess]:
    """Router with a queue on each broker, q.RabbitMQ and q.Artemis, and a queue on both, q.sharded."""
    sections = [listener(), *SETTINGS, ("address", {"prefix": "q", "waypoint": True})]
    for broker in brokers:
        sections += [connector(broker), *auto_links(f"q.{broker.name}", broker), *auto_links("q.sharded", broker)]
    router = RouterProcess(tmp_path_factory.mktemp(f"gateway{request.param}-"), sections, request.param)
    router.start()
    yield router
    router.stop()


@pytest.fixture(scope="module", autouse=True)
def _queues(brokers: list[BrokerProcess]) -> None:
    """Create the durable queues at the brokers."""
    clients = ClientLauncher.for_proton()
    for broker in brokers:
        for name in (f"q.{broker.name}", "q.sharded"):
            assert clients("durable_queue", broker.port, name).result() is True


@pytest.fixture(params=[0, 1], ids=["rabbitmq", "artemis"])
def broker(request: pytest.FixtureRequest, brokers: list[BrokerProcess]) -> BrokerProcess:
    """Broker under test: each of both in turn."""
    found: BrokerProcess = brokers[request.param]
    return found


def test_queue_without_receiver_stores_messages(
    gateway: RouterProcess, broker: BrokerProcess, proton: ClientLauncher
) -> None:
    """Without a receiver the queue stores the messages; a later receiver gets them."""
    address = f"q.{broker.name}"
    assert proton("steady", gateway.port, address, COUNT).result() == {"accepted": COUNT}
    assert proton("collect", gateway.port, address, COUNT).result() == COUNT


def test_sharded_queue_spreads_messages(
    gateway: RouterProcess, brokers: list[BrokerProcess], proton: ClientLauncher
) -> None:
    """Messages spread over both brokers; a single receiver gets the messages of both."""
    assert proton("steady", gateway.port, "q.sharded", COUNT).result() == {"accepted": COUNT}
    assert proton("collect", gateway.port, "q.sharded", COUNT).result() == COUNT
    with management(gateway) as found:
        rows = found.query("router.link")
    sent = [row["deliveryCount"] for row in rows if row["owningAddr"] == "M0q.sharded" and row["linkDir"] == "out"]
    assert len(sent) == len(brokers)
    assert min(sent) > 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("gateway", [3], indirect=True, ids=["3-workers"])
def test_broker_kill_under_load_loses_no_message(
    gateway: RouterProcess, broker: BrokerProcess, proton: ClientLauncher
) -> None:
    """Accepted messages arrive, some twice; senders and receivers recover without help."""
    address = f"q.{broker.name}"
    collect = proton("collect", gateway.port, address, UNDER_LOAD)
    steady = proton("steady", gateway.port, address, UNDER_LOAD)
    steady.wait_for("begun")
    broker.restart()
    outcomes = steady.result()
    assert outcomes.pop("accepted") == UNDER_LOAD
    assert sum(outcomes.values()) > 0, "messages were under way when the broker died"
    assert collect.result() >= UNDER_LOAD
    # No message is stuck: the next messages pass a queue that has at most repetitions.
    assert proton("steady", gateway.port, address, COUNT).result()["accepted"] == COUNT
    assert proton("collect", gateway.port, address, COUNT).result() >= COUNT
