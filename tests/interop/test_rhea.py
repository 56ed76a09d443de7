"""Clients with rhea for Node.js, alone and together with python-qpid-proton."""

from tests.interop.conftest import ClientLauncher
from tests.system.router import RouterProcess

COUNT = 500


def test_messages_arrive_in_order(router: RouterProcess, rhea: ClientLauncher) -> None:
    receiver = rhea("receive", router.port, "rhea/examples", COUNT)
    sender = rhea("send", router.port, "rhea/examples", COUNT)
    assert sender.result() == {"accepted": COUNT, "released": 0, "rejected": 0, "modified": 0}
    assert receiver.result() == [{"sequence": n} for n in range(COUNT)]


def test_requests_get_responses(router: RouterProcess, rhea: ClientLauncher) -> None:
    rhea("server", router.port, "rhea/service").wait_for("attached")
    clients = [rhea("client", router.port, "rhea/service", "one", "two", "three") for _ in range(2)]
    for client in clients:
        assert client.result() == ["ONE", "TWO", "THREE"]


def test_multicast_message_reaches_receivers(router: RouterProcess, rhea: ClientLauncher) -> None:
    found = rhea("multicast", router.port, "multicast/rhea", 3).result()
    assert found == {"copies": 3, "outcome": "accepted"}


def test_refused_attach_reports_condition(router: RouterProcess, rhea: ClientLauncher) -> None:
    found = rhea("refused", router.port, "unavailable/rhea").result()
    assert found == {"condition": "amqp:not-found", "description": "Node not found"}


def test_messages_between_proton_and_rhea_arrive(
    router: RouterProcess, rhea: ClientLauncher, proton: ClientLauncher
) -> None:
    receiver = rhea("receive", router.port, "mixed/one", 50)
    assert proton("simple_send", router.port, "mixed/one", 50).result() == 50
    assert receiver.result() == [{"sequence": n} for n in range(50)]
    back = proton("simple_recv", router.port, "mixed/two", 50)
    assert rhea("send", router.port, "mixed/two", 50).result()["accepted"] == 50
    assert back.result() == [{"sequence": n} for n in range(50)]


def test_requests_across_libraries_are_answered(
    router: RouterProcess, rhea: ClientLauncher, proton: ClientLauncher
) -> None:
    rhea("server", router.port, "mixed/by-rhea").wait_for("attached")
    proton("server", router.port, "mixed/by-proton").wait_for("attached")
    assert proton("client", router.port, "mixed/by-rhea", "a", "b").result() == ["A", "B"]
    assert rhea("client", router.port, "mixed/by-proton", "c", "d").result() == ["C", "D"]
