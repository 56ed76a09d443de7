"""Stall reasons of links: what workers detect, and what management reports, with one scenario per reason."""

import pytest

from sluice.router.links.pause import RouterPause
from sluice.router.stalls.reason import StallReason, StallWord
from sluice.router.stalls.stall import Stall
from sluice.supervisor.management.stalls import find_stall
from tests.component.engine.host import configuration
from tests.peer.frames import ACCEPTED
from tests.peer.talk import (
    consumer,
    flow,
    frames,
    message,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)  # fmt: skip

CHECK_MS = 1000
UNCONFIRMED = 256
QUOTA = """
policy {
    enableVhostPolicy: true
}
vhost {
    hostname: $default
    maxBufferedOctets: 30000
    allowUnknownUser: true
    groups: {
        $default: {
            users: *
            remoteHosts: *
            sources: *
            targets: *
        }
    }
}
"""


def links(router):
    """Return the links of clients in order of attach."""
    return list(router.core.links.by_identity.values())


def stall_of(router, link):
    """Return the row of a link in management, with the time of its worker's clock."""
    counters = router.region.link_counters(link.worker, link.slot)
    return find_stall(router.core, link, counters, router.workers[link.worker].poller.time_ns)


def pass_checks(router, count=2):
    """Pass the time of `count` checks."""
    for _ in range(count):
        router.pass_time(CHECK_MS)


def connect_pair(router, address="balanced.a", credit=100, workers=(0, 0), window=None, listeners=("main", "main")):
    """Connect a consumer and a producer; return both peers and their links."""
    consuming, sending = router.connect(workers[0], listeners[0]), router.connect(workers[1], listeners[1])
    consuming.feed((start() if window is None else start(window)) + consumer(0, address, 0))
    if credit:
        consuming.feed(flow(0, credit) if window is None else flow(0, credit, window))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    first, second = links(router)[-2:]
    return consuming, sending, first, second


def send(router, peer, count, octets=b"x", begin=0):
    peer.feed(b"".join(transfer(0, number, message(octets)) for number in range(begin, begin + count)))
    router.settle()


def test_stall_numbers_match_engine():
    assert {f"STALL_{one.name}": one.value for one in StallReason} | {"STALL_NONE": 0} == {
        one.name: one.value for one in Stall
    }


@pytest.mark.parametrize("workers", [(0, 0), (0, 1)])
def test_consumer_without_credit_stalls(routers, workers):
    router = routers(2)
    consuming, sending, out, into = connect_pair(router, credit=2, workers=workers)
    send(router, sending, 2)
    pass_checks(router)
    found = stall_of(router, out)
    assert (found.reason, found.text.split(" (")[0]) == (StallWord.CREDIT, "client 'test'")
    assert found.text.endswith("grants no credit")
    assert found.seconds == 2
    assert stall_of(router, into) is None  # has credit
    consuming.feed(flow(0, 5))
    router.settle()
    assert stall_of(router, out) is None  # at once, before the next check
    pass_checks(router, 1)
    assert router.region.link_counters(out.worker, out.slot)["stall"] == 0


def test_missing_credit_is_known_before_first_check(routers):
    router = routers()
    _, _, out, _ = connect_pair(router, credit=0)
    assert stall_of(router, out).reason == StallWord.CREDIT


@pytest.mark.parametrize("workers", [(0, 0), (0, 1)])
def test_shut_window_stalls_link(routers, workers):
    router = routers(2)
    consuming, sending, out, _into = connect_pair(router, credit=100, window=5, workers=workers)
    send(router, sending, 40)
    pass_checks(router, 1)  # there was progress before
    pass_checks(router, 1)
    assert router.region.link_counters(out.worker, out.slot)["stall"] == StallReason.WINDOW | UNCONFIRMED
    assert stall_of(router, out) is None
    pass_checks(router, 10)
    found = stall_of(router, out)
    assert (found.reason, found.seconds) == (StallWord.WINDOW, 10)
    assert found.text.endswith("takes no transfers: the incoming window of its session is shut")
    consuming.feed(say("flow", next_incoming_id=5, incoming_window=100, next_outgoing_id=0, outgoing_window=100))
    router.settle()
    pass_checks(router, 1)
    assert stall_of(router, out) is None


def test_container_is_named_as_container(routers):
    router = routers()
    _, _, out, _ = connect_pair(router, credit=0, listeners=("broker", "main"))
    found = stall_of(router, out)
    assert found.reason == StallWord.BROKER
    assert found.text.startswith("container 'test'")


