"""Events that a transport watches its descriptor for."""

import os
from collections.abc import Iterator

import pytest

from sluice.router.amqp.connection import Pause
from sluice.workers.loop import Loop
from sluice.workers.testing import ManualPoller
from sluice.workers.transport.base import Transport
from tests.peer.talk import begin
from tests.unit.workers.loop_connections import REGION, LoopConnections

READABLE, WRITABLE = 1, 4


class WatchedConnections(LoopConnections):
    """Connections whose poller lists each change of events."""

    def __init__(self) -> None:
        super().__init__()
        self.poller = ManualPoller()
        self.loop = Loop(REGION, 0, self.poller)

    def event(self, transport: Transport) -> None:
        """Run a wake in which a descriptor is readable."""
        self.poller.events = [(transport.fd, READABLE)]
        self.loop.step()

    def open(self) -> Transport:
        """Connect a client, which has opened."""
        transport: Transport = self.connect()
        self.event(transport)
        assert transport.connection.remote_open is not None
        return transport


@pytest.fixture
def connections() -> Iterator[WatchedConnections]:
    """Connections of a loop with a poller of the test."""
    made = WatchedConnections()
    yield made
    for transport in made.transports:
        os.close(transport.fd)
    for far in made.far:
        far.close()


def test_paused_connection_is_watched_until_its_peer_sends(connections: WatchedConnections) -> None:
    transport = connections.open()
    transport.connection.pause(Pause.PAUSE_OPEN)
    connections.loop.step()
    assert connections.poller.interest == {transport.fd: READABLE}, "most pauses end before the peer sends more"
    connections.far[0].send(begin(0))
    connections.event(transport)
    assert connections.poller.interest == {transport.fd: 0}, "its octets do not wake the loop again"
    transport.connection.resume(Pause.PAUSE_OPEN)
    connections.loop.step()
    assert connections.poller.interest == {transport.fd: READABLE}
