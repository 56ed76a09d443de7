"""Messages from and to the router itself: order of connections, bounds of waiting messages, choice of the worker."""

import pytest

from sluice.router.control.messages import Local, Send, Taken
from sluice.router.control.ops import AddressOp
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.addresses.inprocess import (
    LOCAL_MESSAGES_PER_WAKE,
    MAX_UNCONFIRMED_OCTETS,
    UNCONFIRMED_OCTETS,
    InProcessAddresses,
    LocalMessage,
)
from sluice.supervisor.addresses.testhooks import echo
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from tests.peer import message
from tests.unit.supervisor.journaled_table import JournaledTable

KEY = "M0inner"
QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})


class InProcessWithWorkers:
    """InProcessAddresses with fake workers. Messages that its handler has received are in `taken`."""

    def __init__(self, workers=3):
        self.journaled = JournaledTable()
        self.table = self.journaled.table
        self.workers = {index: WorkerProcess(index, 1) for index in range(workers)}
        for worker in self.workers.values():
            worker.stage = WorkerStage.SERVING
        self.changes = 0
        self.process = InProcessAddresses(
            self.table, self.journaled.journal, self.workers, self.table.records.get, ProcessLog(QUIET), self.change
        )
        self.taken: list[LocalMessage] = []
        self.process.serve(KEY, self.taken.append)

    def change(self):
        self.changes += 1

    def receive(self, worker, connection, octets, record_key=KEY):
        self.process.receive(self.workers[worker], Local(record_key, connection), octets)

    def work(self):
        while self.process.work():
            pass

    def consumer(self, record_key, worker, link=1):
        record = self.table.records.get(record_key) or self.table.create(record_key, "balanced", None, "throttle")
        self.table.add_consumer(record, worker, link, 1, 250)
        return record

    def sent(self, worker):
        return [(order.key, octets) for order, octets in self.workers[worker].sends if isinstance(order, Send)]


@pytest.fixture
def inner():
    return InProcessWithWorkers()


def test_served_address_is_announced_once(inner):
    delta = inner.journaled.take_delta()
    assert [op.key for op in delta[1] if isinstance(op, AddressOp) and op.attributes.inproc] == [KEY]
    inner.process.serve(KEY, print)
    assert inner.journaled.take_delta() is None
    assert inner.table.records[KEY].holders == 1


def test_address_of_clients_becomes_served(inner):
    record = inner.consumer("M0other", 1)
    inner.journaled.take_delta()
    inner.process.serve("M0other", inner.taken.append)
    assert inner.journaled.take_delta()[1] == [record.op()]
    assert record.inproc


def test_connections_take_turns(inner):
    for n in range(20):
        inner.receive(0, 1, b"%d" % n)
    inner.receive(0, 2, b"second")
    inner.receive(1, 1, b"other worker's")
    assert inner.process.work()
    assert inner.taken[:3] == [
        LocalMessage(0, 1, b"0"),
        LocalMessage(0, 2, b"second"),
        LocalMessage(1, 1, b"other worker's"),
    ]
    assert len(inner.taken) == LOCAL_MESSAGES_PER_WAKE
    assert inner.workers[0].outbox == [Taken([(1, LOCAL_MESSAGES_PER_WAKE - 2, 6), (2, 1, 6)])]
    assert inner.workers[1].outbox == [Taken([(1, 1, 14)])]
    inner.work()
    assert [taken.octets for taken in inner.taken if taken[:2] == (0, 1)] == [b"%d" % n for n in range(20)]
    assert not inner.process.work()


def test_messages_wait_for_busy_handler(inner):
    """Messages for other handlers do not wait."""
    busy: list[LocalMessage] = []
    inner.process.serve("M0slow", busy.append, lambda connection: len(busy) < 2)
    for connection in (1, 2, 3):
        for n in range(3):
            inner.receive(0, connection, b"%d" % n, "M0slow")
    inner.receive(0, 4, b"x")
    inner.process.go_on()
    assert inner.changes == 1
    assert not inner.process.work()
    assert [(taken.connection_number, taken.octets) for taken in busy] == [(1, b"0"), (2, b"0")]
    assert len(inner.taken) == 1
    assert inner.workers[0].outbox == [Taken([(1, 1, 1), (2, 1, 1), (4, 1, 1)])]
    busy.clear()
    assert not inner.process.work()
    assert [(taken.connection_number, taken.octets) for taken in busy] == [(3, b"0"), (1, b"1")]
    for _ in range(4):
        busy.clear()
        inner.process.work()
    inner.process.go_on()
    assert inner.changes == 1


def test_messages_without_handler_are_taken(inner):
    inner.process.open("M0silent")
    inner.receive(0, 1, b"x", "M0silent")
    inner.work()
    assert inner.workers[0].outbox == [Taken([(1, 1, 1)])]


def test_failing_handler_delays_no_message(inner):
    def fail(taken):
        raise KeyError(taken.octets)

    inner.process.serve("M0bad", fail)
    inner.receive(0, 1, b"x", "M0bad")
    inner.receive(0, 1, b"y")
    with pytest.raises(KeyError):
        inner.process.work()
    assert inner.workers[0].outbox == [Taken([(1, 1, 1)])]
    inner.work()
    assert [taken.octets for taken in inner.taken] == [b"y"]


