"""Connections that wait for a decision of the supervisor about their identity or their open.

The supervisor may be busy or stopped. The number of opens sent to it at a time is bounded, so that other events wait
behind at most that many; further opens wait in the worker. A client that gets no decision in time is refused.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.control import messages as control
from sluice.workers.connections.opening import refuse_undecided

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.worker import WorkerRuntime

MAX_PENDING_OPENS: Final = 256
# Period and number of looks at waiting connections. A count is used instead of a time because nothing is counted while
# the whole router is stopped.
LOOK_MS: Final = 5000
MAX_DECISION_CHECKS: Final = 12


class Admissions:
    """Queries to the supervisor about connections that are being admitted. Owner: the worker."""

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker: Final = worker
        self._looks: dict[ConnectionHandler, int] = {}  # looks that have passed since the query
        self._asked: set[ConnectionHandler] = set()  # connections whose open was sent to the supervisor
        self._later: dict[ConnectionHandler, control.Opened] = {}  # opens not sent yet, in order
        self._looking = False

    def ask(self, client: "ConnectionHandler", message: control.Opened) -> None:
        """Ask the supervisor whether the client may open. `done` follows."""
        self.expect(client)
        if len(self._asked) < MAX_PENDING_OPENS:
            self._asked.add(client)
            self._worker.control.send_event(message)
        else:
            self._later[client] = message

    def expect(self, client: "ConnectionHandler") -> None:
        """Start the time limit of another query about the client. `done` follows."""
        self._looks[client] = 0
        if not self._looking:
            self._looking = True
            self._look_later()

    def done(self, client: "ConnectionHandler") -> None:
        """End the query of a client, which has its answer or is closed, and send the next waiting open."""
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
            if self._looks[client] > MAX_DECISION_CHECKS:
                due.append(client)
        for client in due:
            self.done(client)
            refuse_undecided(client)
