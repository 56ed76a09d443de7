"""Auto links: states and retries by the clock, on a real core with a worker that the test plays."""

import heapq

import pytest

from router.config.load import load_text
from router.control import messages
from router.log import Log, LogSettings, ModuleSettings
from supervisor.composition import RouterCore
from supervisor.links.auto import FIRST_RETRY, RETRY, Shown
from supervisor.processes.worker import Stage, Worker

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
HEAD = """router {
    id: R
}
listener {
    name: brokers
    port: 0
    role: route-container
}
"""
OUT = "autoLink {\n name: out\n address: q\n direction: out\n containerId: broker\n}\n"
IN = "autoLink {\n name: in\n address: q\n direction: in\n connection: brokers\n externalAddress: there\n}\n"


class Clock:
    """Event loop stand-in whose time the test controls."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def call_later(self, seconds, action):
        call = Call(action)
        heapq.heappush(self.calls, (self.now + seconds, len(self.calls), call))
        return call

    def advance(self, seconds):
        end = self.now + seconds
        while self.calls and self.calls[0][0] <= end:
            self.now, _, call = heapq.heappop(self.calls)
            if call.action is not None:
                call.action()
        self.now = end

    @property
    def waiting(self):
        return sum(call.action is not None for _, _, call in self.calls)


class Call:
    def __init__(self, action):
        self.action = action

    def cancel(self):
        self.action = None


class Rig:
    """Auto links on a core with one worker."""

    def __init__(self, text):
        self.configuration = load_text("router.conf", HEAD + text)
        self.core = RouterCore(self.configuration, Log(QUIET), 40, lambda number: None)
        self.worker = Worker(0, 1)
        self.worker.stage = Stage.STARTING
        self.core.workers[0] = self.worker
        self.core.receive(self.worker, messages.Ready(0))
        self.clock = Clock()
        self.core.waker.connect(self.clock, lambda: None)  # type: ignore[arg-type]
        self.auto_links = self.core.auto_links
        self.auto_links.start(self.configuration)
        self.slot = 0
        self.told()

    def told(self):
        """Apply all changes in the worker, and return the orders that it has received."""
        while (delta := self.core.take_delta()) is not None:
            self.core.receive(self.worker, messages.Ack(delta[0]))
        self.core.take_delta()
        outbox, self.worker.outbox = self.worker.outbox, []
        return outbox

    def open(self, container="broker"):
        connection = self.core.connections.adopt(self.worker, self.configuration.listeners[0], "here", "there")
        opened = messages.Opened(
            conn=connection.number, container=container, hostname=None, user=None, properties={}, tls=None
        )
        self.core.receive(self.worker, opened)
        return connection.number

    def close(self, number):
        self.core.receive(self.worker, messages.Closed(conn=number, error=None))

    def begin(self, asked):
        """Report that the worker has sent the attach. Return the worker's number of the link."""
        self.slot += 1
        begun = messages.Initiated(
            conn=asked.conn,
            ref=asked.ref,
            dir=asked.dir,
            name=asked.name,
            link=self.slot,
            slot=self.slot,
            gen=self.slot,
            text="",
        )
        self.core.receive(self.worker, begun)
        return self.slot

    def answer(self, asked, link, active=True):
        self.core.receive(self.worker, messages.Linked(asked.conn, link, active))

    def detach(self, asked, link, *error):
        self.core.receive(self.worker, messages.Detach(conn=asked.conn, link=link, error=error or None))

    def shown(self, name):
        (config,) = [each for each in self.configuration.auto_links if each.name == name]
        return self.auto_links.shown(config)

    def keys(self):
        return [key for key in self.core.table.records if key.startswith("M") and "$" not in key]


@pytest.fixture
def rig():
    return Rig(OUT + IN)


def asked_for(rig):
    """Take the worker's orders. Return the `link` messages among them by direction."""
    return {message.dir: message for message in rig.told() if isinstance(message, messages.Link)}


def test_without_a_container_it_is_inactive_and_holds_its_address(rig):
    assert rig.shown("out") == rig.shown("in") == Shown(None, "inactive", None)
    assert sorted(rig.keys()) == ["M0q", "M1q"]
    rig.auto_links.replace([])
    rig.told()
    assert rig.keys() == []


def test_a_link_becomes_active_and_is_bound(rig):
    rig.open()
    asked = asked_for(rig)
    assert (asked["out"].address, asked["in"].address) == ("q", "there")
    assert rig.shown("out") == Shown(None, "attaching", None)
    links = {way: rig.begin(message) for way, message in asked.items()}
    assert rig.shown("out") == Shown(asked["out"].ref, "attaching", None)
    for way in ("out", "in"):
        rig.answer(asked[way], links[way])
        (answer,) = rig.told()
        assert (type(answer), answer.link) == (messages.Attached, links[way])
        assert (answer.phase, answer.to) == ((0, None) if way == "out" else (1, "q"))
    assert rig.shown("out") == Shown(asked["out"].ref, "active", None)
    assert rig.core.table.records["M0q"].consumers
    assert rig.core.table.records["M1q"].producers == 1


