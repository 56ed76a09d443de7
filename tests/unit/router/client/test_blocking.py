"""Blocking client, connected to a small broker in this process."""

import socket
import threading
import time

import pytest

from sluice.router.amqp import codec
from sluice.router.client import (
    Accepted,
    Backoff,
    ConnectionFailedError,
    LinkDetachedError,
    Message,
    Modified,
    Rejected,
    Released,
    StaleDeliveryError,
    Terminus,
    Tls,
    UnsettledError,
    connect,
)
from sluice.router.client import outcome as outcomes
from tests.unit.router.client.server import EngineBroker, TwoStepPlain

PATIENCE = 10.0
MANY = 200
QUICK = Backoff(first=0.01, most=0.05)

IDLE_MS = 2000  # idle time-out of a broker whose client sends nothing; a slow machine may use part of it

_OPEN_BODY = codec.encode_described(0x10, [codec.encode_string("silent")])
OPEN = (8 + len(_OPEN_BODY)).to_bytes(4, "big") + b"\2\0\0\0" + _OPEN_BODY


@pytest.fixture
def broker():
    with EngineBroker() as running:
        yield running


def test_message_is_sent_and_received(broker):
    with connect(broker.url, timeout=PATIENCE) as connection:
        assert connection.remote["container"] == "server"
        assert connection.sender("q").send(Message("hello", subject="s"), timeout=PATIENCE) == Accepted()
        receiver = connection.receiver("q")
        assert receiver.address == "q"
        delivery = receiver.receive(timeout=PATIENCE)
        assert (delivery.message.body, delivery.message.subject) == ("hello", "s")
        delivery.accept()
        delivery.accept()
    assert [state for _, state in broker.heard] == [codec.encode_described(0x24, [])]


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        (lambda delivery: delivery.accept(), Accepted()),
        (lambda delivery: delivery.reject("a:b", "why"), Rejected("a:b", "why")),
        (lambda delivery: delivery.release(), Released()),
        (lambda delivery: delivery.modify(True, True), Modified(True, True)),
    ],
)
def test_outcome_reaches_broker(broker, how, outcome):
    broker.outcomes["q"] = outcomes.encode(outcome)
    with connect(broker.url) as connection:
        assert connection.sender("q").send(Message(1), timeout=PATIENCE) == outcome
        how(connection.receiver("q").receive(timeout=PATIENCE))
    assert broker.heard == [(Message(1).encode(), outcomes.encode(outcome))]


def test_receiver_that_settles_second_is_answered():
    with EngineBroker(second=True) as broker, connect(broker.url) as connection:
        assert connection.sender("q").send(Message(1), timeout=PATIENCE) == Accepted()
        connection.poll(0.05)
        assert broker.sides[0].links[0].unsettled == {}


def test_links_beyond_one_turn_are_handled(broker):
    """A client has its engine to itself: no work in it waits for turns of other connections."""
    with connect(broker.url, reconnect=QUICK) as connection:
        receivers = [connection.receiver(f"q{number}", timeout=PATIENCE) for number in range(MANY)]
        for number in range(MANY):
            sender = connection.sender(f"q{number}", timeout=PATIENCE)
            assert sender.send(Message(number), timeout=PATIENCE) == Accepted()
            sender.close()
        broker.cut()
        for number, receiver in enumerate(receivers):
            assert receiver.receive(timeout=PATIENCE).message.body == number


def test_settled_and_large_messages_are_delivered(broker):
    body = bytes(range(256)) * 4000
    with connect(broker.url) as connection:
        assert connection.sender("q").send(Message(body), settled=True, timeout=PATIENCE) is None
        assert connection.receiver("q").receive(timeout=PATIENCE).message.body == body


def test_messages_arrive_in_order_within_credit(broker):
    with connect(broker.url) as connection:
        outcomes = connection.sender("q").send_all([Message(n) for n in range(1000)], timeout=PATIENCE)
        assert outcomes == [Accepted()] * 1000
        receiver = connection.receiver("q", window=10)
        for number in range(1000):
            assert len(receiver.state.arrived) <= 10
            delivery = receiver.receive(timeout=PATIENCE)
            assert delivery.message.body == number
            delivery.accept()


def test_manual_credit_can_be_drained(broker):
    with connect(broker.url) as connection:
        connection.sender("q").send_all([Message(n) for n in range(3)], timeout=PATIENCE)
        receiver = connection.receiver("q", window=0)
        with pytest.raises(TimeoutError):
            receiver.receive(timeout=0.05)
        receiver.flow(2)
        assert [receiver.receive(timeout=PATIENCE).message.body for _ in range(2)] == [0, 1]
        receiver.flow(10)
        receiver.drain(timeout=PATIENCE)
        assert receiver.receive(timeout=0).message.body == 2
        with pytest.raises(TimeoutError):
            receiver.receive(timeout=0)
        kept = connection.receiver("other", window=5)
        kept.drain(timeout=PATIENCE)
        connection.sender("other").send(Message("later"), timeout=PATIENCE)
        assert kept.receive(timeout=PATIENCE).message.body == "later"


