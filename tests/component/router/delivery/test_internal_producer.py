"""Messages of the router itself: routing like messages of clients, and bounds of octets."""

import pytest

import sluice.router.testing.engine as engine
from sluice.router.control import messages as control
from sluice.router.testing.engine import port_counts
from tests.component.engine.served_address import ServedAddressRouter
from tests.peer.frames import source, target
from tests.peer.talk import flow, frames, key, message, messages, of, say, sections, start

OWN_QUEUED = 8 << 20  # octets of the router's own messages for a link without credit
OWN_FLOWING = 32 << 20  # octets of the router's own messages for another worker


@pytest.fixture
def host(routers):
    return ServedAddressRouter(routers())


@pytest.fixture
def two_workers(routers):
    """Router with two workers."""
    return ServedAddressRouter(routers(2))


@pytest.mark.parametrize("requested_worker", [None, 0, 1])
def test_message_of_router_reaches_consumer_on_other_worker(two_workers, requested_worker):
    there = two_workers.consumer("temp.x", worker=1)
    assert two_workers.inner.send("amqp:/temp.x", message(b"hello"), requested_worker)
    two_workers.router.settle()
    received = frames(there)
    (frame,) = of(received, "transfer")
    assert (frame.settled, frame.payload) == (True, message(b"hello"))
    counters = two_workers.counters("M0temp.x")
    assert (counters["ingress"], counters["egress"], counters["from_container"]) == (0, 1, 1)


@pytest.mark.parametrize(
    "text", ["_local/t", "_topo/0/QDR/t", "amqp:/_topo/0/QDR/t", "amqp://host:1/_edge/QDR/t", "/_local/t"]
)
def test_address_of_this_router_is_local(host, text):
    there = host.consumer("_local/t")
    assert host.inner.send(text, message(b"x"))
    assert host.received(there) == [message(b"x")]


@pytest.mark.parametrize(
    "text", ["", "nobody", "unheard", "_topo/0/OTHER/t", "_topo/0/all/t", "inner", "$management", "//"]
)
def test_message_without_consumer_is_refused(host, text):
    host.sender("unheard")
    assert not host.inner.send(text, message(b"x"))
    host.router.settle()
    assert host.taken == []


@pytest.mark.parametrize(
    ("address", "least", "together"), [("balanced.a", 1, 10), ("closest.a", 1, 10), ("multicast.a", 10, 20)]
)
def test_address_treatments_apply_to_router_messages(two_workers, address, least, together):
    one, other = two_workers.consumer(address, worker=0), two_workers.consumer(address, worker=1)
    for n in range(10):
        assert two_workers.inner.send(address, message(b"%d" % n), n % 2)
        two_workers.router.settle()
    received = [messages(frames(peer)) for peer in (one, other)]
    assert all(len(got) >= least and got == sorted(got) for got in received)
    assert len(received[0] + received[1]) == together
    assert {*received[0], *received[1]} == {message(b"%d" % n) for n in range(10)}


def test_annotations_name_this_router(host):
    there = host.consumer("temp.x", listener="kept")
    host.inner.send("temp.x", message(b"x", annotations=[("mine", 1)]))
    (octets,) = host.received(there)
    annotations = dict(sections(octets)[0][1].pairs)
    assert annotations["x-opt-qd.ingress"].startswith("0/")
    assert annotations["x-opt-qd.trace"] == [annotations["x-opt-qd.ingress"]]
    assert annotations["mine"] == 1
    assert "x-opt-qd.to" not in annotations


def test_fallback_consumer_receives_router_message(host):
    peer = host.router.connect()
    standing_in = source("spare.a", capabilities=key("qd.fallback"))
    attach = say("attach", name="f", handle=0, role=True, source=standing_in, target=target())
    peer.feed(start() + attach + flow(0, 10))
    assert host.received(peer) == []
    assert host.inner.send("spare.a", message(b"1"))
    assert host.received(peer) == [message(b"1")]
    assert host.counters("M0spare.a")["redirected"] == 1


def test_exchange_receives_router_message(two_workers):
    direct = two_workers.consumer("exchange", worker=0)
    hop, alternate = (
        two_workers.consumer("balanced.hop", worker=1),
        two_workers.consumer("balanced.alternate", worker=1),
    )
    for subject in ("a/b", "c"):
        assert two_workers.inner.send("exchange", message(b"x", subject=subject))
    received = {
        name: two_workers.received(peer) for name, peer in (("direct", direct), ("hop", hop), ("alternate", alternate))
    }
    assert {name: len(got) for name, got in received.items()} == {"direct": 2, "hop": 1, "alternate": 0}
    direct.lose()
    two_workers.router.settle()
    assert two_workers.inner.send("exchange", message(b"x", subject="c"))
    assert len(two_workers.received(alternate)) == 1


