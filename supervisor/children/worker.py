"""Supervisor's record of a worker: one object for each generation."""

import signal
import socket
from collections import deque
from enum import Enum
from typing import Any, Final

from sluice.router.control.messages import Control, Order, Send
from sluice.router.control.names import identity
from sluice.supervisor.connections.connections import RegisteredConnection


class WorkerFaultError(Exception):
    """Error for an invalid message of a worker; the text describes it. Nothing has changed."""


class WorkerCorruptError(Exception):
    """Error for a worker, other than the reporting one, that has to be replaced; the text is the reason."""

    def __init__(self, worker: "WorkerProcess", text: str) -> None:
        super().__init__(text)
        self.worker = worker


class WorkerStage(Enum):
    """Stage in the life of a worker."""

    FORKING = "forking"  # requested
    STARTING = "starting"  # runs, but has no table yet
    LIVE = "live"  # its acknowledgements count
    SERVING = "serving"  # live, and it receives connections
    DEAD = "dead"


# Python 3.11 takes 17 times as long to read a member from an enum as a global, and stages are compared for each
# accepted connection, each acknowledgement and each wake.
_SERVING: Final = WorkerStage.SERVING
_LIVE: Final = (WorkerStage.LIVE, WorkerStage.SERVING)
_WITHOUT_PROCESS: Final = (WorkerStage.FORKING, WorkerStage.DEAD)


class WorkerProcess:
    """Worker process. Owner: the pool; the core reads it and fills its outbox."""

    __slots__ = (
        "beat",
        "connections",
        "generation",
        "handover",
        "identity",
        "index",
        "outbox",
        "pid",
        "pidfd",
        "sends",
        "serving_from",
        "silent",
        "stage",
        "stuck",
        "unconfirmed",
        "untaken",
        "wants_snapshot",
    )

    def __init__(self, index: int, generation: int) -> None:
        self.index = index
        self.generation = generation
        self.identity = identity(index, generation)
        self.stage = WorkerStage.FORKING
        self.connections: dict[int, RegisteredConnection] = {}
        self.outbox: list[Order] = []  # for the control channel, sent at the end of a wake
        # Messages that the router itself sends, delivered after the outbox.
        self.sends: deque[tuple[Send | Control, bytes]] = deque()
        self.unconfirmed = 0  # octets of router messages that the worker has not reported as forwarded
        self.wants_snapshot = False
        # epoch that announced the worker; it receives connections once it has acknowledged this epoch
        self.serving_from = 0
        self.pid = 0
        self.pidfd: int | None = None
        self.handover: socket.socket | None = None  # the supervisor's end
        self.untaken: socket.socket | None = None  # the worker's end, kept to take back connections
        self.beat = 0  # heartbeat at the last probe
        self.silent = 0.0  # seconds without response to probes
        self.stuck: Any = None  # connection and socket for which the hand-over socket had no room

    @property
    def live(self) -> bool:
        return self.stage in _LIVE

    @property
    def runs(self) -> bool:
        """Return whether the process has started and not ended."""
        return self.stage not in _WITHOUT_PROCESS

    @property
    def serves(self) -> bool:
        """Return whether the worker is serving and responds."""
        return self.stage is _SERVING and not self.silent

    @property
    def takes_connections(self) -> bool:
        """Return whether the worker may receive connections now."""
        return self.serves and self.handover is not None and self.stuck is None

    def kill(self) -> None:
        """Kill the process, if it runs. Its exit is handled like any other."""
        if self.pidfd is not None:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return  # dead already, as its pidfd will report

    def __repr__(self) -> str:
        return f"worker {self.index} generation {self.generation} (process {self.pid}, {self.stage.value})"
