"""Auto links: states and retries by the clock, on a real core with a worker that the test plays."""

import heapq

import pytest

from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.links.auto import FIRST_RETRY, RETRY, AutoLinkStatus

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


class ManualTimers:
    """Event loop stand-in whose time the test controls."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def call_later(self, seconds, action):
        call = ManualTimer(action)
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


class ManualTimer:
    def __init__(self, action):
        self.action = action

    def cancel(self):
        self.action = None


class AutoLinkCore:
    """Auto links on a core with one worker."""

    def __init__(self, text):
        self.configuration = load_text("router.conf", HEAD + text)
        self.core = RouterCore(self.configuration, ProcessLog(QUIET), 40, lambda number: None)
        self.worker = WorkerProcess(0, 1)
        self.worker.stage = WorkerStage.STARTING
        self.core.workers[0] = self.worker
        self.core.receive(self.worker, messages.Ready(0))
        self.clock = ManualTimers()
        self.core.waker.connect(self.clock, lambda: None)  # type: ignore[arg-type]
        self.auto_links = self.core.auto_links
        self.auto_links.start(self.configuration)
        self.slot = 0
        self.take_orders()

    def take_orders(self):
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

    def begin(self, requested):
        """Report that the worker has sent the attach. Return the worker's number of the link."""
        self.slot += 1
        begun = messages.Initiated(
            conn=requested.conn,
            ref=requested.ref,
            dir=requested.dir,
            name=requested.name,
            link=self.slot,
            slot=self.slot,
            gen=self.slot,
            text="",
        )
        self.core.receive(self.worker, begun)
        return self.slot

    def answer(self, requested, link, active=True):
        self.core.receive(self.worker, messages.Linked(requested.conn, link, active))

    def detach(self, requested, link, *error):
        self.core.receive(self.worker, messages.Detach(conn=requested.conn, link=link, error=error or None))

    def shown(self, name):
        (config,) = [each for each in self.configuration.auto_links if each.name == name]
        return self.auto_links.shown(config)

    def availability(self, name):
        (config,) = [each for each in self.configuration.auto_links if each.name == name]
        return self.auto_links.availability(config)

    def keys(self):
        return [key for key in self.core.table.records if key.startswith("M") and "$" not in key]


@pytest.fixture
def router():
    return AutoLinkCore(OUT + IN)


def take_links(router):
    """Take the worker's orders. Return the `link` messages among them by direction."""
    return {message.dir: message for message in router.take_orders() if isinstance(message, messages.Link)}


def test_auto_link_without_container_is_inactive_and_holds_address(router):
    assert router.shown("out") == router.shown("in") == AutoLinkStatus(None, "inactive", None)
    assert sorted(router.keys()) == ["M0q", "M1q"]
    router.auto_links.replace([])
    router.take_orders()
    assert router.keys() == []


# brokers-and-edge.md AL-6.
def test_auto_link_becomes_active_and_bound(router):
    router.open()
    requested = take_links(router)
    assert (requested["out"].address, requested["in"].address) == ("q", "there")
    assert router.shown("out") == AutoLinkStatus(None, "attaching", None)
    links = {direction: router.begin(message) for direction, message in requested.items()}
    assert router.shown("out") == AutoLinkStatus(requested["out"].ref, "attaching", None)
    for direction in ("out", "in"):
        router.answer(requested[direction], links[direction])
        (answer,) = router.take_orders()
        assert (type(answer), answer.link) == (messages.Attached, links[direction])
        assert (answer.phase, answer.to) == ((0, None) if direction == "out" else (1, "q"))
    assert router.shown("out") == AutoLinkStatus(requested["out"].ref, "active", None)
    assert router.core.table.records["M0q"].consumers
    assert router.core.table.records["M1q"].producers == 1


def test_answer_without_address_leaves_link_attaching(router):
    router.open()
    requested = take_links(router)
    links = {direction: router.begin(message) for direction, message in requested.items()}
    router.answer(requested["out"], links["out"], active=False)
    assert router.take_orders() == []
    router.answer(requested["in"], links["in"], active=False)
    types = [type(message) for message in router.take_orders()]
    assert types == [messages.Attached], "credit regardless (brokers-and-edge.md AL-7)"
    assert (router.shown("out").state, router.shown("in").state) == ("attaching", "attaching")


