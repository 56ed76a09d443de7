"""Programs with python-qpid-proton in the style of its published examples."""

from tests.interop.conftest import ClientLauncher
from tests.system.router import RouterProcess

COUNT = 500


def test_simple_messages_arrive_in_order(router: RouterProcess, proton: ClientLauncher) -> None:
    receiver = proton("simple_recv", router.port, "examples", COUNT)
    sender = proton("simple_send", router.port, "examples", COUNT)
    assert sender.result() == COUNT
    assert receiver.result() == [{"sequence": n} for n in range(COUNT)]


def test_sender_before_receiver_waits_for_credit(router: RouterProcess, proton: ClientLauncher) -> None:
    """The sender has no credit until a receiver attaches."""
    sender = proton("simple_send", router.port, "closest/first", 10)
    receiver = proton("simple_recv", router.port, "closest/first", 10)
    assert sender.result() == 10
    assert len(receiver.result()) == 10


def test_requests_get_responses(router: RouterProcess, proton: ClientLauncher) -> None:
    server = proton("server", router.port, "service")
    server.wait_for("attached")
    texts = ["Twas brillig", "and the slithy toves", "did gire and gymble", "in the wabe"]
    clients = [proton("client", router.port, "service", *texts) for _ in range(3)]
    for client in clients:
        assert client.result() == [text.upper() for text in texts]


def test_multicast_messages_reach_all_receivers(router: RouterProcess, proton: ClientLauncher) -> None:
    receivers = [proton("simple_recv", router.port, "multicast/news", 50) for _ in range(3)]
    for receiver in receivers:
        receiver.wait_for("attached")
    assert proton("simple_send", router.port, "multicast/news", 50).result() == 50
    for receiver in receivers:
        assert receiver.result() == [{"sequence": n} for n in range(50)]


def test_competing_receivers_share_messages(router: RouterProcess, proton: ClientLauncher) -> None:
    receivers = [proton("simple_recv", router.port, "closest/shared", 20) for _ in range(2)]
    for receiver in receivers:
        receiver.wait_for("attached")
    assert proton("simple_send", router.port, "closest/shared", 40).result() == 40
    found = [body["sequence"] for receiver in receivers for body in receiver.result()]
    assert sorted(found) == list(range(40))


def test_blocking_api_sends_and_receives(router: RouterProcess, proton: ClientLauncher) -> None:
    assert proton("blocking", router.port, "blocking", 50).result() == list(range(50))
