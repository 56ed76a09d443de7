"""Life of a link: every pair of state and event is played against the engine and compared with its transition table."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.router.amqp.codec import decode_one, encode_binary
from sluice.router.amqp.connection import Pause
from sluice.router.amqp.errors import LocalError, RemoteError
from sluice.router.amqp.link_life import TRANSITIONS, LifeEvent, LinkLife
from sluice.router.amqp.session import Session
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.producer_link import ProducerLink
from sluice.router.routed.consumer_end import ConsumerEnd
from sluice.router.routed.producer_end import ProducerEnd
from sluice.router.routed.routed_link import LinkEvent
from sluice.router.testing.write_lists import live
from tests.conftest import FLAVOUR
from tests.peer.talk import frames, say, start
from tests.unit.router.amqp.stub import NULL, RecordingHandler, attach_items

DOCUMENT = Path(__file__).parents[4] / "docs" / "internals" / "links.md"
PEERS = (LifeEvent.ON_PEER_ATTACH, LifeEvent.ON_PEER_DETACH)
FILLER = 140_000  # octets of an attach that leave no room in the write buffer
DETACH, WRITTEN_ATTACH, END = "detach", "attach", "end"
PAIRS = [(state, event) for state in LinkLife for event in LifeEvent]
ROUTED = [state for state in LinkLife if LinkLife.LIFE_ROUTE_MADE <= state <= LinkLife.LIFE_ROUTE_HALF]


# -- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_event_leads_to_state_of_table_or_fails(state: LinkLife, event: LifeEvent) -> None:
    after = TRANSITIONS[state].get(event)
    if after is not None:
        assert live(state, event) == after
    elif event in PEERS:
        with pytest.raises(RemoteError) as error:
            live(state, event)
        assert error.value.condition == "amqp:not-allowed"
    elif FLAVOUR != "debug":
        with pytest.raises(LocalError) as fault:
            live(state, event)
        assert fault.value.condition == "amqp:internal-error"


@pytest.mark.starts
def test_impossible_router_event_aborts_debug_flavour() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            live(LinkLife.LIFE_ENDED, LifeEvent.ON_DECIDED)
        except LocalError:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if FLAVOUR == "debug":
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGABRT
    else:
        assert os.waitstatus_to_exitcode(status) == 1


def test_link_states_are_reachable_and_only_last_is_final() -> None:
    assert set(TRANSITIONS) == set(LinkLife)
    reached = {after for events in TRANSITIONS.values() for after in events.values()}
    assert reached == set(LinkLife) - {LinkLife.LIFE_NEW}
    staying = [state for state, events in TRANSITIONS.items() if set(events.values()) <= {state}]
    assert staying == [LinkLife.LIFE_ENDED]


def row(state: LinkLife) -> str:
    """Return a row of the table in the document."""
    events = sorted(TRANSITIONS[state].items())
    return f"| {short(state)} | {'; '.join(f'{short(event)} → {short(after)}' for event, after in events)} |"


def short(name: LinkLife | LifeEvent) -> str:
    text: str = name.name.split("_", 1)[1]
    return text.lower().replace("_", " ")


def test_document_contains_transition_table() -> None:
    table = "\n".join(["| state | events that can come, and the state after |", "| --- | --- |", *map(row, LinkLife)])
    assert table in DOCUMENT.read_text(), f"{DOCUMENT.name} is to have:\n{table}"


# -- the engine -------------------------------------------------------------------------------------------------------


def settled(state: LinkLife, event: LifeEvent, *, later: bool) -> LinkLife:
    """Return the state after an event and the engine's own subsequent events. later: the handler defers its answer."""
    after = TRANSITIONS[state][event]
    if after in {LinkLife.LIFE_LEFT, LinkLife.LIFE_LEAVING, LinkLife.LIFE_LOST, LinkLife.LIFE_ROUTE_CLOSED}:
        after = TRANSITIONS[after][LifeEvent.ON_NOTIFIED]
        if after in {LinkLife.LIFE_ANSWERING, LinkLife.LIFE_OWED} and not later:
            after = TRANSITIONS[after][LifeEvent.ON_CONFIRMED]
    return after