# brokers-and-edge.md AL-8.
def test_retries_wait_two_seconds_then_five(router):
    router.open()
    requested = take_links(router)["out"]
    for wait in (FIRST_RETRY, RETRY, RETRY):
        router.detach(requested, router.begin(requested), "amqp:not-found", "no queue")
        assert router.shown("out") == AutoLinkStatus(None, "failed", "no queue")
        router.take_orders()
        router.clock.advance(wait - 0.01)
        assert take_links(router) == {}
        router.clock.advance(0.02)
        name, requested = requested.name, take_links(router)["out"]
        assert requested.name != name
        assert requested.session, "a session of its own, so that it takes no other links along"
        assert router.shown("out") == AutoLinkStatus(None, "attaching", "no queue")
    router.answer(requested, router.begin(requested))
    assert router.shown("out") == AutoLinkStatus(requested.ref, "active", None)


def test_availability_of_auto_link_has_reason_and_attempts(router):
    number = router.open()
    one = router.availability("out")
    assert (one.up, one.attempts, one.error) == (False, 1, "")
    requested = take_links(router)["out"]
    router.detach(requested, router.begin(requested), "amqp:not-found", None)
    assert (one.up, one.error, router.shown("out").error) == (False, "amqp:not-found", "amqp:not-found")
    router.clock.advance(FIRST_RETRY)
    requested = take_links(router)["out"]
    router.answer(requested, router.begin(requested))
    assert (one.up, one.attempts, one.error) == (True, 2, "")
    router.close(number)
    assert (one.up, one.error) == (False, "the connection has ended")


def test_auto_link_on_two_connections_is_up_while_one_is_left(router):
    first, second = router.open(), router.open()
    requests = [each for each in router.take_orders() if isinstance(each, messages.Link) and each.dir == "out"]
    for requested in requests:
        router.answer(requested, router.begin(requested))
    one = router.availability("out")
    router.close(first)
    assert one.up
    router.close(second)
    assert not one.up


def test_worker_without_room_fails_auto_link(router):
    router.open()
    requested = take_links(router)["out"]
    router.core.receive(router.worker, messages.Unlinked(requested.conn, requested.ref, "no room"))
    assert router.shown("out") == AutoLinkStatus(None, "failed", "no room")
    router.clock.advance(FIRST_RETRY)
    assert "out" in take_links(router)


def test_lost_connection_makes_auto_link_inactive(router):
    number = router.open()
    requested = take_links(router)
    router.detach(requested["out"], router.begin(requested["out"]), "amqp:not-found", "no queue")
    link = router.begin(requested["in"])
    router.answer(requested["in"], link)
    router.close(number)
    assert router.shown("out") == router.shown("in") == AutoLinkStatus(None, "inactive", None)
    assert router.clock.waiting == 0
    router.take_orders()
    assert router.core.table.records["M1q"].producers == 0
    router.open()
    assert set(take_links(router)) == {"in", "out"}


def test_late_messages_are_ignored(router):
    router.open()
    requested = take_links(router)["out"]
    link = router.begin(requested)
    router.auto_links.replace([])
    assert [type(message) for message in router.take_orders()] == [messages.Unlink, messages.Unlink]
    router.answer(requested, link)
    router.detach(requested, link)
    router.clock.advance(60)
    assert router.take_orders() == []


def test_deleted_auto_link_cancels_retry(router):
    router.open()
    requested = take_links(router)["out"]
    router.detach(requested, router.begin(requested))
    router.auto_links.replace([])
    router.take_orders()
    assert router.clock.waiting == 0


# brokers-and-edge.md AL-4.
def test_matching_containers_get_one_link_each(router):
    first, second = router.open(), router.open("other")
    requested = [message for message in router.take_orders() if isinstance(message, messages.Link)]
    assert [(message.conn, message.dir) for message in requested] == [
        (first, "in"),
        (first, "out"),
        (second, "in"),
    ]
    links = [router.begin(message) for message in requested]
    router.answer(requested[0], links[0])
    assert router.shown("in") == AutoLinkStatus(requested[0].ref, "active", None)
    router.close(first)
    assert router.shown("in") == AutoLinkStatus(requested[2].ref, "attaching", None)


