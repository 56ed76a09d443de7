"""Attach answers that wait until workers have acknowledged an epoch. Does no input or output."""

from collections import deque

from sluice.router.control.messages import Attached
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.journal.journal import Journal

# Attach answer that waits: epoch, worker, link, answer. A plain tuple, because a burst has thousands of attaches.
PendingAttachAnswer = tuple[int, WorkerProcess, RegisteredLink, Attached]


class PendingAttachAnswers:
    """Attach answers that wait for all live workers, or for the link's own worker. Owner: the accepted links.

    Answers that wait for the same workers are sent in order of arrival. An answer that need not wait is sent at once.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._for_all: deque[PendingAttachAnswer] = deque()
        self._for_worker: dict[int, deque[PendingAttachAnswer]] = {}  # by index of the worker

    def send_after_all(self, epoch: int, worker: WorkerProcess, link: RegisteredLink, answer: Attached) -> None:
        """Send an answer when all live workers have acknowledged `epoch`."""
        self._journal.await_all(epoch)
        self._for_all.append((epoch, worker, link, answer))

    def send_after_own(self, epoch: int, worker: WorkerProcess, link: RegisteredLink, answer: Attached) -> None:
        """Send an answer when the link's worker has acknowledged `epoch`; now if it already has.

        The answer is dropped if that worker ends.
        """
        if epoch <= self._journal.acknowledged(worker.index):
            _send(worker, link, answer)
        elif self._journal.has(worker.index):
            self._journal.await_all(epoch)
            self._for_worker.setdefault(worker.index, deque()).append((epoch, worker, link, answer))

    def drop_worker(self, worker: WorkerProcess) -> None:
        """Drop the answers that wait for a lost worker alone."""
        self._for_worker.pop(worker.index, None)

    def send_acknowledged(self) -> None:
        """Send the answers whose epoch has been acknowledged."""
        _send_up_to(self._journal.settled, self._for_all)
        for index, waiting in self._for_worker.items():
            _send_up_to(self._journal.acknowledged(index), waiting)


def _send_up_to(epoch: int, waiting: deque[PendingAttachAnswer]) -> None:
    while waiting and waiting[0][0] <= epoch:
        _, worker, link, answer = waiting.popleft()
        _send(worker, link, answer)


def _send(worker: WorkerProcess, link: RegisteredLink, answer: Attached) -> None:
    """Send an answer, unless the link has ended."""
    if link.resumes is not None:
        worker.outbox.append(link.resumes)
    if not link.closed:
        link.up = True
        worker.outbox.append(answer)