class StubRoutedContext:
    """Stand-in for the worker's part of a routed link, which writes attaches."""

    def __init__(self, link: Any) -> None:
        self.link = link

    def answered(self) -> None:
        self.link.session.send_attach(attach_items(self.link.name, self.link.handle, self.link.incoming, "a"))

    def on_event(self, what: int, body: bytes) -> None:
        self.answered()
        self.link.attach_written()

    def send_null_attach(self) -> bool:
        if self.link.initiated:
            return False
        self.answered()
        return True


class LinkLifeServer(RecordingHandler):
    """Engine as a server whose peer is written by hand. Attaches stay pending until the test decides."""

    def __init__(self, *, consumer: bool = True) -> None:
        super().__init__()
        self.consumer = consumer
        self.later = False
        self.ends = 0
        self.feed(start())
        self.session: Session = self.sessions[0]
        self.heard()

    def on_begin(self, connection: Any, channel: int, items: list[bytes]) -> Session:
        session = super().on_begin(connection, channel, items)
        assert session is not None
        self.sessions = [session]
        return session

    def make(self) -> Any:
        return ConsumerLink() if self.consumer else ProducerLink()

    def on_attach(self, session: Session, items: list[bytes]) -> Any:
        name, handle = (decode_one(item) for item in items[:2])
        link = self.make()
        session.add_link(link, name, handle, not self.consumer)
        self.links.append(link)
        return link

    def on_attached(self, link: Any, items: list[bytes]) -> None:
        self.notes.append(("attached", link.name))

    def on_detached(self, link: Any) -> bool:
        self.ends += 1
        return self.later

    def on_fault(self, connection: Any, fault: BaseException) -> None:
        self.notes.append(("fault", fault))

    def take(self) -> bytes:
        octets: bytes = self.connection.take_output()
        return octets

    def heard(self) -> list[str]:
        """Return the names of the written frames, without flows and the filler."""
        found = []
        for frame in frames(self):
            if frame.name != "flow" and frame.size < FILLER:
                found.append(frame.name)
        return found

    def settle(self) -> None:
        """Take all turns that work is waiting for."""
        while self.scheduler.go_on():
            self.feed(b"")

    def fill(self) -> None:
        self.session.send_attach([encode_binary(bytes(FILLER))])

    def peer_attach(self, name: str = "l") -> None:
        self.feed(
            say("attach", name=name, handle=0, role=self.consumer)
            if self.consumer
            else say("attach", name=name, handle=0, role=False, initial_delivery_count=0)
        )

    def peer_detach(self) -> None:
        self.feed(say("detach", handle=0, closed=True))

    def peer_end(self) -> None:
        self.feed(say("end"))
        self.settle()


class LinkInState:
    """Link in a given state with its server, and for a routed link its other end on another connection."""

    def __init__(self, state: LinkLife, *, consumer: bool, routed: bool = False) -> None:
        self.server = LinkLifeServer(consumer=consumer)
        self.consumer = consumer
        self.link: Any
        self.other: Any
        self.state = state
        (self._reach_routed if routed else self._reach)(state)
        assert self.link.life == state
        self.before = self.server.ends
        if "DUE" not in state.name:  # otherwise the write buffer must stay full
            self.server.heard()

    # -- ordinary links

    def _reach(self, state: LinkLife) -> None:
        server = self.server
        if state == LinkLife.LIFE_ATTACHING:
            self.link = server.make()
            server.session.add_link(self.link, "l", None, not self.consumer)
            server.session.send_attach(attach_items("l", self.link.handle, not self.consumer, "a"))
            return
        server.peer_attach()
        (self.link,) = server.links
        if state == LinkLife.LIFE_PENDING:
            return
        server.session.send_attach(attach_items("l", self.link.handle, not self.consumer, "a"))
        self.link.decided()
        if state == LinkLife.LIFE_DETACHING:
            self.link.close_with(None, None)
        elif state == LinkLife.LIFE_ANSWERING:
            server.later = True
            server.peer_detach()
        elif state == LinkLife.LIFE_OWED:
            server.later = True
            server.peer_end()
        elif state == LinkLife.LIFE_ENDED:
            server.peer_detach()

    # -- routed links

    def _end(self, kind: Any, server: LinkLifeServer, incoming: bool) -> Any:
        link = kind()
        server.session.add_link(link, server.session.free_name("l", incoming), None, incoming)
        link.context = StubRoutedContext(link)
        return link

    def _pair(self, link: Any) -> None:
        self.far = LinkLifeServer(consumer=not self.consumer)
        self.other = self._end(ProducerEnd if self.consumer else ConsumerEnd, self.far, self.consumer)
        self.other.attach_written()
        link.pair(self.other)
        self.link = link

    def _reach_routed(self, state: LinkLife) -> None:
        server, name = self.server, state.name
        kind = ConsumerEnd if self.consumer else ProducerEnd
        if "MADE" in name or "OFFERED" in name:
            self._pair(self._end(kind, server, not self.consumer))
            if "OFFERED" in name:
                self.written()
        else:
            server.peer_attach()
            (old,) = server.links
            link = kind()
            server.session.replace_link(old, link)
            assert old.life == LinkLife.LIFE_ENDED
            link.context = StubRoutedContext(link)
            self._pair(link)
            if "ASKED" not in name:
                self.written()
        if "LEFT" in name:
            server.peer_detach()
        if "DUE" in name:
            server.heard()
            server.fill()
            self.other_detach()
        elif state == LinkLife.LIFE_ROUTE_HALF:
            self.other_detach()

    def written(self) -> None:
        self.other.send(LinkEvent.EVENT_ANSWER, b"")

    def other_detach(self) -> None:
        self.other.send(LinkEvent.EVENT_DETACH, b"\x01")