# brokers-and-edge.md AL-4.
def test_new_auto_link_with_open_container_attaches_at_once():
    router = AutoLinkCore(OUT)
    router.open()
    router.take_orders()
    more = load_text("router.conf", HEAD + OUT + IN).auto_links
    router.auto_links.replace(more)
    assert set(take_links(router)) == {"in"}, "the other link stays"


# brokers-and-edge.md AL-10.
def test_fallback_auto_links_use_fallback_instance():
    router = AutoLinkCore("address {\n prefix: q\n enableFallback: yes\n}\n" + OUT.replace("}", " fallback: yes\n}")
              + IN.replace("}", " fallback: yes\n}"))  # fmt: skip
    assert sorted(router.keys()) == ["M0q", "MFq"]
    router.open()
    answers = {}
    for direction, requested in take_links(router).items():
        router.answer(requested, router.begin(requested))
        (answers[direction],) = router.take_orders()
    assert answers["out"].addr == router.core.table.records["MFq"].id
    assert (answers["in"].addr, answers["in"].phase) == (router.core.table.records["M0q"].id, 0)
    assert answers["in"].fallback is False, "deliveries from the fallback do not return there"


AWAITED = OUT.replace("}", " brokerAbsenceSeconds: 30\n}")


def attach(router):
    """Let the router attach its link `out` to an open container. Return its request and the worker's number."""
    requested = take_links(router)["out"]
    assert requested.waits
    link = router.begin(requested)
    router.answer(requested, link)
    return requested, link


def lose(router, requested, link, waiting=3):
    """Report that the worker has suspended the link, and the end of its connection."""
    router.core.receive(router.worker, messages.Suspended(requested.conn, link, waiting))
    router.close(requested.conn)


def test_suspended_link_stays_consumer_until_its_successor_takes_over():
    router = AutoLinkCore(AWAITED)
    router.open()
    lost = attach(router)
    router.take_orders()
    lose(router, *lost)
    record = router.core.table.records["M0q"]
    assert router.take_orders() == []
    assert record.is_suspended_alone
    router.open()
    _, successor = attach(router)
    resume, attached = router.take_orders()
    assert (resume.slot, resume.gen, resume.link) == (lost[1], lost[1], successor)
    assert (type(attached), attached.link) == (messages.Attached, successor)
    assert record.suspended is None
    assert len(record.consumers or {}) == 1


def test_broker_that_stays_away_is_awaited_for_its_time():
    router = AutoLinkCore(AWAITED)
    router.open()
    lost = attach(router)
    router.take_orders()
    lose(router, *lost)
    router.take_orders()
    router.clock.advance(29.9)
    assert router.take_orders() == []
    router.clock.advance(0.2)
    assert router.take_orders() == [messages.Resume(lost[1], lost[1])]
    assert not router.core.table.records["M0q"].consumers


def test_deleted_auto_link_releases_what_waits():
    router = AutoLinkCore(AWAITED)
    router.open()
    lost = attach(router)
    router.take_orders()
    lose(router, *lost)
    router.auto_links.replace([])
    assert router.take_orders() == [messages.Resume(lost[1], lost[1])]
    assert router.keys() == []
    assert router.clock.waiting == 0


def test_suspension_after_the_auto_link_was_deleted_is_released_at_once():
    router = AutoLinkCore(AWAITED)
    router.open()
    lost = attach(router)
    router.take_orders()
    router.auto_links.replace([])
    lose(router, *lost)
    assert messages.Resume(lost[1], lost[1]) in router.take_orders()
    assert router.keys() == []


def test_successor_that_ends_before_its_answer_leaves_messages_to_next():
    router = AutoLinkCore(AWAITED)
    router.open()
    lost = attach(router)
    router.take_orders()
    lose(router, *lost)
    router.take_orders()
    router.open()
    requested, _ = attach(router)
    router.close(requested.conn)
    assert router.take_orders() == []
    assert router.core.table.records["M0q"].is_suspended_alone
    router.open()
    attach(router)
    resume, _ = router.take_orders()
    assert resume.slot == lost[1]