@pytest.mark.parametrize("worker", [0, 1])
def test_large_message_leaves_in_frames(two_workers, worker):
    there = two_workers.consumer("multicast.a", worker=worker)
    octets = message(bytes(range(256)) * 80_000)  # 20 MB
    assert two_workers.inner.send("multicast.a", octets)
    assert two_workers.received(there) == [octets]


@pytest.mark.timeout(300)  # sanitizers map and unmap each large message anew
@pytest.mark.parametrize("size", [100, 20_000, 1_000_000, 3 * OWN_QUEUED])
@pytest.mark.parametrize("workers", [1, 2])
def test_link_without_credit_holds_bounded_octets(routers, size, workers):
    """The bound holds for a link of the requested worker, and for a link to which the messages cross a ring."""
    host = ServedAddressRouter(routers(workers))
    deaf = host.consumer("multicast.a", credit=0, worker=workers - 1)
    hearing = host.consumer("multicast.a")
    octets = message(b"x" * size)
    count = 12 * OWN_QUEUED // size if size > 100 else 2 * OWN_QUEUED // 612
    before = engine.live_objects()[2]
    arrived = 0
    together = max(1, 20_000 // size)  # messages between two checks
    for sent in range(0, count, together):
        for _ in range(sent, min(sent + together, count)):
            assert host.inner.send("multicast.a", octets, 0)
        arrived += len(host.received(hearing))
        assert engine.live_objects()[2] - before <= OWN_QUEUED + (workers - 1) * OWN_FLOWING + 3 * size + 2_000_000
    assert arrived == count
    deaf.feed(flow(0, 0x7FFFFFFF))
    late = host.received(deaf)
    assert 0 < len(late) <= arrived
    assert all(got == octets for got in late)
    assert len(late) < arrived or arrived == 1
    assert host.inner.send("multicast.a", octets, 0)
    assert host.received(deaf) == [octets]


def test_message_waits_for_epoch_of_its_address(host):
    """Message and change of the table travel on different channels."""
    there = host.consumer("temp.x")
    worker = host.router.workers[0]
    epoch = worker.table.epoch
    for n, later in enumerate((1, 2, 0)):
        order = control.Send("M0temp.x", epoch + later)
        worker.on_message(order, message(b"%d" % n))
    assert host.received(there) == []
    host.consumer("temp.y")  # makes one or two changes
    while worker.table.epoch < epoch + 2:
        host.consumer(f"temp.z{worker.table.epoch}")
    assert host.received(there) == [message(b"0"), message(b"1"), message(b"2")]


def test_message_for_removed_address_is_dropped(host):
    worker = host.router.workers[0]
    worker.on_message(control.Send("M0gone", worker.table.epoch), message(b"x"))
    host.router.settle()


def test_lost_consumer_on_other_worker_frees_messages(two_workers):
    here, there = two_workers.consumer("multicast.a", worker=0), two_workers.consumer("multicast.a", credit=0, worker=1)
    for _ in range(20):
        assert two_workers.inner.send("multicast.a", message(b"x" * 1_000_000), 0)
    two_workers.router.settle()
    there.lose()
    assert len(two_workers.received(here)) == 20
    assert two_workers.router.workers[0].in_process.held() == (0, 0, 0, 0)


@pytest.mark.parametrize("size", [100, 20_000, 1_000_000])
def test_lost_worker_frees_messages_on_their_way(two_workers, size):
    """Some messages are in the ring of the lost worker, some wait for room in it, some were dropped before."""
    here = two_workers.consumer("multicast.a", worker=0)
    two_workers.consumer("multicast.a", credit=0, worker=1)
    count = min(2 * OWN_FLOWING // size, 2000) // 4 * 4
    for n in range(count):
        assert two_workers.inner.send("multicast.a", message(b"x" * size), 0)
        if n % 4 == 3:
            two_workers.router.decide()  # worker 1 takes nothing from its ring meanwhile
            two_workers.router.wake(two_workers.router.workers[0])
    (port,) = two_workers.router.workers[0].peers
    assert port_counts(port)[0]
    port.down()
    two_workers.router.settle()
    assert two_workers.router.workers[0].in_process.held() == (0, 0, 0, 0)
    assert 0 < len(messages(frames(here))) <= count
    for other in two_workers.router.workers[1].peers:
        other.down()


def test_malformed_router_message_is_reported(host):
    host.consumer("temp.x")
    host.inner.send("temp.x", b"\x00\x53\x72\xc1\x03\x01\x40\x40")
    with pytest.raises(AssertionError, match="malformed message for M0temp.x"):
        host.router.settle()
    host.router.workers[0].faults.clear()