PLAIN_STATES = [
    LinkLife.LIFE_ATTACHING, LinkLife.LIFE_PENDING, LinkLife.LIFE_ATTACHED, LinkLife.LIFE_ANSWERING,
    LinkLife.LIFE_DETACHING, LinkLife.LIFE_OWED, LinkLife.LIFE_ENDED,
]  # fmt: skip
PLAIN_EVENTS: dict[LifeEvent, Callable[[LinkInState], object]] = {
    LifeEvent.ON_PEER_ATTACH: lambda played: played.server.peer_attach(),
    LifeEvent.ON_DETACH: lambda played: played.link.close_with(None, None),
    LifeEvent.ON_PEER_DETACH: lambda played: played.server.peer_detach(),
    LifeEvent.ON_SESSION_LOST: lambda played: played.server.peer_end(),
    LifeEvent.ON_CONFIRMED: lambda played: played.link.answer_detach(),
}


def plain_frames(state: LinkLife, event: LifeEvent, *, later: bool) -> list[str]:
    """Return the frames that the engine writes for an allowed event."""
    if event == LifeEvent.ON_DETACH:
        return [DETACH]
    if event == LifeEvent.ON_PEER_DETACH:
        return [DETACH] if state == LinkLife.LIFE_ATTACHED and not later else []
    if event == LifeEvent.ON_SESSION_LOST:
        waits = state == LinkLife.LIFE_ANSWERING or (later and state <= LinkLife.LIFE_ATTACHED)
        return [] if waits else [END]
    if event == LifeEvent.ON_CONFIRMED:
        return {LinkLife.LIFE_ANSWERING: [DETACH], LinkLife.LIFE_OWED: [END]}.get(state, [])
    return []


def skipped(state: LinkLife, event: LifeEvent) -> bool:
    """Return True for pairs that cannot be played: the peer's frame would concern no link in this state, since the
    handle is new or the session is gone. Unexpected confirmations are excluded, too: only the router could cause them,
    and the debug flavour aborts."""
    if event == LifeEvent.ON_CONFIRMED:
        return event not in TRANSITIONS[state]
    if state == LinkLife.LIFE_OWED:
        return True
    return bool(event == LifeEvent.ON_PEER_ATTACH and state != LinkLife.LIFE_ATTACHING)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("consumer", [True, False], ids=["consumer", "producer"])
@pytest.mark.parametrize("event", PLAIN_EVENTS)
@pytest.mark.parametrize("state", PLAIN_STATES)
def test_engine_follows_transition_table(state: LinkLife, event: LifeEvent, consumer: bool, later: bool) -> None:
    if skipped(state, event):
        return
    played = LinkInState(state, consumer=consumer)
    played.server.later = later
    PLAIN_EVENTS[event](played)
    heard = played.server.heard()
    after = TRANSITIONS[state].get(event)
    if after is None:
        # The peer used a handle that it does not have. A repeated order of the router is ignored.
        ended = event in PEERS
        assert heard == (["close"] if ended else [])
        assert ended or played.link.life == state
        return
    assert LinkLife(played.link.life) == settled(state, event, later=later)
    assert heard == plain_frames(state, event, later=later)
    assert played.server.ends - played.before == (played.link.life >= LinkLife.LIFE_ANSWERING > state)
    assert played.server.connection.paused == (event == LifeEvent.ON_PEER_DETACH and after == LinkLife.LIFE_PENDING)


