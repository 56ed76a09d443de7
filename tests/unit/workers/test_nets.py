"""Whatever goes wrong ends one link or connection; others of the same worker go on."""

import pytest

from tests.peer.frames import ACCEPTED, source, target
from tests.peer.types import Symbol
from tests.unit.engine.host import LINKS
from tests.unit.engine.talk import (
    consumer,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)
from workers.links import LinkRecord

INTERIOR = """
router {
    mode: interior
    id: QDR
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
}
listener {
    name: net
    host: 127.0.0.1
    port: 1
    role: inter-router
    idleTimeoutSeconds: 0
}
"""


class InjectedError(Exception):
    """The fault of a test."""


class Others:
    """A producer and a consumer on connections of their own, which what happens beside them does not concern."""

    def __init__(self, router, consuming=0, sending=0):
        self.router = router
        self.consuming, self.sending = router.connect(consuming), router.connect(sending)
        self.consuming.feed(start() + consumer(0, "balanced.others"))
        router.settle()
        self.sending.feed(start() + producer(0, "balanced.others"))
        router.settle()
        self.sent = 0
        frames(self.consuming)

    def check(self):
        """They still work."""
        octets = message(b"%d" % self.sent)
        self.sending.feed(transfer(0, self.sent, octets))
        self.router.settle()
        assert messages(frames(self.consuming)) == [octets]
        self.consuming.feed(settle(self.sent, state=ACCEPTED))
        self.router.settle()
        assert of(frames(self.sending), "disposition")[-1].state == ACCEPTED
        self.sent += 1


def faults(router, worker=0):
    """What the worker has reported, as by the handler of its log."""
    found, router.workers[worker].faults = router.workers[worker].faults, []
    return found


def closed_with(peer):
    """The condition by which the router has closed a connection."""
    (close,) = of(frames(peer), "close")
    return str(close.error.value[0])


def test_one_link_too_many_ends_its_connection(routers):
    router = routers(1)
    others = Others(router)
    peer = router.connect()
    peer.feed(start() + b"".join(producer(handle, None) for handle in range(LINKS)))
    router.settle()
    assert closed_with(peer) == "amqp:resource-limit-exceeded"
    others.check()


@pytest.mark.parametrize("capability", ["qd.router", "qd.router-data"])
def test_one_link_too_many_of_a_router_ends_its_connection(routers, capability):
    router = routers(1, INTERIOR)
    others = Others(router)
    filling = router.connect()
    filling.feed(start() + b"".join(producer(handle, None) for handle in range(LINKS - 2)))
    router.settle()
    peer = router.connect(listener="net")
    peer.feed(start() + router_link(0, capability))
    router.settle()
    assert closed_with(peer) == "amqp:resource-limit-exceeded"
    others.check()


def router_link(handle, capability):
    ends = {"source": source(capabilities=Symbol(capability)), "target": target(capabilities=Symbol(capability))}
    return say("attach", name=f"l{handle}", handle=handle, role=False, initial_delivery_count=0, **ends)


@pytest.mark.parametrize("where", ["unbinding", "behind it"])
@pytest.mark.parametrize("how", ["close", "bad frame", "socket lost", "end", "detach"])
def test_a_fault_while_links_are_lost_ends_their_connection(routers, monkeypatch, how, where):
    """The other links of that connection are lost properly all the same."""
    router = routers(1)
    others = Others(router)
    peer = router.connect()
    peer.feed(start() + consumer(0, "balanced.a") + consumer(1, "balanced.a") + producer(2, "balanced.b"))
    router.settle()
    name = "_unbind" if where == "unbinding" else "detached"
    real = getattr(LinkRecord, name)

    def faulty(record):
        answer = real(record)
        if record.link.name == "c0":
            raise InjectedError
        return answer

    monkeypatch.setattr(LinkRecord, name, faulty)
    if how == "close":
        peer.feed(say("close"))
    elif how == "bad frame":
        peer.feed(say("transfer", handle=9, delivery_id=0))
    elif how == "end":
        peer.feed(say("end"))
    elif how == "detach":
        peer.feed(say("detach", handle=0, closed=True))
    else:
        peer.lose()
    assert [type(fault) for fault in faults(router)] == [InjectedError]
    router.settle()
    if how == "detach":
        assert closed_with(peer) == "amqp:internal-error"
    assert not router.workers[0].table.describe().get("M0balanced.a")
    others.check()
