"""Connections that wait for the supervisor: who the client is, and whether it may open.

The supervisor may be busy, or stopped. So many opens stand before it at a time, that what else it has to hear never
waits behind more; the others wait here. A client that nobody decides about is let go after a while.
"""

from typing import TYPE_CHECKING, Final

from router.control import messages as control

if TYPE_CHECKING:
    from workers.connections.handler import ConnectionHandler
    from workers.worker import Worker

OPENS_MOST: Final = 256
# Looks at those that wait, not a time: while the whole router is stopped there are none.
LOOK_MS: Final = 5000
LOOKS_MOST: Final = 12


class Admissions:
    """Owner: the worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker: Final = worker
        self._looks: dict[ConnectionHandler, int] = {}  # that have passed since the question
        self._asked: set[ConnectionHandler] = set()  # whether they may open
        self._later: dict[ConnectionHandler, control.Opened] = {}  # not asked yet, in their order
        self._looking = False

    def ask(self, client: "ConnectionHandler", message: control.Opened) -> None:
        """May it open? `done` follows."""
        self.expect(client)
        if len(self._asked) < OPENS_MOST:
            self._asked.add(client)
            self._worker.control.send_event(message)
        else:
            self._later[client] = message

    def expect(self, client: "ConnectionHandler") -> None:
        """The supervisor was asked something else about it. `done` follows."""
        self._looks[client] = 0
        if not self._looking:
            self._looking = True
            self._look_later()

    def done(self, client: "ConnectionHandler") -> None:
        """It has its answer, or is gone."""
        self._looks.pop(client, None)
        self._later.pop(client, None)
        if client in self._asked:
            self._asked.remove(client)
            if self._later:
                following = next(iter(self._later))
                self._asked.add(following)
                self._worker.control.send_event(self._later.pop(following))

    def _look_later(self) -> None:
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + LOOK_MS, self._look)

    def _look(self) -> None:
        if not self._looks:
            self._looking = False
            return
        self._look_later()
        due = []
        for client in self._looks:
            self._looks[client] += 1
            if self._looks[client] > LOOKS_MOST:
                due.append(client)
        for client in due:
            self.done(client)
            client.undecided()