@pytest.mark.parametrize("consumer", [True, False], ids=["consumer", "producer"])
def test_detach_of_pending_link_consumes_waiting_frames(consumer: bool) -> None:
    played = LinkInState(LinkLife.LIFE_PENDING, consumer=consumer)
    played.server.peer_detach()
    assert played.server.connection.paused
    played.link.close_with(None, None)
    assert not played.server.connection.paused
    played.server.feed(b"")
    assert played.link.life == LinkLife.LIFE_ENDED
    assert played.server.heard() == [DETACH]
    assert played.server.ends == 1


@pytest.mark.parametrize("consumer", [True, False], ids=["consumer", "producer"])
def test_decision_releases_waiting_detach(consumer: bool) -> None:
    played = LinkInState(LinkLife.LIFE_PENDING, consumer=consumer)
    played.server.peer_detach()
    played.link.decided()
    assert played.link.life == LinkLife.LIFE_ATTACHED
    played.server.connection.resume(Pause.PAUSE_ATTACH)
    played.server.feed(b"")
    assert played.link.life == LinkLife.LIFE_ENDED


@pytest.mark.parametrize("consumer", [True, False], ids=["consumer", "producer"])
def test_attach_crossing_detach_is_not_reported(consumer: bool) -> None:
    played = LinkInState(LinkLife.LIFE_ATTACHING, consumer=consumer)
    played.link.close_with(None, None)
    assert played.link.life == LinkLife.LIFE_DETACHING
    played.server.peer_attach()
    assert played.link.life == LinkLife.LIFE_DETACHING
    played.server.peer_detach()
    assert played.link.life == LinkLife.LIFE_ENDED
    assert played.server.notes[-1] != ("attached", "l")
    assert played.server.heard() == [DETACH]


def test_link_closed_after_end_of_session_delays_answer_to_end() -> None:
    """The router closes a link of a session that the peer has ended, before the link is ended in its turn."""
    server = LinkLifeServer()
    server.later = True
    many = 100
    for number in range(many):
        server.feed(say("attach", name=f"l{number}", handle=number, role=True))
    server.settle()
    assert len(server.links) == many
    for link in server.links:
        link.decided()
    server.feed(say("end"))
    waiting = [link for link in server.links if link.life == LinkLife.LIFE_ATTACHED]
    assert waiting, "all links have ended in one turn: make more"
    waiting[0].close_with(None, None)
    server.settle()
    assert {link.life for link in server.links} == {LinkLife.LIFE_OWED}
    for link in server.links:
        assert server.heard() == []
        link.answer_detach()
    assert server.heard() == [END]


# -- routed links -----------------------------------------------------------------------------------------------------


def detach_waits(played: LinkInState) -> None:
    if "DUE" not in played.state.name:
        played.server.fill()
    played.other_detach()


def detach_written(played: LinkInState) -> list[str]:
    """Let the other end detach, make room for the router's detach, and return the frames."""
    if "DUE" not in played.state.name:
        played.other_detach()
    else:
        played.server.take()  # the peer reads the octets that filled the write buffer
    return played.server.heard()


ROUTED_EVENTS: dict[LifeEvent, Callable[[LinkInState], object]] = {
    LifeEvent.ON_PEER_ATTACH: lambda played: played.server.peer_attach(),
    LifeEvent.ON_ROUTE_WRITTEN: LinkInState.written,
    LifeEvent.ON_OTHER_DETACH: detach_waits,
    LifeEvent.ON_ROUTE_DETACH: detach_written,
    LifeEvent.ON_ROUTE_WITHDRAWN: detach_written,
    LifeEvent.ON_PEER_DETACH: lambda played: played.server.peer_detach(),
    LifeEvent.ON_SESSION_LOST: lambda played: played.server.peer_end(),
}


