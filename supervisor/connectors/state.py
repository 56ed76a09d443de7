"""State machine of one connector: its attempts, and its state in management (brokers-and-edge.md 2.2 to 2.4).

No input or output here: events arrive as method calls, which return the delay of the next attempt in seconds.
"""

import random
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from sluice.supervisor.connectors.failover import FailoverEntry, FailoverList

# Delays until the next attempt, in seconds:
AFTER_FAILURE: Final = 5.0  # after an attempt that failed
AFTER_END: Final = 2.0  # after the end of an open connection
# After failed attempts to reach another router, so that routers that start together connect soon. The last one repeats.
TO_ROUTERS: Final = (0.25, 0.5, 1.0, 2.0)
WITH_FAILOVER: Final = 1.0  # while there is more than one address
AFTER_WORKER: Final = 0.05  # after the worker of the connection died, which is no fault of the peer
# Fraction by which delays vary at random, so that many routers do not reconnect to a broker at the same time.
JITTER: Final = 0.1
# Time in seconds that a connection to another router must have been open for the shortest delay afterwards. A shorter
# one may be unwanted by the peer, which would end it each time.
LASTING_SECONDS: Final = 10.0


class Status(Enum):
    """Status in management. SUCCESS is set when an attempt starts and does not prove an open connection.

    The rule: brokers-and-edge.md C-5.
    """

    INITIALIZING = "INITIALIZING"
    CONNECTING = "CONNECTING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CLOSING = "CLOSING"


class ConnectorState:
    """State of one connector. Owner: the connectors."""

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
        """Create the initial state.

        to_router: the peer is a router, too. uniform: return a random number between two others, for the jitter.
        clock: return seconds.
        """
        self._to_router = to_router
        self._failures = 0  # number of failed attempts since a connection was open
        self.host = host
        self.port = port
        self.ring = FailoverList(host, port)
        self.status = Status.INITIALIZING
        self._result = ""  # result of the last attempt that had one
        self._failed = False  # True: `_result` is a failure
        self._handshake = ""  # text about the present handshake; empty: there is none
        self._opened_at: float | None = None  # time of the open of the present or last attempt; None: it was not open
        self._random = uniform
        self._clock = clock

    @property
    def place(self) -> str:
        """Configured address as `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def message(self) -> str:
        """Text for management: the present handshake with the failure before it, or the last result."""
        if self._handshake and self._failed:
            return f"{self._handshake}; before: {self._result}"
        return self._handshake or self._result

    @property
    def closing(self) -> bool:
        """True if the connector is being deleted."""
        return self.status is Status.CLOSING

    def begin(self) -> FailoverEntry:
        """Begin an attempt. Returns the address to connect to."""
        self.status = Status.SUCCESS
        self._opened_at = None
        return self.ring.current

    def connected(self, number: int) -> None:
        """Note that the TCP connection is established; the handshake of TLS, SASL and AMQP follows."""
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        self._handshake = f"[C{number}] Connection to {self.place}: handshaking since {since}"

    def opened(self, text: str, properties: Mapping[str, Any] | None) -> None:
        """Note that the connection is open. properties: those of the peer, which may list further addresses."""
        self._opened_at = self._clock()
        self._failures = 0
        self._handshake, self._result, self._failed = "", text, False
        self.ring.succeeded()
        self.ring.replace_announced(properties)

    def failed(self, text: str) -> float:
        """Note that the attempt failed or the connection was lost. Returns the delay of the next attempt."""
        self._result, self._failed = text, True
        self.ring.failed()
        return self._wait()

    def ended(self) -> float:
        """Note that the open connection was closed, which is not a failure. Returns the delay of the next attempt."""
        return self._wait()

    def worker_died(self) -> float:
        """Note that the worker of the connection died. Returns the delay of the next attempt."""
        self._wait()
        return self._with_jitter(AFTER_WORKER)

    def delete(self) -> None:
        """Mark the connector as being deleted."""
        self._handshake = ""
        self.status = Status.CLOSING

    def _wait(self) -> float:
        """End the handshake and return the delay of the next attempt (inter-router.md 2.5)."""
        self._handshake = ""
        if not self.closing:
            self.status = Status.CONNECTING
        if len(self.ring) > 1:
            return self._with_jitter(WITH_FAILOVER)
        if self._opened_at is not None:
            lasted = self._to_router and self._clock() - self._opened_at >= LASTING_SECONDS
            return self._with_jitter(TO_ROUTERS[0] if lasted else AFTER_END)
        self._failures += 1
        if self._to_router:
            return self._with_jitter(TO_ROUTERS[min(self._failures, len(TO_ROUTERS)) - 1])
        return self._with_jitter(AFTER_FAILURE)

    def _with_jitter(self, seconds: float) -> float:
        return seconds * self._random(1 - JITTER, 1 + JITTER)
