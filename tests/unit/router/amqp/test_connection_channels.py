"""Channel numbers of sessions, of both sides (AMQP 1.0 part 2, 2.5.1)."""

from typing import Any

import pytest

from sluice.router.amqp.errors import RemoteError
from sluice.router.amqp.session import Session
from tests.peer.frames import AMQP_HEADER
from tests.peer.talk import begin, frames, of, say
from tests.unit.router.amqp.stub import RecordingHandler

CHANNEL_MAX = 3  # four sessions


class FewChannelsServer:
    """Server's end of an open connection with few channels. channel_max: of the peer."""

    def __init__(self, channel_max: int = 0xFFFF) -> None:
        self.handler = RecordingHandler(channel_max=CHANNEL_MAX)
        self.connection = self.handler.connection
        self.handler.feed(AMQP_HEADER + say("open", container_id="c", channel_max=channel_max))
        self.answers()

    def take(self) -> bytes:
        octets: bytes = self.connection.take_output()
        return octets

    def answers(self, octets: bytes = b"") -> list[Any]:
        self.handler.feed(octets)
        return frames(self)

    def begin(self) -> Session:
        """Begin a session from this side."""
        return Session(self.connection, None, None, self.handler)


def test_session_of_peer_is_answered_on_its_channel():
    server = FewChannelsServer()
    (answer,) = of(server.answers(begin(2)), "begin")
    assert (answer.channel, answer.remote_channel) == (2, 2)


def test_session_of_peer_gets_other_channel_if_its_number_is_taken():
    server = FewChannelsServer()
    own = server.begin()
    assert own.local_channel == 0
    (_, answer) = of(server.answers(begin(0)), "begin")
    assert (answer.channel, answer.remote_channel) == (1, 0)


def test_own_sessions_use_lowest_free_channel():
    server = FewChannelsServer()
    assert [server.begin().local_channel for _ in range(2)] == [0, 1]
    server.answers(begin(3))
    assert server.begin().local_channel == 2


def test_session_is_matched_with_its_begin_by_remote_channel():
    server = FewChannelsServer()
    first, second = server.begin(), server.begin()
    server.answers(say("begin", channel=3, remote_channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    assert (second.unanswered, second.remote_channel) == (False, 3)
    assert first.unanswered
    assert server.handler.notes[-1] == ("begun",)


@pytest.mark.parametrize("ours", [2, 1], ids=["never-begun", "answered-before"])
def test_begin_that_answers_no_session_is_a_session_of_the_peer(ours):
    server = FewChannelsServer()
    own = [server.begin(), server.begin()]
    server.answers(say("begin", channel=1, remote_channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    again = say("begin", channel=2, remote_channel=ours, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    (answer,) = of(server.answers(again), "begin")
    assert (answer.channel, answer.remote_channel) == (2, 2)
    assert [session.unanswered for session in own] == [True, False]


@pytest.mark.parametrize(("channel_max", "sessions"), [(0xFFFF, CHANNEL_MAX + 1), (1, 2), (0, 1)])
def test_sessions_of_both_sides_are_limited_by_lower_channel_max(channel_max, sessions):
    server = FewChannelsServer(channel_max)
    assert server.connection.channels_left() == sessions
    server.answers(begin(0))
    for _ in range(sessions - 1):
        server.begin()
    assert (server.connection.channels_open(), server.connection.channels_left()) == (sessions, 0)
    with pytest.raises(RemoteError, match="no channel is left for another session"):
        server.begin()


def test_ended_session_leaves_its_channel():
    server = FewChannelsServer()
    server.answers(begin(0) + begin(1))
    assert of(server.answers(say("end", channel=0)), "end")
    assert (server.connection.channels_open(), server.begin().local_channel) == (1, 0)