def routed_frames(state: LinkLife, event: LifeEvent) -> list[str]:
    """Return the frames that the engine writes for an allowed event while the write buffer has room."""
    due, asked = "DUE" in state.name, "ASKED" in state.name
    if event == LifeEvent.ON_ROUTE_WRITTEN:
        return [WRITTEN_ATTACH]
    if event == LifeEvent.ON_ROUTE_DETACH:
        return [WRITTEN_ATTACH, DETACH] if asked else [DETACH]
    if event == LifeEvent.ON_SESSION_LOST:
        return [END]
    assert not due or event in {*PEERS, LifeEvent.ON_OTHER_DETACH, LifeEvent.ON_ROUTE_WITHDRAWN}
    return []


def due_in_full_buffer(played: LinkInState, event: LifeEvent) -> bool:
    """Return True if the waiting detach is written as soon as the test reads the output."""
    waits: bool = "DUE" in LinkLife(played.link.life).name
    return waits and event != LifeEvent.ON_SESSION_LOST


@pytest.mark.parametrize("consumer", [True, False], ids=["consumer", "producer"])
@pytest.mark.parametrize("event", ROUTED_EVENTS)
@pytest.mark.parametrize("state", ROUTED)
def test_routed_link_follows_transition_table(state: LinkLife, event: LifeEvent, consumer: bool) -> None:
    played = LinkInState(state, consumer=consumer, routed=True)
    link, server = played.link, played.server
    after = TRANSITIONS[state].get(event)
    made = "MADE" in state.name
    if event in {LifeEvent.ON_ROUTE_WITHDRAWN, LifeEvent.ON_ROUTE_DETACH} and \
            made != (event == LifeEvent.ON_ROUTE_WITHDRAWN):  # fmt: skip
        return  # a detach is written exactly for links whose attach is written or requested
    if event == LifeEvent.ON_PEER_ATTACH and after is None and not made:
        return  # the handle or the name is in use: no event of this link
    if event == LifeEvent.ON_PEER_ATTACH and state == LinkLife.LIFE_ROUTE_HALF:
        return  # the peer attached this link: see below
    written = ROUTED_EVENTS[event](played)
    if after is None:
        if event in PEERS:
            assert "close" in server.heard()
        else:
            assert link.life == state
        return
    assert LinkLife(link.life) == settled(state, event, later=False)
    if not due_in_full_buffer(played, event):
        assert (server.heard() if written is None else written) == routed_frames(state, event)
    assert server.ends - played.before == (link.life >= LinkLife.LIFE_ANSWERING)


@pytest.mark.parametrize("state", [state for state in ROUTED if state != LinkLife.LIFE_ROUTE_HALF])
def test_routed_link_may_be_closed_by_router(state: LinkLife) -> None:
    played = LinkInState(state, consumer=True, routed=True)
    played.link.close_with("amqp:not-found", "gone")
    ended = "MADE" in state.name or "LEFT" in state.name
    assert played.link.life == (LinkLife.LIFE_ENDED if ended else LinkLife.LIFE_DETACHING)
    asked, made = "ASKED" in state.name, "MADE" in state.name
    assert played.server.heard() == [WRITTEN_ATTACH] * asked + [DETACH] * (not made)
    assert played.server.ends == 1


def test_attach_crossing_detach_of_routed_link_is_not_reported() -> None:
    played = LinkInState(LinkLife.LIFE_ROUTE_OFFERED, consumer=True, routed=True)
    played.other_detach()
    assert played.link.life == LinkLife.LIFE_ROUTE_HALF
    played.server.peer_attach()
    assert played.link.life == LinkLife.LIFE_ROUTE_HALF
    assert ("attached", "l") not in played.server.notes
    played.server.peer_detach()
    assert played.link.life == LinkLife.LIFE_ENDED
    assert played.server.heard() == [DETACH]


def test_answer_to_unwritten_attach_closes_connection() -> None:
    """The peer guesses the name of a link that the router is about to attach."""
    played = LinkInState(LinkLife.LIFE_ROUTE_MADE, consumer=True, routed=True)
    played.server.peer_attach()
    (close,) = frames(played.server)
    assert close.name == "close"
    assert close.error.value[0] == "amqp:not-allowed"


def test_lost_end_while_detach_is_answered_notifies_handler() -> None:
    played = LinkInState(LinkLife.LIFE_ROUTE_HALF, consumer=True, routed=True)
    played.other.send(LinkEvent.EVENT_LOST, NULL)
    assert played.link.life == LinkLife.LIFE_DETACHING
    assert played.server.ends == 1
    played.server.peer_detach()
    assert played.link.life == LinkLife.LIFE_ENDED
    assert played.server.ends == 1
