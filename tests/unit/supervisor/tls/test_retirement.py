"""Retirement of connections with replaced credentials: their choice and the rate of closing."""

from types import SimpleNamespace
from typing import Any

import pytest

from sluice.router.config.load import load_text
from sluice.router.control.messages import Opened, TlsFacts
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.tls.retirement import FORCED, MOST_SECONDS, Retirement

CONFIGURATION = """
sslProfile {
    name: p
    oldConnections: %s
}
listener {
    port: 1
    sslProfile: p
}
listener {
    port: 2
}
"""

EPOCH = 7  # first epoch in which workers use the new credentials
OPEN = Opened(conn=0, container="c", hostname=None, user=None, properties={}, tls=None)


class RetirementOnClock:
    """Retirement with a manual clock: `due` holds the requested calls."""

    def __init__(self, old="retire"):
        self.configuration = load_text("x.conf", CONFIGURATION % old)
        self.worker: Any = SimpleNamespace(connections={})
        self.opened: Any = {}
        self.closed: list[int] = []
        self.due: list[Any] = []
        connections: Any = self
        self.replaced: Any = None
        waker: Any = SimpleNamespace(later=self.later, wake=lambda: None)
        profiles: Any = SimpleNamespace(on_credentials_replaced=lambda call: setattr(self, "replaced", call))
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0)}))
        workers: Any = {0: self.worker}
        self.retirement = Retirement(profiles, connections, workers, waker, log)

    def later(self, seconds, function):
        self.due.append((seconds, function))
        return SimpleNamespace(cancel=self.due.clear)

    def close(self, connection, condition, text):
        connection.closing = True
        assert (condition, "'p'" in text) == (FORCED, True)
        self.closed.append(connection.number)

    def connection(self, number, listener=0, tls=True, opened=True, epoch=EPOCH - 1):
        made = RegisteredConnection(number, self.configuration.listeners[listener], "", "", "")
        made.epoch = epoch
        made.opened, made.tls = opened, TlsFacts(protocol="TLSv1.3", cipher="x", ssf=1) if tls else None
        self.worker.connections[number] = made
        if opened:
            self.opened[number] = made
        return made

    def run(self):
        """Make all requested calls; return the seconds that they would have taken."""
        took = 0.0
        while self.due:
            seconds, function = self.due.pop(0)
            took += seconds
            function()
        return took


@pytest.mark.parametrize(("count", "pace"), [(100, 10), (3000, 10), (3300, 11), (30000, 100)])
def test_retirement_closes_oldest_first_at_rate(count, pace):
    setup = RetirementOnClock()
    for number in range(count):
        setup.connection(number)
    setup.replaced(setup.configuration.ssl_profiles[0], EPOCH)
    took = setup.run()
    assert setup.closed == list(range(count)), "the oldest first"
    assert took == pytest.approx(count / pace, rel=0.1, abs=0.06)
    assert took <= 1.02 * MOST_SECONDS


def test_retirement_closes_connections_with_old_credentials():
    setup = RetirementOnClock()
    setup.connection(1)
    setup.connection(2, listener=1)
    setup.connection(3, tls=False)
    late = setup.connection(4, opened=False)
    gone = setup.connection(5)
    setup.connection(6, opened=False)
    setup.connection(8, epoch=EPOCH)
    early = setup.connection(9, opened=False, epoch=EPOCH + 1)
    setup.replaced(setup.configuration.ssl_profiles[0], EPOCH)
    del setup.opened[gone.number]
    setup.run()
    assert setup.closed == [1]
    late.opened, setup.opened[4] = True, late
    setup.retirement.connection_opened(late, OPEN)
    early.opened, setup.opened[9] = True, early
    setup.retirement.connection_opened(early, OPEN)
    setup.retirement.connection_opened(setup.connection(7), OPEN)
    setup.run()
    assert setup.closed == [1, 4], "no connection with the new credentials, and no later one"


def test_retirement_with_keep_closes_nothing():
    setup = RetirementOnClock(old="keep")
    setup.connection(1)
    setup.replaced(setup.configuration.ssl_profiles[0], EPOCH)
    assert (setup.run(), setup.closed) == (0, [])


def test_stopped_retirement_closes_nothing():
    setup = RetirementOnClock()
    setup.connection(1)
    setup.replaced(setup.configuration.ssl_profiles[0], EPOCH)
    setup.retirement.stop()
    assert (setup.run(), setup.closed) == (0, [])
