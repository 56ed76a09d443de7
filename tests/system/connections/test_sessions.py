"""Sessions (routing-semantics.md 2)."""

import pytest

from tests.peer import message
from tests.peer.peer import WIDE
from tests.system.fixtures import Connect, Fresh, pair, pass_one
from tests.system.router import RouterProcess, Section, listener

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [listener("bounded", maxFrameSize=2048, maxSessionFrames=5)]


# brokers-and-edge.md W-3.
def test_begin_is_answered_with_wide_windows(connect: Connect) -> None:
    session = connect().begin(channel=3)
    assert session.remote is not None
    assert session.remote.channel == 3
    assert session.remote.remote_channel == 3
    assert session.remote.next_outgoing_id == 0
    assert session.remote.outgoing_window == WIDE
    assert session.remote.incoming_window == WIDE
    assert session.remote.handle_max == 65535


def test_begin_on_bounded_listener_has_its_window(connect: Connect) -> None:
    session = connect("bounded").begin()
    assert session.remote is not None
    assert session.remote.incoming_window == 5


def test_bounded_window_is_reopened_repeatedly(connect: Connect, fresh: Fresh) -> None:
    """Send many more frames than the window holds, each when the window allows."""
    sender, receiver = pair(connect, fresh(), credit=50, into="bounded")
    for number in range(40):
        sender.peer.until(lambda: sender.session.remote_window > 0, "an open window")
        sender.send(message.message(number), settled=True)
    assert [message.body(one.payload) for one in receiver.receive(40)] == list(range(40))


def test_bounded_window_is_closed_by_a_slow_consumer(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0, into="bounded")
    sent, frame = 0, bytes(1900)
    sender.send(message.data(bytes(1 << 20))[:100], more=True)
    while sent < 1 << 20:
        if sender.session.remote_window <= 0:
            sender.peer.barrier()
            if sender.session.remote_window <= 0:
                break
        sender.send(frame, more=True)
        sent += len(frame)
    assert 30_000 < sent < 1 << 20, sent
    receiver.flow(1)
    receiver.next(complete=False)
    sender.peer.until(lambda: sender.session.remote_window > 0, "the window opens when the consumer takes data")


def test_clients_incoming_window_is_obeyed(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    narrow = connect().begin(incoming_window=2)
    receiver = narrow.receiver(address, 10)
    sender = connect().sender(address)
    for number in range(5):
        sender.send(message.message(number), settled=True)
    receiver.receive(2)
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 2
    narrow.flow()
    receiver.receive(2)
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 4
    narrow.flow()
    receiver.next()


@pytest.mark.parametrize("next_id", [3, 0x7FFFFFFF, None], ids=["ahead", "far-ahead", "absent"])
def test_consumer_that_counts_transfers_wrongly_gets_its_messages(
    connect: Connect, fresh: Fresh, router: RouterProcess, next_id: int | None
) -> None:
    """The window is counted from the transfers sent: never exceeded, and never stalled (routing-semantics.md S-4)."""
    address = fresh()
    session = connect().begin(incoming_window=5)
    receiver = session.receiver(address)
    sender = connect().sender(address)
    sender.peer.barrier()
    session.flow(handle=receiver.handle, delivery_count=0, link_credit=100, next_incoming_id=next_id)
    for number in range(20):
        sender.send(message.message(number), settled=True)
    for first in range(0, 20, 5):
        assert [message.body(one.payload) for one in receiver.receive(5)] == list(range(first, first + 5))
        receiver.peer.barrier()
        assert len(receiver.deliveries) == first + 5
        ahead = None if next_id is None else (first + 5 + next_id) % (1 << 32)
        session.flow(next_incoming_id=ahead)
    router.wait_log("The peer counts transfers wrongly")


def test_flow_that_is_far_behind_opens_no_window(connect: Connect, fresh: Fresh) -> None:
    """Ids are serial numbers: one that is behind by more than the window is not mistaken for one ahead."""
    address = fresh()
    session = connect().begin(incoming_window=5)
    receiver = session.receiver(address, 100)
    sender = connect().sender(address)
    for number in range(20):
        sender.send(message.message(number), settled=True)
    receiver.receive(5)
    for behind in (0, 0x90000000, 0xFFFFFFFF):
        session.flow(next_incoming_id=behind)
        receiver.peer.barrier()
        assert len(receiver.deliveries) == 5
    session.flow()
    receiver.receive(5)


def test_clients_max_frame_size_is_obeyed(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect(max_frame_size=512).receiver(address, 5)
    sender = connect().sender(address)
    sender.send(message.data(bytes(5000)), settled=True)
    delivery = receiver.next()
    assert message.body(delivery.payload) == bytes(5000)
    assert max(frame.size for frame in delivery.transfers) <= 512


def test_first_ids_are_the_clients_choice(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(address, 5)
    session = connect().begin(next_outgoing_id=4294967294)
    session.next_delivery_id = 4294967294
    sender = session.sender(address)
    assert sender.flows[0].next_incoming_id == 4294967294
    for number in range(4):
        pass_one(sender, receiver, number)


def test_delivery_ids_may_begin_anywhere(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    sender.session.next_delivery_id = 77
    pass_one(sender, receiver)


def test_end_is_answered_and_other_sessions_go_on(connect: Connect, fresh: Fresh) -> None:
    address, other = fresh(), fresh()
    peer = connect()
    ended = peer.begin()
    ended.receiver(address, 10)
    unaffected = peer.begin().receiver(other, 10)
    sender = connect().sender(address)
    number = sender.send(message.message("sent, unsettled"))
    peer.expect("transfer")
    ended.end()
    assert sender.outcome(number).name == "modified"
    pass_one(connect().sender(other), unaffected)


def test_echo_on_a_link_is_answered(connect: Connect, fresh: Fresh) -> None:
    receiver = connect().receiver(fresh(), 5)
    receiver.flow(5, echo=True)
    receiver.peer.until(lambda: receiver.flows, "flow that answers echo")


def test_echo_on_a_session_is_answered(connect: Connect) -> None:
    peer = connect()
    session = peer.begin()
    session.flow(echo=True)
    # The window is bounded from the first flow on; until then the value of the begin holds.
    assert 0 < peer.expect("flow", channel=session.remote_channel).incoming_window < WIDE


def test_sessions_of_one_connection_all_deliver(connect: Connect, fresh: Fresh) -> None:
    peer, address = connect(), fresh()
    receiver = connect().receiver(address, 40)
    for number in range(20):
        sender = peer.begin().sender(address)
        pass_one(sender, receiver, number)


def test_channel_is_used_again_after_end(connect: Connect, fresh: Fresh) -> None:
    peer, address = connect(), fresh()
    receiver = connect().receiver(address, 10)
    for _ in range(3):
        session = peer.begin(channel=1)
        pass_one(session.sender(address), receiver)
        session.end()
        peer.sessions.remove(session)
