"""Qpid JMS and go-amqp with the router, alone and together with other libraries."""

from __future__ import annotations

import pytest

from tests.interop.conftest import ClientLauncher
from tests.system.router import RouterProcess

COUNT = 50


@pytest.fixture(params=["jms", "go"])
def client(request: pytest.FixtureRequest) -> ClientLauncher:
    """Launcher of each library in turn."""
    found: ClientLauncher = request.getfixturevalue(request.param)
    return found


def test_messages_arrive_in_order(
    router: RouterProcess, client: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    address = f"others/{request.node.name}"
    receiver = client("receive", router.port, address, COUNT)
    receiver.wait_for("attached")
    assert client("send", router.port, address, COUNT).result() == COUNT
    assert receiver.result() == [str(n) for n in range(COUNT)]


def test_requests_to_proton_are_answered(
    router: RouterProcess, client: ClientLauncher, proton: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    address = f"others/{request.node.name}"
    proton("server", router.port, address).wait_for("attached")
    assert client("request", router.port, address, "one", "two").result() == ["ONE", "TWO"]


def test_requests_from_proton_are_answered(
    router: RouterProcess, client: ClientLauncher, proton: ClientLauncher, request: pytest.FixtureRequest
) -> None:
    address = f"others/{request.node.name}"
    client("server", router.port, address).wait_for("attached")
    assert proton("client", router.port, address, "one", "two").result() == ["ONE", "TWO"]


def test_messages_between_jms_and_go_arrive(router: RouterProcess, jms: ClientLauncher, go: ClientLauncher) -> None:
    for sender, receiver, address in ((jms, go, "others/to-go"), (go, jms, "others/to-jms")):
        taking = receiver("receive", router.port, address, COUNT)
        taking.wait_for("attached")
        assert sender("send", router.port, address, COUNT).result() == COUNT
        assert taking.result() == [str(n) for n in range(COUNT)]
