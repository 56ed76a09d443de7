"""A worker as the supervisor knows it: one object for each generation."""
import socket
from collections import deque
from enum import Enum
from typing import Any

from router.ipc.control import Message, identity
from supervisor.connections import Connection


class WorkerFaultError(Exception):
    """A worker sent what makes no sense; the text says what. Nothing has changed."""


class Stage(Enum):
    """How far a worker is in its life."""

    FORKING = "forking"  # asked for
    STARTING = "starting"  # runs, has no table yet
    LIVE = "live"  # its acknowledgements count
    SERVING = "serving"  # and it is given connections
    DEAD = "dead"


class Worker:
    """A worker process. Owner: the pool; the core reads it and fills its outbox."""

    __slots__ = (
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
        "stage",
        "stuck",
        "unconfirmed",
        "wants_snapshot",
    )

    def __init__(self, index: int, generation: int) -> None:
        self.index = index
        self.generation = generation
        self.identity = identity(index, generation)
        self.stage = Stage.FORKING
        self.connections: dict[int, Connection] = {}
        self.outbox: list[Message] = []  # for the control channel, sent at the end of a wake
        self.sends: deque[tuple[Message, bytes]] = deque()  # messages of the router itself, sent behind the outbox
        self.unconfirmed = 0  # octets of those that it has not told to be forwarded
        self.wants_snapshot = False
        self.serving_from = 0  # epoch that announced it: with its acknowledgement it is given connections
        self.pid = 0
        self.pidfd: int | None = None
        self.handover: socket.socket | None = None  # the supervisor's end
        self.stuck: Any = None  # a connection that the hand-over socket had no room for

    @property
    def live(self) -> bool:
        return self.stage in (Stage.LIVE, Stage.SERVING)

    def __repr__(self) -> str:
        return f"worker {self.index} generation {self.generation} (process {self.pid}, {self.stage.value})"