def test_send_without_credit_times_out():
    with EngineBroker(credit=0) as broker, connect(broker.url) as connection:
        sender = connection.sender("q")
        with pytest.raises(TimeoutError):
            sender.send(Message(1), timeout=0.05)
        assert broker.queues["q"] == type(broker.queues["q"])()


def test_refused_link_gives_reason(broker):
    broker.refused.add("q")
    with connect(broker.url) as connection:
        for attach in (connection.sender, connection.receiver):
            with pytest.raises(LinkDetachedError, match="amqp:not-found: no q") as caught:
                attach("q", timeout=PATIENCE)
            assert caught.value.condition == "amqp:not-found"
        assert connection.sender("other").send(Message(1), timeout=PATIENCE) == Accepted()


def test_dynamic_address_is_given(broker):
    with connect(broker.url) as connection:
        assert connection.receiver(None).address == "made-up"
        assert connection.receiver("x", source=Terminus("x", capabilities=("topic",))).address == "x"


def test_user_and_password_are_sent():
    class TwoStepClient:
        name, response, user, computes, refusal = "PLAIN", b"\0u\0secret", "u", False, ""

        def choose(self, offered):
            return offered == ["PLAIN"]

        def step(self, challenge):
            assert challenge == b"sure?"
            return b"yes"

        def finish(self, additional):
            assert additional is None

    with EngineBroker(mechanisms={"PLAIN": TwoStepPlain}) as broker:
        with connect(broker.url, mechanisms=[TwoStepClient()], timeout=PATIENCE) as connection:
            assert connection.sender("q").send(Message(1), timeout=PATIENCE) == Accepted()
        # A mechanism of one step has no answer to a challenge.
        url = f"amqp://u:secret@127.0.0.1:{broker.port}"
        with pytest.raises(ConnectionFailedError, match="a challenge is not expected in PLAIN"):
            connect(url, timeout=PATIENCE, reconnect=QUICK, allow_insecure_mechs=True)
        with pytest.raises(ConnectionFailedError, match=r"the peer offers PLAIN; usable here: ANONYMOUS"):
            connect(broker.url, timeout=PATIENCE, reconnect=QUICK)
    assert broker.connected == 3


@pytest.mark.parametrize("more", [{}, {"mechanisms": ["PLAIN"]}, {"token": "t"}])
def test_password_is_not_sent_without_tls(more):
    with EngineBroker(mechanisms={"PLAIN": TwoStepPlain}) as broker:
        url = f"amqp://u:secret@127.0.0.1:{broker.port}"
        with pytest.raises(ConnectionFailedError, match="PLAIN needs TLS, or allow_insecure_mechs=True"):
            connect(url, timeout=PATIENCE, reconnect=QUICK, **more)
    assert broker.connected == 1


def test_tls_settings_need_tls():
    with pytest.raises(ValueError, match="one URL is not amqps"):
        connect(["amqps://127.0.0.1", "amqp://127.0.0.1"], tls=Tls())
    for wrong in (Tls(ca_file="/nowhere"), Tls(certificate="/nowhere"), Tls(key="/nowhere")):
        with pytest.raises(ConnectionFailedError, match="/nowhere"):
            connect("amqps://127.0.0.1", tls=wrong)


def test_tls_to_plain_listener_fails(broker):
    with pytest.raises(ConnectionFailedError, match="TLS: "):
        connect(broker.url.replace("amqp:", "amqps:"), timeout=PATIENCE)


def test_connection_to_closed_port_fails():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}: Connection refused") as caught:
            connect(f"amqp://127.0.0.1:{port}")
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        with pytest.raises(TimeoutError):
            connect(f"amqp://127.0.0.1:{port}", reconnect=QUICK, timeout=0.1)
        with EngineBroker() as broker, connect([f"127.0.0.1:{port}", broker.url]) as connection:
            assert connection.remote["container"] == "server"


def test_connection_to_silent_peer_times_out():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"amqp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ConnectionFailedError, match="idle-timeout"):
            connect(url, handshake=0.1)
        with pytest.raises(TimeoutError):
            connect(url, timeout=0.1)


def test_error_of_peer_is_raised(broker):
    with connect(broker.url) as connection:
        receiver = connection.receiver("q")
        broker.say("amqp:connection:forced", "go")
        with pytest.raises(ConnectionFailedError, match="amqp:connection:forced: go"):
            receiver.receive(timeout=PATIENCE)
        with pytest.raises(ConnectionFailedError, match="amqp:connection:forced: go"):
            connection.sender("q")


