"""Open of a connection: admitted by its worker or by the supervisor, or denied (security.md P-16)."""

import pytest

from sluice.supervisor.connections.admission import Deny
from tests.component.engine.host import configuration
from tests.peer.talk import frames, of, producer, start

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


def test_worker_admits_client_without_waiting_for_supervisor(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.wake(router.workers[0])
    assert [f.name for f in frames(peer)] == ["open", "begin"]
    router.settle()
    (opened,) = router.core.connections.opened.values()
    assert (opened.number, opened.container) == (peer.client.number, "test")


def test_client_admitted_by_worker_is_closed_if_policy_has_changed(routers, decide):
    router = routers()
    peer = router.connect()
    decide(Deny(*DENIED))
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    (closed,) = of(frames(peer), "close")
    assert error(closed.error) == ("amqp:connection:forced", "the policy for connections has changed")
    assert router.core.connections.count == 0


@pytest.mark.parametrize(
    ("listener", "text", "admits"),
    [
        ("main", "", True),
        ("broker", "", True),
        ("tenants", "", False),
        ("main", "policy { enableVhostPolicy: yes; defaultVhost: $default }", False),
        ("edges", "", False),
    ],
    ids=["plain", "route-container", "tenants", "policy", "edge"],
)
def test_worker_admits_clients_of_listeners_without_rules(routers, listener, text, admits):
    edges = "listener { name: edges; host: 127.0.0.1; port: 4; role: edge; idleTimeoutSeconds: 0 }"
    router = routers(text=configuration(more=f"{text}\n{edges}").replace("standalone", "interior"))
    peer = router.connect(listener=listener)
    assert peer.client.admits == admits


def test_client_with_certificate_waits_for_its_user(routers):
    """The user of a certificate depends on files that only the supervisor reads."""
    router = routers()
    peer = router.connect()
    peer.client.login.mechanism = "EXTERNAL"
    peer.feed(start())
    router.wake(router.workers[0])
    assert frames(peer) == []
    router.settle()
    assert frames(peer)[0].name == "open"
