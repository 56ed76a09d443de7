"""The supervisor's record of a worker: one object for each generation."""

import socket
from collections import deque
from enum import Enum
from typing import Any

from router.control.messages import Control, Order, Send
from router.control.names import identity
from supervisor.connections.connections import Connection


class WorkerFaultError(Exception):
    """A worker sent an invalid message; the text says what. Nothing has changed."""


class WorkerCorruptError(Exception):
    """Raised for a worker, other than the reporting one, that has to be replaced; the text says why."""

    def __init__(self, worker: "Worker", text: str) -> None:
        super().__init__(text)
        self.worker = worker


class Stage(Enum):
    """The stage of a worker."""

    FORKING = "forking"  # requested
    STARTING = "starting"  # runs, has no table yet
    LIVE = "live"  # its acknowledgements count
    SERVING = "serving"  # and it gets connections
    DEAD = "dead"


class Worker:
    """A worker process. Owner: the pool; the core reads it and fills its outbox."""

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
        self.stage = Stage.FORKING
        self.connections: dict[int, Connection] = {}
        self.outbox: list[Order] = []  # for the control channel, sent at the end of a wake
        # Messages of the router itself, sent behind the outbox.
        self.sends: deque[tuple[Send | Control, bytes]] = deque()
        self.unconfirmed = 0  # octets of those that it has not reported as forwarded
        self.wants_snapshot = False
        self.serving_from = 0  # epoch that announced it: it gets connections once it has acknowledged that
        self.pid = 0
        self.pidfd: int | None = None
        self.handover: socket.socket | None = None  # the supervisor's end
        self.untaken: socket.socket | None = None  # the worker's end, to take back connections
        self.beat = 0  # its heartbeat as the last probe saw it
        self.silent = 0.0  # seconds without response to probes
        self.stuck: Any = None  # a connection that the hand-over socket had no room for

    @property
    def live(self) -> bool:
        return self.stage in (Stage.LIVE, Stage.SERVING)

    @property
    def serves(self) -> bool:
        """Whether it is serving and responds."""
        return self.stage is Stage.SERVING and not self.silent

    @property
    def takes_connections(self) -> bool:
        """Whether it may get connections now."""
        return self.serves and self.handover is not None and self.stuck is None

    def close_handover(self) -> None:
        """Both ends of the hand-over socket."""
        for end in (self.handover, self.untaken):
            if end is not None:
                end.close()
        self.handover = self.untaken = None

    def __repr__(self) -> str:
        return f"worker {self.index} generation {self.generation} (process {self.pid}, {self.stage.value})"
