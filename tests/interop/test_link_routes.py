"""Link routes to real brokers: features that only a broker has work as without a router."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher
from tests.interop.gateway import connector, coordinator, link_routes
from tests.system.router import SETTINGS, RouterProcess, listener

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

COUNT = 50
#: Messages sent while a broker is killed and restarted.
UNDER_LOAD = 2000
#: More messages than the router lets be in flight on one link (10,000). RabbitMQ grants 65,536 credits at once.
MANY = 12_000


@pytest.fixture(scope="module", params=[1, 3], ids=["1-worker", "3-workers"])
def gateway(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq: BrokerProcess,
    artemis: BrokerProcess,
) -> Iterator[RouterProcess]:
    """Router with link routes of `RabbitMQ.…` and `Artemis.…` to these brokers, and of transactions to Artemis."""
    sections = [listener(), *SETTINGS, coordinator(artemis)]
    for broker in (rabbitmq, artemis):
        sections += [connector(broker), *link_routes(broker.name, broker)]
        # The longer prefix wins. Below it are existing queues.
        existing = broker.existing("")
        sections += link_routes(
            f"{broker.name}.durable", broker, **({"addExternalPrefix": existing} if existing else {})
        )
    router = RouterProcess(tmp_path_factory.mktemp(f"routed{request.param}-"), sections, request.param)
    router.start()
    # Nine link routes: both directions of two prefixes for each broker, and the coordinator.
    router.wait(lambda: router.log.count("Link Route Activated") == 9, "link routes are active")
    yield router
    router.stop()


@pytest.fixture(params=["rabbitmq", "artemis"])
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """Broker under test: each of both in turn."""
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


def fresh(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test uses."""
    return f"{broker.name}.{request.node.name}"


def test_routed_attach_creates_queue(
    gateway: RouterProcess,
    broker: BrokerProcess,
    proton: ClientLauncher,
    rhea: ClientLauncher,
    request: pytest.FixtureRequest,
) -> None:
    """The broker creates the queue on attach, with the client's address."""
    name = fresh(broker, request)
    assert proton("simple_send", gateway.port, name, COUNT).result() == COUNT
    assert rhea("receive", gateway.port, name, COUNT).result() == [{"sequence": n} for n in range(COUNT)]


def test_sender_goes_on_after_its_first_credit(
    gateway: RouterProcess, broker: BrokerProcess, proton: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    assert proton("simple_send", gateway.port, fresh(broker, request), MANY).result() == MANY


@pytest.mark.parametrize("gateway", [3], indirect=True, ids=["3-workers"])
@pytest.mark.parametrize("client", ["jms", "go"])
def test_jms_and_go_clients_use_link_route(
    gateway: RouterProcess, broker: BrokerProcess, client: str, request: pytest.FixtureRequest
) -> None:
    clients: ClientLauncher = request.getfixturevalue(client)
    name = fresh(broker, request)
    assert clients("send", gateway.port, name, COUNT).result() == COUNT
    assert clients("receive", gateway.port, name, COUNT).result() == [str(n) for n in range(COUNT)]


def test_rust_client_uses_link_route(
    gateway: RouterProcess, artemis: BrokerProcess, rust: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    """RabbitMQ 3.10 is left out: it answers a close with a detach that closes nothing, which the client refuses."""
    name = fresh(artemis, request)
    assert rust("send", gateway.port, name, COUNT).result() == COUNT
    assert rust("receive", gateway.port, name, COUNT).result() == [str(n) for n in range(COUNT)]


def test_selectors_pass_link_route(
    gateway: RouterProcess,
    artemis: BrokerProcess,
    jms: ClientLauncher,
    proton: ClientLauncher,
    request: pytest.FixtureRequest,
) -> None:
    """A browsing receiver leaves the messages in the queue; a consuming one takes the messages that match."""
    name = fresh(artemis, request)
    assert jms("send", gateway.port, name, 6).result() == 6
    even = "parity = 'even'"
    assert proton("filtered", gateway.port, name, 3, even, "browse").result() == ["0", "2", "4"]
    assert proton("filtered", gateway.port, name, 3, even).result() == ["0", "2", "4"]
    assert jms("browse", gateway.port, name).result() == ["1", "3", "5"]
    assert jms("receive", gateway.port, name, 1, "parity = 'odd'").result() == ["1"]


def test_transactions_pass_link_route(
    gateway: RouterProcess,
    artemis: BrokerProcess,
    jms: ClientLauncher,
    rust: ClientLauncher,
    proton: ClientLauncher,
    request: pytest.FixtureRequest,
) -> None:
    name = fresh(artemis, request)
    committed = [f"committed {n}" for n in range(3)]
    assert proton("transact", gateway.port, name, 3).result() == [committed, committed]
    assert jms("transact", gateway.port, f"{name}.jms", 3).result() == ["0", "1", "2"]
    assert rust("transact", gateway.port, f"{name}.rust", 3).result() == ["0", "1", "2"]


def test_durable_subscription_outlives_detach(
    gateway: RouterProcess, artemis: BrokerProcess, proton: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    """The subscription survives a lost connection and a detach, and ends with a close."""
    name = fresh(artemis, request)

    def subscribe(count: int, how: str) -> list[dict[str, int]]:
        found: list[dict[str, int]] = proton("subscribe", "me", gateway.port, name, "sub", count, how).result()
        return found

    def send(count: int) -> list[dict[str, int]]:
        assert proton("simple_send", gateway.port, name, count).result() == count
        return [{"sequence": n} for n in range(count)]

    subscribe(0, "drop")
    # The broker gives the subscription to the next client only after the detach of the lost one has reached it.
    gateway.wait(lambda: gateway.log.count("Link lost") > 0, "the router has noticed")
    sent = send(3)
    assert subscribe(3, "detach") == sent
    sent = send(4)
    assert subscribe(2, "close") == sent[:2]
    another = proton("subscribe", "me", gateway.port, name, "sub", 1, "close")
    another.wait_for("attached")
    assert proton("simple_send", gateway.port, name, 1).result() == 1
    assert another.result() == [{"sequence": 0}], "what the one that was closed had left is gone"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("gateway", [3], indirect=True, ids=["3-workers"])
def test_broker_kill_under_load_loses_no_message(
    gateway: RouterProcess, broker: BrokerProcess, proton: ClientLauncher
) -> None:
    """Clients lose their routed links with the broker, attach again, and find all accepted messages."""
    name = f"{broker.name}.durable.killed"
    assert proton("durable_queue", broker.port, name).result() is True
    broker.wait_until_kept(name)
    collect = proton("collect", gateway.port, name, UNDER_LOAD, "again")
    steady = proton("steady", gateway.port, name, UNDER_LOAD, "again")
    steady.wait_for("begun")
    broker.restart()
    outcomes = steady.result()
    assert outcomes["accepted"] == UNDER_LOAD
    assert outcomes["detached"] > 0
    assert collect.result() >= UNDER_LOAD
    assert proton("simple_send", gateway.port, f"{broker.name}.after", COUNT).result() == COUNT
    assert len(proton("simple_recv", gateway.port, f"{broker.name}.after", COUNT).result()) == COUNT