def test_unread_connection_stalls_link(routers):
    router = routers()
    consuming, sending, out, _into = connect_pair(router)
    consuming.blocked = True
    send(router, sending, 1)
    pass_checks(router)
    found = stall_of(router, out)
    assert (found.reason, found.seconds) == (StallWord.UNREAD, 2)
    assert found.text.endswith("does not read its connection")
    send(router, sending, 1, begin=1)  # goes into the write buffer, which is no progress
    pass_checks(router, 1)
    found = stall_of(router, out)
    assert (found.reason, found.seconds) == (StallWord.UNREAD, 3)
    consuming.blocked = False
    router.settle()
    pass_checks(router, 1)
    assert stall_of(router, out) is None


def test_heartbeats_do_not_count_as_read(routers):
    router = routers()
    consuming = router.connect()
    consuming.feed(start(idle_time_out=1000) + consumer(0, "balanced.a", 100))
    router.settle()
    sending = router.connect()
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    out = links(router)[0]
    consuming.blocked = True
    send(router, sending, 1)
    pass_checks(router, 5)
    found = stall_of(router, out)
    assert (found.reason, found.seconds) == (StallWord.UNREAD, 5)


def test_producer_without_consumer_stalls(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start() + producer(0, "balanced.nobody"))
    router.settle()
    pass_checks(router, 3)
    found = stall_of(router, links(router)[0])
    assert (found.reason, found.seconds) == (StallWord.NO_CONSUMER, 3)


@pytest.mark.parametrize("workers", [(0, 0), (0, 1)])
def test_unsettled_deliveries_stall_producer(routers, workers):
    router = routers(2)
    consuming, sending, out, into = connect_pair(router, credit=1000, workers=workers)
    send(router, sending, 250)
    pass_checks(router, 3)
    assert stall_of(router, out) is None
    found = stall_of(router, into)
    assert (found.reason, found.seconds) == (StallWord.UNSETTLED, 3)
    assert found.text.startswith("250 deliveries of client 'test'")
    if workers == (0, 0):
        assert found.text.endswith(f"link {out.identity}")
    consuming.feed(settle(0, 249, ACCEPTED))
    router.settle()
    pass_checks(router, 1)
    assert stall_of(router, into) is None


def test_unsettled_deliveries_at_broker_stall_producer(routers):
    router = routers()
    _, sending, _, into = connect_pair(router, credit=1000, listeners=("broker", "main"))
    send(router, sending, 250)
    pass_checks(router, 3)
    assert stall_of(router, into).reason == StallWord.BROKER


def test_stream_with_shut_window_stalls_producer(routers):
    router = routers()
    _consuming, sending, _out, into = connect_pair(router, credit=1, window=1)
    whole = transfer(0, 0, message(b"x" * 3_000_000))
    sending.feed(whole[:2_000_000])
    router.settle()
    pass_checks(router, 4)
    assert stall_of(router, into).reason == StallWord.UNSETTLED
    sending.feed(whole[2_000_000:])


def fill(router, sending, octets):
    """Send messages of one frame each as long as the window of the router allows."""
    allowed = 0
    for number in range(250):
        for state in of(frames(sending), "flow"):
            allowed = state.next_incoming_id + state.incoming_window
        if number == allowed:
            break
        send(router, sending, 1, octets, begin=number)
        router.pass_time(20)  # quotas measure the held octets periodically


def test_memory_bound_stalls_producer(routers):
    """The producer keeps to its window, which the memory bound shuts."""
    router = routers(text=configuration(listener="maxBufferedMegabytes: 1"))
    _, sending, out, into = connect_pair(router, credit=0)
    fill(router, sending, b"x" * 15_000)
    pass_checks(router, 6)
    found = stall_of(router, into)
    assert (found.reason, stall_of(router, out).reason) == (StallWord.MEMORY, StallWord.CREDIT)
    assert "holds as many octets of messages as it may" in found.text


def test_vhost_quota_stalls_producer(routers):
    """Octets of the vhost's messages wait for a consumer, up to its quota."""
    router = routers(text=configuration() + QUOTA)
    router.core.policy.measure(router.region)
    _, sending, _, into = connect_pair(router, credit=0)
    fill(router, sending, b"x" * 9_000)
    pass_checks(router, 6)
    found = stall_of(router, into)
    assert found.reason == StallWord.QUOTA
    assert "a quota of the vhost of user 'anonymous' is used up" in found.text


