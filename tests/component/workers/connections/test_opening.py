"""Open of a connection that the supervisor denies (security.md P-16)."""

from supervisor.connections.admission import Deny
from tests.component.engine.host import configuration
from tests.peer.talk import frames, producer, start

DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


def error(described):
    """Return condition and description."""
    return tuple(str(each) for each in described.value)


def test_denied_connection_gets_open_and_close(routers, decide):
    """The peer receives the listener's open, then a close (security.md P-16)."""
    router = routers(text=configuration(listener="maxFrameSize: 4096"))
    decide(Deny(*DENIED))
    peer = router.connect()
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    opened, closed = frames(peer)
    assert (opened.name, opened.max_frame_size, closed.name) == ("open", 4096, "close")
    assert error(closed.error) == DENIED
    assert router.core.connections.count == 0