@pytest.mark.parametrize(
    "cut", [lambda broker: broker.cut(), lambda broker: broker.say("amqp:connection:forced", "go")]
)
def test_reconnection_attaches_links_and_resends_nothing(broker, cut):
    broker.outcomes["q"] = None
    broker.credit = 2
    with connect(broker.url, reconnect=QUICK) as connection:
        sender, receiver = connection.sender("q"), connection.receiver("in")
        connection.sender("in").send(Message("one"), timeout=PATIENCE)
        old = receiver.receive(timeout=PATIENCE)
        threading.Timer(0.1, cut, [broker]).start()
        with pytest.raises(UnsettledError, match="the outcome is unknown") as caught:
            sender.send(Message("lost"), timeout=PATIENCE)
        assert caught.value.sent
        broker.outcomes.clear()
        assert sender.send(Message("again"), timeout=PATIENCE) == Accepted()
        with pytest.raises(StaleDeliveryError):
            old.accept()
        assert broker.connected == 2
        assert list(broker.queues["q"]) == [Message(body).encode() for body in ("lost", "again")]
        # The broker has queued the unsettled message again.
        assert receiver.receive(timeout=PATIENCE).message.body == "one"


def test_reconnection_ends_after_its_attempts():
    with EngineBroker() as broker:
        connection = connect(broker.url, reconnect=Backoff(first=0.01, attempts=3))
        receiver = connection.receiver("q")
    with pytest.raises(ConnectionFailedError, match="Connection refused"):
        receiver.receive(timeout=PATIENCE)
    connection.close()


def test_heartbeats_are_sent_while_a_call_waits():
    with EngineBroker(idle_ms=IDLE_MS) as broker, connect(broker.url, idle=0) as connection:
        receiver = connection.receiver("q")
        with pytest.raises(TimeoutError):
            receiver.receive(timeout=1.5 * IDLE_MS / 1000)
        assert broker.connected == 1
        assert connection.sender("q").send(Message(1), timeout=PATIENCE) == Accepted()


def test_silent_peer_is_disconnected(broker):
    connection = connect(broker.url, idle=0.2)
    with broker.lock, pytest.raises(ConnectionFailedError, match="idle-timeout expired"):
        connection.poll(PATIENCE)


def test_close_sends_pending_outcomes(broker):
    with connect(broker.url) as connection:
        connection.sender("q").send_all([Message(n) for n in range(50)], timeout=PATIENCE)
        receiver = connection.receiver("q")
        for _ in range(50):
            receiver.receive(timeout=PATIENCE).accept()
    deadline = time.monotonic() + PATIENCE
    while len(broker.heard) < 50 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(broker.heard) == 50


def test_client_without_sasl_begins_with_amqp_header(broker):
    broker.mechanisms = {}
    with connect(broker.url, timeout=PATIENCE, sasl=False) as connection:
        assert connection.sender("q").send(Message("hello"), timeout=PATIENCE) == Accepted()
    with pytest.raises(ConnectionFailedError, match="no mechanism in common"):
        connect(broker.url, timeout=PATIENCE)


def test_unknown_mechanism_is_named():
    with EngineBroker(mechanisms={"GSSAPI": None}) as broker:
        text = "the peer offers GSSAPI; usable here: none. This client does not implement GSSAPI DIGEST-MD5"
        with pytest.raises(ConnectionFailedError, match=text) as caught:
            connect(broker.url, timeout=PATIENCE, mechanisms=["GSSAPI", "DIGEST-MD5"])
    assert not caught.value.closed_by_peer


def test_started_message_is_received_by_its_sender():
    """The broker settles only when the message has been received."""
    with EngineBroker(outcomes={"q": None}) as broker, connect(broker.url, timeout=PATIENCE) as connection:
        receiver = connection.receiver("q")
        sending = connection.sender("q").start_send(Message("hello"), timeout=PATIENCE)
        assert receiver.receive(timeout=PATIENCE).message.body == "hello"
        assert not sending.done


def test_close_of_peer_differs_from_loss(broker):
    with connect(broker.url, timeout=PATIENCE) as connection:
        broker.say("amqp:connection:forced", "go")
        with pytest.raises(ConnectionFailedError) as caught:
            connection.receiver("q", timeout=PATIENCE)
    assert caught.value.closed_by_peer
    with connect(broker.url, timeout=PATIENCE) as connection:
        broker.cut()
        with pytest.raises(ConnectionFailedError) as caught:
            connection.receiver("q", timeout=PATIENCE)
    assert not caught.value.closed_by_peer


def test_close_waits_as_long_as_given():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = threading.Thread(target=close_unanswered, args=(listener.getsockname()[1],))
        client.start()
        transport, _ = listener.accept()
        with transport:
            transport.sendall(b"AMQP\0\1\0\0" + OPEN)
            client.join(PATIENCE)
            assert not client.is_alive()


def close_unanswered(port):
    """Open a connection, and close it with little patience."""
    connect(f"amqp://127.0.0.1:{port}", timeout=PATIENCE, sasl=False).close(timeout=0.01)
