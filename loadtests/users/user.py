"""Base class of AMQP users: keeps a connection, reports to locust's statistics, stops reporting when the test ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
from locust import User, constant_throughput, events

from loadtests.users import options as options  # adds the command line options
from loadtests.users.connection import GeventConnection
from loadtests.users.errors import LocustError
from loadtests.users.security import Security

RECONNECT_DELAY = 1.0  # seconds between attempts of one user
LINGER = 1.0  # seconds that receivers stay after the end of the test, until the senders of other processes have stopped


class Phase:
    """Phase of the test. Only events while it runs count: not those before the start, nor while users stop."""

    running = False


def _start(**_: object) -> None:
    Phase.running = True


def _stop(**_: object) -> None:
    Phase.running = False


def _look_at_the_clock(**_: Any) -> None:
    """Update gevent's clock, on which its timers are based: on a slow machine the imports would count as run time."""
    gevent.get_hub().loop.update_now()


events.init.add_listener(_look_at_the_clock)
events.test_start.add_listener(_start)
events.test_stopping.add_listener(_stop)


class AmqpUser(User):
    """Connection to `host`, a URL like amqp://127.0.0.1:5672 or amqps://localhost, reopened when it is lost.

    Attributes that a scenario's class sets: `rate` (tasks a second; 0: unlimited), `weight`, `fixed_count`.
    """

    abstract = True
    rate: float = 0.0
    connection: GeventConnection | None = None

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        given = self.option("rate")
        self.rate = (0.0 if given == "max" else float(given)) if given else self.rate
        names = ("user", "password", "mechanisms", "ca", "certificate", "key")
        self.security = Security(**{name: self.option(f"amqp_{name}") or "" for name in names})
        self._pace = constant_throughput(self.rate) if self.rate else None

    def wait_time(self) -> float:
        """Return the seconds until the next task. A user that cannot keep its rate does not catch up."""
        return float(self._pace(self)) if self._pace else 0.0

    def option(self, name: str) -> Any:
        """Return the command line's value. None: not given."""
        return getattr(self.environment.parsed_options, name, None) or None

    def addressed(self, address: str) -> str:
        """Return the address with the command line's prefix."""
        return (self.option("address_prefix") or "") + address

    # Methods for subclasses.

    def attach(self, connection: GeventConnection) -> None:
        """Attach the links of this user. Raises AmqpError."""

    def ready(self) -> bool:
        """Connect and attach if needed. Return False after a failure, which has been reported, and a pause."""
        if self.connection is not None and self.connection.lost is None:
            return True
        started = time.monotonic()
        connection = GeventConnection(self.host or "amqp://127.0.0.1:5672", security=self.security)
        try:
            connection.open()
            self.attach(connection)
        except LocustError as error:
            self.report("connect", "", started, error=error)
            connection.abort()
            gevent.sleep(RECONNECT_DELAY)
            return False
        except BaseException:  # locust ends this user
            connection.abort()
            raise
        self.connection = connection
        self.report("connect", "", started)
        return True

    def drop(self) -> None:
        """Abort the connection: the next task opens another."""
        if self.connection is not None:
            self.connection.abort()

    def attempt(self, kind: str, name: str, action: Callable[[], None]) -> None:
        """Run an action on the connection. A failure is reported as `kind`, and aborts the connection."""
        started = time.monotonic()
        try:
            action()
        except LocustError as error:
            self.report(kind, name, started, error=error)
            self.drop()
            gevent.sleep(RECONNECT_DELAY)

    def report(
        self,
        kind: str,
        name: str,
        started: float,
        *,
        octets: int = 0,
        error: LocustError | None = None,
    ) -> None:
        """Report an event that took from `started` (time.monotonic) until now."""
        self.report_latency(kind, name, (time.monotonic() - started) * 1000, octets=octets, error=error)

    def report_latency(
        self,
        kind: str,
        name: str,
        milliseconds: float,
        *,
        octets: int = 0,
        error: LocustError | None = None,
    ) -> None:
        """Count an event in locust's statistics under `kind` and `name` (the class's name if empty)."""
        if Phase.running:
            self.environment.events.request.fire(
                request_type=kind,
                name=name or type(self).__name__,
                response_time=milliseconds,
                response_length=octets,
                exception=error,
                context=self.context(),
            )

    def on_stop(self) -> None:
        """Close. The peer's reaction is not counted."""
        if self.connection is not None:
            try:
                self.connection.close()
            except LocustError:
                self.connection.abort()
