"""The life of one connector: its attempts, and what management shows (brokers-and-edge.md 2.2 to 2.4).

No input or output here: events come in as method calls, which return in how many seconds to try again.
"""

import random
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from supervisor.connectors.ring import Entry, Ring

AFTER_FAILURE: Final = 5.0  # seconds until the next attempt
AFTER_END: Final = 2.0  # … when the connection was open
# … to another router that does not answer: routers that start together find each other soon. The last one repeats.
TO_ROUTERS: Final = (0.25, 0.5, 1.0, 2.0)
WITH_FAILOVER: Final = 1.0  # … while there is more than one address
AFTER_WORKER: Final = 0.05  # … when the worker of the connection died: no fault of the peer
# Part of the delay by which it varies, so that many routers do not come back to a broker all at once.
JITTER: Final = 0.1
# Seconds. A connection to another router that was open for so long is missed: the next attempt is soon. One that was
# not may be unwanted there, each time.
LASTING: Final = 10.0


class Status(Enum):
    """What management shows. SUCCESS is set when an attempt starts, and no proof of an open connection.

    brokers-and-edge.md C-5.
    """

    INITIALIZING = "INITIALIZING"
    CONNECTING = "CONNECTING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CLOSING = "CLOSING"


class ConnectorState:
    """One connector. Owner: the connectors."""

    __slots__ = (
        "_clock",
        "_failed",
        "_failures",
        "_handshake",
        "_opened_at",
        "_random",
        "_result",
        "_to_router",
        "host",
        "port",
        "ring",
        "status",
    )

    def __init__(
        self,
        host: str,
        port: str,
        *,
        to_router: bool = False,
        uniform: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """to_router: it is a router like this one. `uniform` makes the jitter, a number between two others. clock:
        seconds."""
        self._to_router = to_router
        self._failures = 0  # attempts since a connection was open
        self.host = host
        self.port = port
        self.ring = Ring(host, port)
        self.status = Status.INITIALIZING
        self._result = ""  # of the last attempt that had one
        self._failed = False  # … which is a failure
        self._handshake = ""  # of the present attempt, as `message` shows it; empty: there is none
        self._opened_at: float | None = None  # of the present or last attempt; None: it was not open
        self._random = uniform
        self._clock = clock

    @property
    def place(self) -> str:
        """The configured address."""
        return f"{self.host}:{self.port}"

    @property
    def message(self) -> str:
        """Return the text for management: a handshake that goes on, with the failure before it, or the last result."""
        if self._handshake and self._failed:
            return f"{self._handshake}; before: {self._result}"
        return self._handshake or self._result

    @property
    def closing(self) -> bool:
        """Whether it is being deleted."""
        return self.status is Status.CLOSING

    def begin(self) -> Entry:
        """An attempt starts; where to."""
        self.status = Status.SUCCESS
        self._opened_at = None
        return self.ring.current

    def connected(self, number: int) -> None:
        """The host has taken the connection, and is to open it: by TLS, SASL and AMQP."""
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        self._handshake = f"[C{number}] Connection to {self.place}: handshaking since {since}"

    def opened(self, text: str, properties: Mapping[str, Any] | None) -> None:
        """The connection is open. properties: the peer's, which may name further addresses."""
        self._opened_at = self._clock()
        self._failures = 0
        self._handshake, self._result, self._failed = "", text, False
        self.ring.succeeded()
        self.ring.add_named(properties)

    def failed(self, text: str) -> float:
        """The attempt failed, or the connection was lost; seconds until the next attempt."""
        self._result, self._failed = text, True
        self.ring.failed()
        return self._wait()

    def ended(self) -> float:
        """The peer closed the open connection, which is no fault; seconds until the next attempt."""
        return self._wait()

    def worker_died(self) -> float:
        """The worker that had the connection died; seconds until the next attempt."""
        self._wait()
        return self._vary(AFTER_WORKER)

    def delete(self) -> None:
        """Stop trying."""
        self._handshake = ""
        self.status = Status.CLOSING

    def _wait(self) -> float:
        self._handshake = ""
        if not self.closing:
            self.status = Status.CONNECTING
        if len(self.ring) > 1:
            return self._vary(WITH_FAILOVER)
        if self._opened_at is not None:
            lasted = self._to_router and self._clock() - self._opened_at >= LASTING
            return self._vary(TO_ROUTERS[0] if lasted else AFTER_END)
        self._failures += 1
        if self._to_router:
            return self._vary(TO_ROUTERS[min(self._failures, len(TO_ROUTERS)) - 1])
        return self._vary(AFTER_FAILURE)

    def _vary(self, seconds: float) -> float:
        return seconds * self._random(1 - JITTER, 1 + JITTER)
