"""Work in a thread beside the loop of a worker."""

import select
import threading

from sluice.workers.background import BackgroundThread


class FakeLoop:
    """Loop that watches descriptors, as a worker's loop does."""

    def __init__(self):
        self.watched = {}

    def add(self, fd, what):
        self.watched[fd] = what

    def wait(self):
        ready, _, _ = select.select(list(self.watched), [], [], 30)
        assert ready
        for fd in ready:
            self.watched[fd]()


def test_results_are_delivered_in_loop():
    loop, seen = FakeLoop(), []
    background = BackgroundThread(loop)

    def work():
        assert threading.current_thread() is not threading.main_thread()
        return b"key"

    def failing():
        raise ValueError("no")

    def then(result):
        assert threading.current_thread() is threading.main_thread()
        seen.append(result)

    background.run(work, then)
    background.run(failing, then)
    background.run(work, then)
    while len(seen) < 3:
        loop.wait()
    assert (seen[0], str(seen[1]), seen[2]) == (b"key", "no", b"key")
    assert len(loop.watched) == 1


def test_background_without_work_watches_nothing():
    loop = FakeLoop()
    BackgroundThread(loop)
    assert loop.watched == {}
