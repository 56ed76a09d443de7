"""Brokers behind a network of routers.

Clients connect to A of a line A - B - C, or to an edge router of A; C has the connectors to the brokers. Features that
only a broker has work as without routers: transactions, selectors, durable subscriptions, a queue between producers
and consumers, recovery of a broker killed under load.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher
from tests.interop.gateway import auto_links, connector, coordinator, link_routes
from tests.system.edges import EdgeView, edge, with_edges
from tests.system.networks import RouterView
from tests.system.networks import connector as to_router
from tests.system.router import SETTINGS, RouterProcess, Section

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

COUNT = 50
UNDER_LOAD = 1000
WAYPOINT: Section = ("address", {"prefix": "store", "waypoint": True})
# Link routes without a broker, for routers A and B. While a broker is down, C does not announce its link routes. With
# these, A refuses a client that attaches in this time, instead of treating the name as an ordinary address.
KNOWN: list[Section] = [
    ("linkRoute", {"prefix": prefix, "direction": direction, "containerId": "elsewhere"})
    for prefix in ("RabbitMQ", "Artemis")
    for direction in ("in", "out")
]


@pytest.fixture(scope="module", params=[(1, "A"), (3, "A"), (3, "E")], ids=["1-worker", "3-workers", "edge"])
def entry(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq: BrokerProcess,
    artemis: BrokerProcess,
) -> Iterator[RouterProcess]:
    """Router for the clients: A, or edge router E. Router A knows all addresses and link routes of C."""
    workers, place = request.param
    brokers: list[Section] = [coordinator(artemis), *auto_links(f"store.{artemis.name}", artemis)]
    for broker in (rabbitmq, artemis):
        brokers += [connector(broker), *link_routes(broker.name, broker)]
        existing = broker.existing("")
        brokers += link_routes(
            f"{broker.name}.durable", broker, **({"addExternalPrefix": existing} if existing else {})
        )
    routers: list[RouterProcess] = []
    for name in "ABC":
        to = [to_router(routers[-1].ports["net"])] if routers else []
        sections = [*with_edges(name), *SETTINGS, WAYPOINT, *to, *(brokers if name == "C" else KNOWN)]
        router = RouterProcess(tmp_path_factory.mktemp(f"{name}{workers}-"), sections, workers)
        router.start()
        routers.append(router)
    try:
        view = RouterView(routers[0])
        for key in ("C$coordinator", "CRabbitMQ", "DRabbitMQ", "CArtemis", "DArtemis", f"M0store.{artemis.name}"):
            view.wait_remote(key, "C")
        if place == "E":
            sections = [*edge("E", routers[0]), *SETTINGS, WAYPOINT]
            routers.append(RouterProcess(tmp_path_factory.mktemp("E-"), sections, workers))
            routers[-1].start()
            EdgeView(routers[0]).wait_consumers("HE", 1)
        yield routers[-1] if place == "E" else routers[0]
    finally:
        for router in reversed(routers):
            router.stop()


@pytest.fixture(params=["rabbitmq", "artemis"])
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """Broker under test: each of both in turn."""
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


def fresh(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test uses."""
    return f"{broker.name}.network.{request.node.name}"


def test_remote_queue_delivers_messages(
    entry: RouterProcess, broker: BrokerProcess, proton: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    name = fresh(broker, request)
    assert proton("simple_send", entry.port, name, COUNT).result() == COUNT
    assert len(proton("simple_recv", entry.port, name, COUNT).result()) == COUNT


def test_transactions_pass_network(
    entry: RouterProcess,
    artemis: BrokerProcess,
    proton: ClientLauncher,
    jms: ClientLauncher,
    request: pytest.FixtureRequest,
) -> None:
    committed = [f"committed {n}" for n in range(3)]
    name = fresh(artemis, request)
    assert proton("transact", entry.port, name, 3).result() == [committed, committed]
    assert jms("transact", entry.port, f"{name}.jms", 3).result() == ["0", "1", "2"]


def test_selectors_pass_network(
    entry: RouterProcess,
    artemis: BrokerProcess,
    jms: ClientLauncher,
    proton: ClientLauncher,
    request: pytest.FixtureRequest,
) -> None:
    name = fresh(artemis, request)
    assert jms("send", entry.port, name, 6).result() == 6
    assert proton("filtered", entry.port, name, 3, "parity = 'even'", "browse").result() == ["0", "2", "4"]
    assert jms("receive", entry.port, name, 3, "parity = 'odd'").result() == ["1", "3", "5"]


def test_durable_subscription_outlives_connection(
    entry: RouterProcess, artemis: BrokerProcess, proton: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    name = fresh(artemis, request)
    subscribe = partial(proton, "subscribe", "me", entry.port, name, "sub")
    lost = entry.log.count("Link lost")
    assert subscribe(0, "drop").result() == []
    entry.wait(lambda: entry.log.count("Link lost") > lost, "the router has noticed")
    assert proton("simple_send", entry.port, name, 3).result() == 3
    assert subscribe(3, "close").result() == [{"sequence": n} for n in range(3)]


def test_waypoint_queue_stores_and_forwards(
    entry: RouterProcess, artemis: BrokerProcess, proton: ClientLauncher
) -> None:
    """A queue of the broker stores messages between senders and receivers at the first router."""
    name = f"store.{artemis.name}"
    assert proton("simple_send", entry.port, name, COUNT).result() == COUNT
    assert len(proton("simple_recv", entry.port, name, COUNT).result()) == COUNT


@pytest.mark.timeout(180)
@pytest.mark.parametrize("entry", [(3, "A")], indirect=True, ids=["3-workers"])
def test_broker_kill_under_load_loses_no_message(
    entry: RouterProcess, broker: BrokerProcess, proton: ClientLauncher
) -> None:
    """Clients lose their links with the broker, attach again, and find all accepted messages."""
    name = f"{broker.name}.durable.far"
    assert proton("durable_queue", broker.port, name).result() is True
    collect = proton("collect", entry.port, name, UNDER_LOAD, "again")
    steady = proton("steady", entry.port, name, UNDER_LOAD, "again")
    steady.wait_for("begun")
    broker.restart()
    outcomes = steady.result()
    assert outcomes["accepted"] == UNDER_LOAD
    assert outcomes["detached"] > 0
    assert collect.result() >= UNDER_LOAD
    RouterView(entry).wait_remote(f"C{broker.name}", "C")
    assert proton("simple_send", entry.port, f"{broker.name}.after", COUNT).result() == COUNT
    assert len(proton("simple_recv", entry.port, f"{broker.name}.after", COUNT).result()) == COUNT