@pytest.mark.parametrize(
    ("pause", "reason"),
    [
        (RouterPause.PAUSE_RING, StallWord.RING),
        (RouterPause.PAUSE_LOCAL, StallWord.SUPERVISOR),
        (RouterPause.PAUSE_CONTROL, StallWord.SUPERVISOR),
    ],
)
def test_paused_connection_stalls_links(routers, pause, reason):
    router = routers()
    consuming, sending, out, into = connect_pair(router, credit=0)
    for peer in (consuming, sending):
        peer.connection.pause(pause)
    pass_checks(router, 3)
    assert stall_of(router, into).reason == reason
    assert stall_of(router, out).reason == reason  # the consumer's flows are not read
    for peer in (consuming, sending):
        peer.connection.resume(pause)
    pass_checks(router, 1)
    assert stall_of(router, into) is None
    assert stall_of(router, out).reason == StallWord.CREDIT


def test_pause_seen_by_one_check_is_no_stall(routers):
    router = routers()
    _, sending, _, into = connect_pair(router)
    sending.connection.pause(RouterPause.PAUSE_RING)
    pass_checks(router, 1)
    sending.connection.resume(RouterPause.PAUSE_RING)
    assert stall_of(router, into) is None
    pass_checks(router, 1)
    assert router.region.link_counters(into.worker, into.slot)["stall"] == 0


def test_link_route_without_credit_names_container(routers):
    """The client of a link route waits for the container, which is named."""
    router = routers()
    container, client = router.connect(listener="broker"), router.connect()
    container.feed(start())
    router.settle()
    frames(container)
    client.feed(start() + producer(0, "routed.a"))
    router.settle()
    received = frames(container)
    (begun,), (attach,) = of(received, "begin"), of(received, "attach")
    container.feed(
        say("begin", channel=1, remote_channel=begun.channel, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
        + say(
            "attach",
            channel=1,
            name=attach.fields["name"],
            handle=0,
            role=True,
            source=attach.source,
            target=attach.target,
        )
    )
    router.settle()
    pass_checks(router, 3)
    (ours,) = [link for link in links(router) if not link.consumer]
    found = stall_of(router, ours)
    assert found.reason == StallWord.BROKER
    assert "at the other end of its link route, grants no credit" in found.text
    container.feed(flow(0, 10, channel=1))
    router.settle()
    assert router.region.link_counters(ours.worker, ours.slot)["blocked_since"] == 0
    pass_checks(router, 1)
    assert stall_of(router, ours) is None


def test_progress_between_checks_is_no_stall(routers):
    """The consumer grants credit for one delivery at a time, and has none at each check."""
    router = routers()
    consuming, sending, out, _into = connect_pair(router, credit=0)
    send(router, sending, 20)
    pass_checks(router, 1)
    for number in range(5):
        consuming.feed(flow(0, 1, delivery_count=number))
        router.settle()
        pass_checks(router, 1)
        assert router.region.link_counters(out.worker, out.slot)["stall"] == 0
    pass_checks(router, 1)
    assert router.region.link_counters(out.worker, out.slot)["stall"] == StallReason.CREDIT


def test_reused_slot_begins_without_stall(routers):
    router = routers()
    consuming, sending, out, _into = connect_pair(router, credit=100, window=1)
    send(router, sending, 3)
    pass_checks(router, 4)
    assert stall_of(router, out).reason == StallWord.WINDOW
    consuming.feed(say("detach", handle=0, closed=True))
    router.settle()
    other = router.connect()
    other.feed(start() + consumer(0, "balanced.b", 1))
    router.settle()
    again = links(router)[-1]
    counters = router.region.link_counters(again.worker, again.slot)
    assert (counters["stall"], counters["stall_since"]) == (0, 0)
    sending.lose()
    consuming.lose()


def test_stall_checks_cover_links_in_steps(routers, monkeypatch):
    monkeypatch.setattr("sluice.workers.stalls.SLOTS_PER_CHECK", 3)
    router = routers()
    peer = router.connect()
    peer.feed(start() + b"".join(consumer(handle, "balanced.a", 0) for handle in range(10)))
    router.settle()
    router.pass_time(CHECK_MS + 10)
    found = [router.region.link_counters(0, index)["stall"] for index in range(10)]
    assert found == [StallReason.CREDIT] * 10


def test_stall_checks_without_links_do_not_run(routers):
    router = routers()
    poller = router.workers[0].poller
    peer = router.connect()
    peer.feed(start() + consumer(0, "balanced.a"))
    peer.lose()
    router.settle()
    router.pass_time(31_000)
    assert poller.until is None