def test_suspension_of_consumer_that_a_drain_withdrew_is_released():
    router = AutoLinkCore(AWAITED)
    router.open()
    requested, number = attach(router)
    router.take_orders()
    (link,) = [each for each in router.core.links.by_identity.values() if each.identity == requested.ref]
    router.core.links.withdraw_consumer(link)
    lose(router, requested, number)
    assert messages.Resume(number, number) in router.take_orders()
    assert not router.core.table.records["M0q"].consumers


QUEUE = "autoLink {\n name: out\n address: q\n direction: out\n connection: brokers\n externalAddress: there\n}\n" + IN
NO_QUEUE = "amqp:not-found no queue 'there'"


# brokers-and-edge.md AL-13.
def test_sender_to_queue_waits_until_broker_accepts_receiver():
    router = AutoLinkCore(QUEUE)
    router.open()
    requested = take_links(router)
    assert set(requested) == {"in"}
    assert router.shown("out").state == "attaching"
    router.answer(requested["in"], router.begin(requested["in"]))
    requested = take_links(router)
    assert set(requested) == {"out"}
    router.answer(requested["out"], router.begin(requested["out"]))
    assert router.shown("out").state == "active"


# brokers-and-edge.md AL-13.
def test_sender_to_missing_queue_is_held_until_queue_exists():
    router = AutoLinkCore(QUEUE)
    router.open()
    requested = take_links(router)["in"]
    router.detach(requested, router.begin(requested), "amqp:not-found", "no queue")
    assert take_links(router) == {}
    reason = "the broker has no 'there', and might discard messages for it: no queue"
    assert router.shown("out") == AutoLinkStatus(None, "failed", reason)
    assert router.availability("out").error == reason
    router.clock.advance(FIRST_RETRY)
    requested = take_links(router)
    assert set(requested) == {"in"}
    router.answer(requested["in"], router.begin(requested["in"]))
    assert set(take_links(router)) == {"out"}


# brokers-and-edge.md AL-13.
def test_deleted_queue_closes_active_sender():
    router = AutoLinkCore(QUEUE)
    router.open()
    receiver = take_links(router)["in"]
    number = router.begin(receiver)
    router.answer(receiver, number)
    sender = take_links(router)["out"]
    router.answer(sender, router.begin(sender))
    router.take_orders()
    router.detach(receiver, number, "amqp:resource-deleted", None)
    assert [type(each) for each in router.take_orders()] == [messages.Unlink]
    assert router.shown("out").state == "failed"


# brokers-and-edge.md AL-13.
def test_sender_attaches_if_receiver_is_refused_for_another_reason_or_deleted():
    router = AutoLinkCore(QUEUE)
    router.open()
    requested = take_links(router)["in"]
    router.detach(requested, router.begin(requested), "amqp:unauthorized-access", "no")
    assert set(take_links(router)) == {"out"}
    router = AutoLinkCore(QUEUE)
    router.open()
    take_links(router)
    router.auto_links.replace([link for link in router.configuration.auto_links if link.name == "out"])
    assert set(take_links(router)) == {"out"}


def test_session_end_is_ascribed_to_link_that_fails_again():
    """RabbitMQ ends the session of all auto links because one of them has no queue."""
    router = AutoLinkCore(QUEUE + IN.replace("name: in", "name: other").replace("there", "here"))
    router.open()
    requested = [each for each in router.take_orders() if isinstance(each, messages.Link)]
    assert [each.address for each in requested] == ["there", "here"]
    for each in requested:
        router.detach(each, router.begin(each), "", NO_QUEUE)
    assert router.availability("other").unreported
    assert router.availability("in").reported_at is None
    assert take_links(router) == {}, "the broker may have the queue of the link that sends"
    router.clock.advance(FIRST_RETRY + RETRY)
    requested = [each for each in router.take_orders() if isinstance(each, messages.Link)]
    assert all(each.session for each in requested)
    there, here = sorted(requested, key=lambda each: each.address or "", reverse=True)
    router.answer(here, router.begin(here))
    router.detach(there, router.begin(there), "", NO_QUEUE)
    assert router.availability("in").reported_at is not None
    assert router.availability("other").reported_at is None
    assert router.shown("out").error.endswith(NO_QUEUE)