def test_an_answer_without_address_leaves_it_attaching(rig):
    rig.open()
    asked = asked_for(rig)
    links = {way: rig.begin(message) for way, message in asked.items()}
    rig.answer(asked["out"], links["out"], active=False)
    assert rig.told() == []
    rig.answer(asked["in"], links["in"], active=False)
    told = [type(message) for message in rig.told()]
    assert told == [messages.Attached], "credit regardless (brokers-and-edge.md AL-7)"
    assert (rig.shown("out").state, rig.shown("in").state) == ("attaching", "attaching")


def test_retries_wait_two_seconds_once_and_then_five(rig):
    rig.open()
    asked = asked_for(rig)["out"]
    for wait in (FIRST_RETRY, RETRY, RETRY):
        rig.detach(asked, rig.begin(asked), "amqp:not-found", "no queue")
        assert rig.shown("out") == Shown(None, "failed", "no queue")
        rig.told()
        rig.clock.advance(wait - 0.01)
        assert asked_for(rig) == {}
        rig.clock.advance(0.02)
        name, asked = asked.name, asked_for(rig)["out"]
        assert asked.name != name
        assert rig.shown("out") == Shown(None, "attaching", "no queue")
    rig.answer(asked, rig.begin(asked))
    assert rig.shown("out") == Shown(asked.ref, "active", None)


def test_a_worker_without_room_is_a_failure(rig):
    rig.open()
    asked = asked_for(rig)["out"]
    rig.core.receive(rig.worker, messages.Unlinked(asked.conn, asked.ref, "no room"))
    assert rig.shown("out") == Shown(None, "failed", "no room")
    rig.clock.advance(FIRST_RETRY)
    assert "out" in asked_for(rig)


def test_the_loss_of_the_connection_ends_it_whatever_it_does(rig):
    number = rig.open()
    asked = asked_for(rig)
    rig.detach(asked["out"], rig.begin(asked["out"]), "amqp:not-found", "no queue")
    link = rig.begin(asked["in"])
    rig.answer(asked["in"], link)
    rig.close(number)
    assert rig.shown("out") == rig.shown("in") == Shown(None, "inactive", None)
    assert rig.clock.waiting == 0
    rig.told()
    assert rig.core.table.records["M1q"].producers == 0
    rig.open()
    assert set(asked_for(rig)) == {"in", "out"}


def test_messages_that_come_too_late_change_nothing(rig):
    rig.open()
    asked = asked_for(rig)["out"]
    link = rig.begin(asked)
    rig.auto_links.replace([])
    assert [type(message) for message in rig.told()] == [messages.Unlink, messages.Unlink]
    rig.answer(asked, link)
    rig.detach(asked, link)
    rig.clock.advance(60)
    assert rig.told() == []


def test_deleted_while_a_retry_waits(rig):
    rig.open()
    asked = asked_for(rig)["out"]
    rig.detach(asked, rig.begin(asked))
    rig.auto_links.replace([])
    rig.told()
    assert rig.clock.waiting == 0


def test_one_link_on_each_container_that_matches(rig):
    first, second = rig.open(), rig.open("other")
    asked = [message for message in rig.told() if isinstance(message, messages.Link)]
    assert [(message.conn, message.dir) for message in asked] == [
        (first, "out"),
        (first, "in"),
        (second, "in"),
    ]
    links = [rig.begin(message) for message in asked]
    rig.answer(asked[1], links[1])
    assert rig.shown("in") == Shown(asked[1].ref, "active", None)
    rig.close(first)
    assert rig.shown("in") == Shown(asked[2].ref, "attaching", None)


def test_one_that_is_made_while_its_container_is_open_is_attached_at_once():
    rig = Rig(OUT)
    rig.open()
    rig.told()
    more = load_text("router.conf", HEAD + OUT + IN).auto_links
    rig.auto_links.replace(more)
    assert set(asked_for(rig)) == {"in"}, "the other one stays as it is"


def test_fallback():
    rig = Rig("address {\n prefix: q\n enableFallback: yes\n}\n" + OUT.replace("}", " fallback: yes\n}")
              + IN.replace("}", " fallback: yes\n}"))  # fmt: skip
    assert sorted(rig.keys()) == ["M0q", "MFq"]
    rig.open()
    answers = {}
    for way, asked in asked_for(rig).items():
        rig.answer(asked, rig.begin(asked))
        (answers[way],) = rig.told()
    assert answers["out"].addr == rig.core.table.records["MFq"].id
    assert (answers["in"].addr, answers["in"].phase) == (rig.core.table.records["M0q"].id, 0)
    assert answers["in"].fallback is False, "what came from the fallback does not go back there"
