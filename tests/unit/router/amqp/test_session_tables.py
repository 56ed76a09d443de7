"""Memory of a session's tables, which follows the links attached at present, not all links ever attached."""

import gc
import sys
from typing import Any

import pytest

from sluice.router.amqp.object_table import ObjectTable
from sluice.router.amqp.session import Session
from tests.peer.talk import consumer, frames, of, say
from tests.unit.router.amqp.stub import ConnectionPair

MANY = 3000
LITTLE = 12_000  # octets of tables allowed for a session with a few links


class ServerSession:
    """Session whose client chooses the handles."""

    def __init__(self) -> None:
        self.pair = ConnectionPair()
        self.pair.session()
        self.server = self.pair.server

    def take(self) -> bytes:
        """Return the octets that the server has written."""
        octets: bytes = self.server.connection.take_output()
        return octets

    def feed(self, octets: bytes) -> None:
        """Pass frames to the server in a separate wake."""
        self.server.scheduler.go_on()
        self.server.feed(octets)

    def attach(self, handle: int) -> Any:
        """Attach a link. Return the server's attach."""
        self.feed(consumer(handle, "a", credit=0))
        (answer,) = of(frames(self), "attach")
        return answer

    def detach(self, handle: int) -> None:
        self.feed(say("detach", handle=handle, closed=True))
        assert of(frames(self), "detach")

    def table_octets(self) -> int:
        """Return the octets of the session's lists, dicts and sets, without the objects in them."""
        session: Session = self.server.links[0].session
        found, left = 0, list[object]([session])
        while left:
            for thing in gc.get_referents(left.pop()):
                if isinstance(thing, list | dict | set):
                    found += sys.getsizeof(thing)
                elif isinstance(thing, ObjectTable):
                    left.append(thing)
        return found


@pytest.fixture
def session() -> ServerSession:
    return ServerSession()


@pytest.mark.parametrize("step", [1, 16, 21])
def test_session_with_rising_handles_of_detached_links_stays_small(session, step):
    for handle in range(0, MANY * step, step):
        session.attach(handle)
        session.detach(handle)
    assert session.table_octets() < LITTLE


@pytest.mark.parametrize("kept", [0, MANY - 1])
def test_session_that_had_many_links_is_small_when_one_is_left(session, kept):
    for handle in range(MANY):
        session.attach(handle)
    assert session.table_octets() > 10 * LITTLE
    for handle in range(MANY):
        if handle != kept:
            session.detach(handle)
    assert session.table_octets() < LITTLE
    assert session.server.links[kept].handle == kept


def test_link_attached_after_many_were_detached_gets_lowest_free_handle(session):
    for handle in range(MANY):
        session.attach(handle)
    for handle in range(MANY - 1):
        session.detach(handle)
    for handle in range(5):
        assert session.attach(handle).handle == handle
    session.detach(MANY - 1)
    session.detach(2)
    assert session.attach(MANY).handle == 2


def test_links_of_sparse_handles_end_with_their_session(session):
    for handle in range(MANY):
        session.attach(handle)
    for handle in range(MANY - 10):
        session.detach(handle)
    session.feed(say("end"))
    while session.server.scheduler.go_on():
        session.feed(b"")
    assert of(frames(session), "end")
    assert all(link.ended for link in session.server.links)
