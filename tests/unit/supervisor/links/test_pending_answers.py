"""Attach answers that wait for the acknowledgement of an epoch by all workers, or by one."""

import pytest

from sluice.router.config.load import load_text
from sluice.router.control.messages import Attached
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.links.pending_answers import PendingAttachAnswers

CONFIGURATION = "listener {\n    port: 0\n}\n"


class AnsweredWorkers:
    """Two live workers with epoch 5, and the attach answers for them."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.answers = PendingAttachAnswers(self.journal)
        self.workers = [WorkerProcess(0, 1), WorkerProcess(1, 1)]
        for worker in self.workers:
            self.journal.join(worker.index, 5)
        listener = load_text("router.conf", CONFIGURATION).listeners[0]
        self._connection = RegisteredConnection(1, listener, "l", "p", "key")

    def link(self, number: int, worker: int) -> RegisteredLink:
        return RegisteredLink(number, "", True, number, 1, self._connection, worker)

    def hold(self, epoch: int, link: RegisteredLink, *, own: bool = False) -> None:
        answer = Attached(conn=1, link=link.identity, kind="address", identity=link.identity)
        send = self.answers.send_after_own if own else self.answers.send_after_all
        send(epoch, self.workers[link.worker], link, answer)

    def sent(self, worker: int) -> list[int]:
        """Return the links answered since the last call."""
        self.answers.send_acknowledged()
        outbox = self.workers[worker].outbox
        links = [order.link for order in outbox if isinstance(order, Attached)]
        outbox.clear()
        return links


@pytest.fixture
def answered() -> AnsweredWorkers:
    return AnsweredWorkers()


def test_answer_is_sent_when_all_workers_have_epoch(answered: AnsweredWorkers) -> None:
    link = answered.link(1, 0)
    answered.hold(6, link)
    assert answered.journal.awaits(6)
    answered.hold(7, answered.link(2, 0))
    answered.journal.acknowledge(0, 7)
    assert (answered.sent(0), link.up) == ([], False)
    answered.journal.acknowledge(1, 6)
    assert (answered.sent(0), link.up) == ([1], True)
    answered.journal.acknowledge(1, 7)
    assert answered.sent(0) == [2]


def test_answer_for_own_worker_waits_for_no_other(answered: AnsweredWorkers) -> None:
    answered.hold(6, answered.link(1, 0), own=True)
    assert answered.journal.awaits(6)
    answered.hold(7, answered.link(2, 0), own=True)
    assert answered.sent(0) == []
    answered.journal.acknowledge(0, 6)
    assert answered.sent(0) == [1]


def test_answer_with_acknowledged_epoch_is_sent_at_once(answered: AnsweredWorkers) -> None:
    answered.hold(5, answered.link(1, 0), own=True)
    assert len(answered.workers[0].outbox) == 1
    assert not answered.journal.awaits(5)


def test_answer_for_closed_link_is_dropped(answered: AnsweredWorkers) -> None:
    first, second = answered.link(1, 0), answered.link(2, 0)
    first.closed = second.closed = True
    answered.hold(6, first)
    answered.hold(5, second, own=True)
    answered.journal.acknowledge(0, 6)
    answered.journal.acknowledge(1, 6)
    assert (answered.sent(0), first.up, second.up) == ([], False, False)


def test_lost_worker_delays_no_answer_of_others(answered: AnsweredWorkers) -> None:
    answered.hold(6, answered.link(1, 0))
    answered.journal.acknowledge(0, 6)
    answered.journal.leave(1)
    answered.answers.drop_worker(answered.workers[1])
    assert answered.sent(0) == [1]


def test_answers_for_lost_worker_alone_are_dropped(answered: AnsweredWorkers) -> None:
    answered.hold(6, answered.link(1, 1), own=True)
    answered.journal.leave(1)
    answered.hold(7, answered.link(2, 1), own=True)
    assert not answered.journal.awaits(7)
    answered.answers.drop_worker(answered.workers[1])
    answered.journal.join(1, 7)  # the next generation
    assert answered.sent(1) == []