def test_messages_of_lost_worker_are_handled_without_answer(inner):
    """The messages were accepted. The successor of the worker gets no `taken` for them."""
    dead = inner.workers[0]
    inner.receive(0, 1, b"x")
    dead.stage = WorkerStage.DEAD
    inner.workers[0] = WorkerProcess(0, 2)
    inner.work()
    assert [taken.octets for taken in inner.taken] == [b"x"]
    assert dead.outbox == inner.workers[0].outbox == []


@pytest.mark.parametrize(("requested", "chosen"), [(None, 1), (0, 1), (1, 1), (2, 2), (7, 1)])
def test_message_is_sent_by_worker_with_consumer(inner, requested, chosen):
    inner.consumer("M0temp", 1)
    inner.consumer("M0temp", 2)
    assert inner.process.send("M0temp", b"x", requested)
    assert [index for index in inner.workers if inner.sent(index)] == [chosen]
    order, octets = inner.workers[chosen].sends[0]
    assert order == Send("M0temp", inner.journaled.journal.pending_epoch)
    assert octets == b"x"
    assert inner.changes == 1


@pytest.mark.parametrize("stage", [WorkerStage.DEAD, WorkerStage.STARTING, WorkerStage.FORKING])
def test_live_worker_is_chosen_for_sending(inner, stage):
    inner.consumer("M0temp", 1)
    inner.workers[1].stage = stage
    assert not inner.process.send("M0temp", b"x", 1)
    inner.consumer("M0temp", 2)
    assert inner.process.send("M0temp", b"x", 1)
    assert inner.sent(2) == [("M0temp", b"x")]


def test_message_without_consumer_is_not_sent(inner):
    record = inner.table.create("M0lonely", "balanced", None, "throttle")
    inner.table.add_producer(record)
    for text in ("M0lonely", "M0unknown", KEY):
        assert not inner.process.send(text, b"x", 0)
    assert not any(inner.sent(index) for index in inner.workers)


def test_message_to_served_address_is_not_sent(inner):
    """No reply-to makes the router send to its own address, even if clients consume that address."""
    inner.process.serve(KEY, lambda taken: inner.process.send(KEY, taken.octets))
    inner.consumer(KEY, 0)
    inner.receive(0, 1, b"x")
    inner.work()
    assert not any(inner.sent(index) for index in inner.workers)


def test_fallback_and_exchange_are_sent_to(inner):
    record = inner.consumer("M0plain", 0)
    inner.table.remove_consumer(record, 0, 1, 1)
    record.fallback = inner.consumer("MFplain", 2)
    assert inner.process.send("M0plain", b"x", 0)
    assert inner.sent(2) == [("M0plain", b"x")]
    inner.table.create("M0exchange", "balanced", None, "throttle").exchange = 1
    assert inner.process.send("M0exchange", b"y", 1)
    assert inner.sent(1) == [("M0exchange", b"y")]


def test_unconfirmed_octets_of_worker_are_bounded(inner):
    inner.consumer("M0temp", 0)
    large = bytes(MAX_UNCONFIRMED_OCTETS + 1)
    assert inner.process.send("M0temp", large)  # a message alone may have any size
    assert not inner.process.send("M0temp", b"x")
    inner.workers[0].unconfirmed = 0
    piece = bytes(MAX_UNCONFIRMED_OCTETS // 4)
    assert [inner.process.send("M0temp", piece) for _ in range(5)] == [True] * 4 + [False]


def test_requests_wait_while_answers_are_unconfirmed(inner):
    inner.consumer("M0temp", 0)
    inner.process.serve(KEY, lambda taken: inner.process.send("M0temp", bytes(UNCONFIRMED_OCTETS), 0))
    for n in range(5):
        inner.receive(0, n, b"x")
    inner.receive(1, 9, b"x")
    assert not inner.process.work()
    assert len(inner.sent(0)) == 2  # for its own client, and for the client of the other worker
    inner.workers[0].unconfirmed = 0
    assert not inner.process.work()
    assert len(inner.sent(0)) == 3


# -- Echo of option -T


def test_echo_returns_message_to_reply_address():
    sections = message.header(durable=True) + message.annotations({"x": 1})
    properties = {"message_id": 1, "subject": "s", "correlation_id": "c"}
    body = message.application_properties({"a": 1}) + message.value("body")
    sent = sections + message.properties(**properties, to="echo", reply_to="r") + body
    found = echo(sent)
    assert found is not None
    reply_to, octets = found
    assert reply_to == "r"
    wanted = message.properties(**properties, to="r")
    assert message.sections(octets) == message.sections(sections + wanted + body)


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x00",
        b"x",
        b"\x00\x53\x73\x45",
        b"\x00\x53\x73\x40",
        b"\x40",
        message.value("x"),
        message.properties(to="x"),
        message.properties(reply_to=7),
        message.properties(reply_to="r")[:-1],
    ],
)
def test_message_without_reply_to_is_not_echoed(octets):
    assert echo(octets) is None
