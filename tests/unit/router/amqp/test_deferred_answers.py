"""Deferred answers of a handler: SASL, open and begin. Only the peer's frames wait in the meantime."""

from typing import Any

import pytest

from sluice.router.amqp import sasl
from sluice.router.amqp.connection import Connection, Pause
from sluice.router.amqp.session import Session
from sluice.router.client.sender import Sender
from tests.unit.router.amqp.stub import MS, ConnectionPair, RecordingHandler

SECOND = 1000 * MS


class DeferredMechanism(sasl.Mechanism):
    """SASL mechanism whose answers come later, from elsewhere."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def step(self, response: bytes) -> Any:
        self.notes.append(("asked", response))
        return sasl.DEFERRED


class DeferringServer(RecordingHandler):
    """Server handler that defers its answers."""

    opens: bool = True
    offers: bool = True

    def authenticator(self) -> Any:
        self.sasl = sasl.SaslServer({"ANONYMOUS": lambda: DeferredMechanism(self.notes)} if self.offers else None)
        return self.sasl

    def on_open(self, connection: Connection, remote: dict[str, Any]) -> None:
        self.notes.append(("open", remote["container"]))
        if self.opens:
            connection.send_open("server")
        else:
            connection.pause(Pause.PAUSE_OPEN)

    def wake(self) -> None:
        """Continue, as the event loop does with a resumed connection."""
        self.feed(b"")

    def authenticate(self, user: str | None) -> None:
        self.connection.answer_sasl(self.sasl.answer(None, user))
        self.wake()


@pytest.fixture
def pair() -> ConnectionPair:
    pair = ConnectionPair()
    pair.server = DeferringServer()
    return pair


def test_mechanisms_are_offered_when_known(pair):
    pair.server.offers = False
    pair.client.connection.start()
    pair.run()
    assert pair.server.connection.paused == Pause.PAUSE_SASL
    assert pair.client.notes == []
    offer = pair.server.sasl.offer({"ANONYMOUS": sasl.Anonymous})
    pair.server.connection.answer_sasl(offer)
    pair.server.wake()
    pair.run()
    assert pair.client.notes == [("authenticated", "anonymous"), ("open", "server")]


@pytest.mark.parametrize("challenges", [0, 1])
def test_deferred_mechanism_continues_with_its_answer(pair, challenges):
    pair.client.connection.start()
    pair.run()
    assert pair.server.notes == [("asked", b"anonymous@here")]
    assert pair.client.notes == []
    if challenges:  # the client does not expect a challenge
        pair.server.connection.answer_sasl(pair.server.sasl.answer(b"who?", None))
        pair.server.wake()
        pair.run()
        text = "a challenge is not expected in ANONYMOUS (Authentication failed [mech=ANONYMOUS])"
        assert pair.client.notes == [("closed", ("amqp:unauthorized-access", text))]
        return
    pair.server.authenticate("ann")
    pair.run()
    assert pair.server.notes[1:] == [("authenticated", "ann"), ("open", "client")]
    assert pair.client.notes == [("authenticated", "anonymous"), ("open", "server")]


def test_deferred_mechanism_with_failure_closes_connection(pair):
    pair.client.connection.start()
    pair.run()
    pair.server.authenticate(None)
    pair.run()
    failed = "Failed to authenticate client [mech=ANONYMOUS]"
    assert pair.server.notes[-1] == ("closed", ("amqp:unauthorized-access", failed))
    ((kind, (condition, _)),) = pair.client.notes
    assert (kind, condition) == ("closed", "amqp:unauthorized-access")


def test_deferred_answer_does_not_extend_handshake_time(pair):
    pair.server.connection.limit_handshake(1000)
    pair.client.connection.start()
    pair.run()
    pair.server.scheduler.set_time(3 * SECOND)
    pair.server.connection.tick(pair.server.scheduler.now)
    assert pair.server.notes[-1] == ("closed", None)
    pair.server.authenticate("ann")  # the connection is closed
    assert pair.server.notes[-1] == ("closed", None)


SILENCE = "local-idle-timeout expired before the peer's "


@pytest.mark.parametrize(("idle", "limit", "ends_at"), [(500, 2000, 600), (0, 500, 600), (3000, 500, 600)])
def test_initiator_ends_handshake_with_silent_peer(pair, idle, limit, ends_at):
    """The shorter of idle time and handshake time counts."""
    client = pair.client
    client.connection.local_idle = idle
    client.connection.limit_handshake(limit)
    client.connection.start()
    pair.run()
    client.scheduler.set_time(400 * MS)
    assert client.connection.tick(400) == 501  # the clock began at 1
    assert client.notes == []
    client.scheduler.set_time(ends_at * MS)
    client.connection.tick(ends_at)
    assert client.notes == [("closed", ("amqp:resource-limit-exceeded", SILENCE + "answer in SASL"))]


def test_initiator_counts_silence_from_the_last_octet(pair):
    client = pair.client
    client.connection.local_idle = 500
    client.scheduler.set_time(400 * MS)
    client.connection.start()
    pair.run()
    assert client.connection.tick(600) == 900
    pair.server.authenticate("ann")
    pair.run()
    assert client.notes == [("authenticated", "anonymous"), ("open", "server")]


def hold_open_back(pair):
    """Let the client send open, begin and attach at once; the server holds its open back."""
    pair.server.opens = False
    pair.client.connection.start()
    pair.run()
    pair.server.authenticate("ann")
    pair.run()
    session = Session(pair.client.connection, None, None, pair.client)
    pair.client.attach(session, "out", Sender(pair.client))
    pair.run()


def test_deferred_open_delays_later_frames(pair):
    hold_open_back(pair)
    assert pair.server.notes[-1] == ("open", "client")
    assert pair.client.notes == [("authenticated", "anonymous")]
    pair.server.connection.limit(1024, 3)
    pair.server.connection.send_open("server")
    pair.server.connection.resume(Pause.PAUSE_OPEN)
    pair.server.wake()
    pair.run()
    assert pair.server.notes[-2:] == [("begin",), ("attach", "out")]
    assert pair.client.notes[1:] == [("open", "server"), ("begun",), ("attached", "out")]
    assert (pair.client.connection.remote_max_frame, pair.client.connection.remote_channel_max) == (1024, 3)


def test_deferred_open_can_be_refused(pair):
    hold_open_back(pair)
    pair.server.connection.send_open("server")
    pair.server.connection.close("amqp:resource-limit-exceeded", "no")
    pair.run()
    assert pair.client.notes[1] == ("open", "server")
    assert pair.client.notes[-1] == ("closed", ("amqp:resource-limit-exceeded", "no"))


def test_close_before_open_was_answered_sends_open_first(pair):
    """The router closes: the peer receives an open first, since every close needs an open before it."""
    hold_open_back(pair)
    pair.server.connection.close("amqp:connection:forced", "the router stops")
    pair.run()
    assert pair.client.notes[1] == ("open", "")
    assert pair.client.notes[-1] == ("closed", ("amqp:connection:forced", "the router stops"))


def test_heartbeat_is_not_sent_before_open(pair):
    pair.server.opens = False
    pair.client = RecordingHandler(initiator=True, idle_ms=2000)
    pair.client.connection.start()
    pair.run()
    pair.server.authenticate("ann")
    pair.run()
    pair.server.scheduler.set_time(30 * SECOND)
    assert pair.server.connection.tick(pair.server.scheduler.now) == 0
    assert pair.server.connection.take_output() == b""
