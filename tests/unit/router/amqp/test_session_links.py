"""Handles and names of a session's links (AMQP 1.0 part 2, 2.6.2, 2.7.3)."""

from typing import Any

import pytest

from tests.peer.talk import consumer, flow, frames, of, producer, say
from tests.unit.router.amqp.test_session_tables import ServerSession

HANDLE_IN_USE = "amqp:session:handle-in-use"
INVALID_FIELD = "amqp:invalid-field"


def exchange(session: ServerSession, octets: bytes) -> list[Any]:
    """Pass frames to the server in a separate wake; return its frames."""
    session.feed(octets)
    return frames(session)


def errors(session: ServerSession) -> list[tuple[str, str]]:
    """Return condition and description of the errors for which the connection ended."""
    return [note[1][:2] for note in session.server.notes if note[0] == "closed" and note[1]]


@pytest.fixture
def session() -> ServerSession:
    return ServerSession()


def test_handle_in_use_ends_connection(session: ServerSession) -> None:
    session.feed(consumer(5, "a", 0))
    session.feed(say("attach", name="other", handle=5, role=True))
    assert errors(session) == [(HANDLE_IN_USE, "handle 5 is in use")]


def test_name_in_use_ends_connection(session: ServerSession) -> None:
    attach = say("attach", name="c5", handle=6, role=True)
    session.feed(consumer(5, "a", 0))
    session.feed(attach)
    assert errors(session) == [(INVALID_FIELD, "link name already attached: c5")]


def test_links_of_both_directions_may_have_one_name(session: ServerSession) -> None:
    session.feed(consumer(0, "a", 0))
    frames(session)
    answers = exchange(session, say("attach", name="c0", handle=1, role=False, initial_delivery_count=0))
    assert [frame.handle for frame in of(answers, "attach")] == [1]
    assert errors(session) == []


def test_handle_and_name_of_detached_link_may_be_used_again(session: ServerSession) -> None:
    for _ in range(2):
        assert of(exchange(session, producer(3, "a")), "attach")[0].handle == 0
        assert of(exchange(session, say("detach", handle=3, closed=True)), "detach")[0].handle == 0
    assert errors(session) == []


@pytest.mark.parametrize("frame", [flow(9, 1), say("detach", handle=9, closed=True)], ids=["flow", "detach"])
def test_frame_for_handle_without_link_ends_connection(session: ServerSession, frame: bytes) -> None:
    session.feed(consumer(5, "a", 0))
    session.feed(frame)
    assert errors(session) == [(INVALID_FIELD, "no such handle: 9")]


def test_free_name_differs_from_names_of_same_direction_only(session: ServerSession) -> None:
    session.feed(consumer(0, "a", 0))
    own = session.server.links[0].session
    assert own.free_name("c0", True) == "c0"
    chosen = own.free_name("c0", False)
    assert chosen != "c0"
    session.feed(say("detach", handle=0, closed=True))
    assert own.free_name("c0", False) == "c0"
