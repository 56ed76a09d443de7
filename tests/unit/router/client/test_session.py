"""Sessions of a client, which outlive their transports."""

from typing import Any

import pytest

from sluice.router.client import LinkDetachedError
from sluice.router.client.attach import Terminus
from sluice.router.client.links import SenderState
from sluice.router.client.session import SessionState
from tests.peer.talk import say
from tests.peer.types import Described, Symbol, ULong
from tests.unit.router.amqp.stub import attach_items
from tests.unit.router.client.exchange import NOW, CoreExchange


def attached(exchange: CoreExchange) -> list[str]:
    """Return the names of the links that the server has seen, in order."""
    return [note[1] for note in exchange.server.notes if note[0] == "attach"]


def add(session: SessionState, *names: str) -> list[SenderState]:
    return [session.sender(source=Terminus(), target=Terminus("q"), name=name) for name in names]


def test_links_wait_for_their_session():
    exchange = CoreExchange()
    session = exchange.core.session()
    add(session, "a", "b")
    assert not session.begun
    exchange.connect()
    add(session, "c")
    exchange.run()
    assert attached(exchange) == ["a", "b", "c"]


def test_open_links_are_attached_again_after_reconnection():
    exchange = CoreExchange()
    sessions = [exchange.core.session() for _ in range(2)]
    first, _, _ = [*add(sessions[0], "a", "b"), *add(sessions[1], "c")]
    exchange.connect()
    first.close()
    exchange.run()
    exchange.reconnect()
    assert attached(exchange) == ["b", "c"]
    assert [note for note in exchange.server.notes if note[0] == "begin"] == [("begin",)] * 2


def end_by_peer(exchange: CoreExchange, session: SessionState, **fields: Any) -> None:
    """Let the peer end a session. The engine's server side never does so: it takes the client's answer for the end."""
    assert session.session is not None
    exchange.core.receive(say("end", channel=session.session.remote_channel, **fields), NOW)
    exchange.server.feed(exchange.core.output(NOW))
    while exchange.server.scheduler.go_on():
        exchange.server.feed(b"")
    exchange.server.connection.take_output()


def test_session_that_peer_ends_loses_its_links():
    exchange = CoreExchange()
    session, other = exchange.core.session(), exchange.core.session()
    exchange.connect()
    links = add(session, "a", "b")
    (kept,) = add(other, "kept")
    exchange.run()
    end_by_peer(exchange, session)
    for link in links:
        with pytest.raises(LinkDetachedError, match="the peer has detached the link"):
            link.check()
    assert session.links == []
    assert kept.attached


def test_link_added_after_end_of_session_begins_another():
    exchange = CoreExchange()
    session = exchange.core.session()
    exchange.connect()
    add(session, "lost")
    exchange.run()
    end_by_peer(exchange, session)
    (link,) = add(session, "next")
    exchange.run()
    assert link.attached
    assert attached(exchange) == ["lost", "next"]


def test_link_of_peer_is_refused():
    exchange = CoreExchange()
    session = exchange.core.session()
    exchange.connect()
    add(session, "own")
    exchange.run()
    exchange.server.links[0].session.send_attach(attach_items("theirs", 7, False, "q"))
    exchange.run()
    assert exchange.server.notes[-1] == ("closed", ("amqp:not-allowed", "a client accepts no links from its peer"))


# RabbitMQ refuses links in this way.
def test_error_of_session_that_peer_ends_is_that_of_its_links():
    exchange = CoreExchange()
    session, other = exchange.core.session(), exchange.core.session()
    exchange.connect()
    (link,), (bystander,) = add(session, "a"), add(other, "b")
    exchange.run()
    end_by_peer(exchange, session, error=Described(ULong(0x1D), [Symbol("amqp:not-found"), "no queue 'a'"]))
    with pytest.raises(LinkDetachedError, match=r"^amqp:not-found: no queue 'a'$"):
        link.check()
    bystander.check()
    (again,) = add(session, "c")
    exchange.run()
    again.check()
    end_by_peer(exchange, session)
    with pytest.raises(LinkDetachedError, match="the peer has detached the link"):
        again.check()
