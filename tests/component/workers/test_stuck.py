"""Stuck deliveries, links without credit, ends of links, and times in their slots (management.md 7.3 to 7.6)."""

import pytest

from sluice.router.control.messages import END_LINES
from sluice.router.log import LogSettings, ModuleSettings
from sluice.workers.connections.admissions import LOOK_MS
from tests.component.engine.host import MS
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import consumer, flow, message, producer, say, settle, start, transfer

LOG_ALL = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})
SCAN_MS = 30_000
CHECK_MS = 1000
AGE_MS = 10_000
SECOND_MS = 1000
BLOCKED = "Link blocked with zero credit for"
STUCK = "Stuck delivery: At least one delivery on this link has been undelivered/unsettled for more than 10 seconds"


def slot(router, index, worker=0):
    counters = router.region.link_counters(worker, index)
    assert counters is not None
    return counters


def lines(router, text):
    """Return the lines of the router's log that contain this text."""
    return [entry.text for entry in router.log.recent() if text in entry.text]


def connect_pair(router, address="balanced.a", credit=100, workers=(0, 0)):
    """Connect a consumer (slot 0, [C1][L4]) and a producer (the next slot, [C2][L5])."""
    consuming, sending = router.connect(workers[0]), router.connect(workers[1])
    consuming.feed(start() + consumer(0, address, credit))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    return consuming, sending


def identities(router):
    """Return [Cn][Ln] of all links, in order of attach."""
    return [line.split(" ")[0] for line in lines(router, "Link attached")]


# routing-semantics.md O-2.
def test_unsettled_delivery_is_stuck_on_both_links_until_settled(routers):
    router = routers(log=LOG_ALL)
    consuming, sending = connect_pair(router)
    out, into = identities(router)
    sending.feed(transfer(0, 0, message(b"one")))
    router.settle()
    router.pass_time(SCAN_MS - 1)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (0, 0)
    router.pass_time(1)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (1, 1)
    assert sorted(lines(router, "Stuck")) == sorted([f"{out} {STUCK}", f"{into} {STUCK}"])
    sending.feed(transfer(0, 1, message(b"two")))
    router.settle()
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (2, 2)
    assert len(lines(router, "Stuck")) == 2  # only the first stuck delivery of a link is logged
    consuming.feed(settle(0, 0, ACCEPTED))
    router.settle()
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (1, 1)
    consuming.feed(settle(1, 1, RELEASED))
    router.settle()
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (0, 0)


def test_young_delivery_behind_old_one_is_not_stuck(routers):
    """The age is that of the delivery, not of the link."""
    router = routers()
    consuming, sending = connect_pair(router)
    sending.feed(transfer(0, 0, message(b"old")))
    router.settle()
    router.pass_time(SCAN_MS - AGE_MS)
    sending.feed(transfer(0, 1, message(b"young")))
    router.settle()
    router.pass_time(AGE_MS)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (1, 1)
    consuming.feed(settle(0, 1, ACCEPTED))
    router.settle()
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (0, 0)


def test_queued_deliveries_are_stuck_until_link_ends(routers):
    router = routers()
    consuming, sending = connect_pair(router, credit=0)
    sending.feed(transfer(0, 0, message(b"one")) + transfer(0, 1, message(b"two"), settled=True))
    router.settle()
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["undelivered"], slot(router, 0)["stuck"]) == (2, 2)
    assert slot(router, 1)["stuck"] == 1  # the presettled delivery was settled on arrival
    consuming.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert slot(router, 1)["stuck"] == 0


def test_incomplete_stream_is_not_stuck(routers):
    router = routers()
    _, sending = connect_pair(router)
    octets = message(b"x" * 400_000)
    whole = transfer(0, 0, octets)
    sending.feed(whole[:300_000])
    router.settle()
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (0, 0)
    sending.feed(whole[300_000:])
    router.settle()
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["stuck"], slot(router, 1)["stuck"]) == (1, 1)


def test_delivery_between_workers_is_stuck_on_both_workers(routers):
    router = routers(2)
    consuming, sending = connect_pair(router, workers=(0, 1))
    sending.feed(transfer(0, 0, message(b"one")))
    router.settle()
    router.pass_time(SCAN_MS)
    assert (slot(router, 0, 0)["stuck"], slot(router, 0, 1)["stuck"]) == (1, 1)
    consuming.feed(settle(0, 0, ACCEPTED))
    router.settle()
    assert (slot(router, 0, 0)["stuck"], slot(router, 0, 1)["stuck"]) == (0, 0)


# routing-semantics.md O-3.
def test_link_without_credit_is_blocked_until_credit(routers):
    router = routers(log=LOG_ALL)
    consuming, sending = connect_pair(router, credit=0)
    out, _ = identities(router)
    assert slot(router, 0)["blocked_since"] > 0
    assert slot(router, 1)["blocked_since"] == 0
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["blocked"], slot(router, 1)["blocked"]) == (1, 0)
    router.pass_time(SCAN_MS)
    assert lines(router, BLOCKED) == [f"{out} {BLOCKED} 30 seconds"]
    consuming.feed(flow(0, 1))
    router.settle()
    assert (slot(router, 0)["blocked"], slot(router, 0)["blocked_since"]) == (0, 0)
    sending.feed(transfer(0, 0, message(b"uses it up")))
    router.settle()
    assert slot(router, 0)["blocked_since"] > 0
    router.pass_time(SCAN_MS)
    assert slot(router, 0)["blocked"] == 0, "no delivery waits for credit"
    sending.feed(transfer(0, 1, message(b"waits")))
    router.settle()
    router.pass_time(SCAN_MS)
    assert slot(router, 0)["blocked"] == 1
    assert len(lines(router, BLOCKED)) == 2


@pytest.mark.parametrize("workers", [(0, 0), (0, 1)])
def test_consumer_is_blocked_only_while_old_delivery_waits(routers, workers):
    """A client that grants credit for each answer (Proton's SyncRequestResponse) is not blocked between two answers."""
    router = routers(1 + workers[1])
    consuming, sending = connect_pair(router, credit=1, workers=workers)
    sending.feed(transfer(0, 0, message(b"answer")))
    router.settle()
    consuming.feed(settle(0, 0, ACCEPTED))
    router.settle()
    router.pass_time(2 * SCAN_MS)
    assert (slot(router, 0)["credit"], slot(router, 0)["blocked"]) == (0, 0)
    assert slot(router, 0)["blocked_since"] > 0, "zeroCreditSeconds still counts"
    router.pass_time(SCAN_MS - AGE_MS)
    sending.feed(transfer(0, 1, message(b"young")))
    router.settle()
    router.pass_time(AGE_MS)
    assert (slot(router, 0)["undelivered"], slot(router, 0)["blocked"]) == (1, 0), "the delivery is young"
    router.pass_time(SCAN_MS)
    assert slot(router, 0)["blocked"] == 1
    consuming.feed(flow(0, 1, delivery_count=1))
    router.settle()
    assert (slot(router, 0)["undelivered"], slot(router, 0)["blocked"]) == (0, 0)


def test_link_without_waiting_delivery_is_not_blocked(routers):
    router = routers()
    _, sending = connect_pair(router, credit=1)
    sending.feed(transfer(0, 0, message(b"taken")) + transfer(0, 1, message(b"x" * 400_000))[:300_000])
    router.settle()
    router.pass_time(SCAN_MS)
    assert slot(router, 0)["blocked"] == 1
    sending.lose()  # the incomplete message is dropped with its producer
    router.settle()
    assert slot(router, 0)["undelivered"] == 0
    router.pass_time(SCAN_MS)
    assert (slot(router, 0)["blocked"], slot(router, 0)["blocked_since"] > 0) == (0, True)
    assert router.region.worker_counters(0)["blocked"] == 0


def test_producer_without_consumers_is_blocked(routers):
    router = routers()
    sending = router.connect()
    sending.feed(start() + producer(0, "balanced.nobody"))
    router.settle()
    router.pass_time(SCAN_MS)
    assert slot(router, 0)["blocked"] == 1
    consuming = router.connect()
    consuming.feed(start() + consumer(0, "balanced.nobody"))
    router.settle()
    assert (slot(router, 0)["blocked"], slot(router, 0)["blocked_since"]) == (0, 0)


def test_stuck_scan_without_links_does_not_run(routers):
    router = routers()
    poller = router.workers[0].poller
    assert poller.until is None
    peer = router.connect()
    peer.feed(start() + consumer(0, "balanced.a"))
    begun = poller.time_ns // MS
    router.pass_time(LOOK_MS)  # no client waits to open
    assert poller.until == begun + LOOK_MS + CHECK_MS  # for stalls
    peer.lose()
    router.settle()
    router.pass_time(SCAN_MS)
    assert poller.until is None


def test_stuck_scan_covers_links_in_steps(routers, monkeypatch):
    monkeypatch.setattr("sluice.workers.stuck.SLOTS_PER_CHECK", 3)
    router = routers()
    peer = router.connect()
    peer.feed(start() + b"".join(consumer(handle, "balanced.a", 0) for handle in range(10)))
    router.settle()
    router.pass_time(SCAN_MS + 10)
    assert [slot(router, index)["blocked"] for index in range(10)] == [1] * 10


# -- End of a link


def ends(router):
    return [line for line in lines(router, "Link ") if "del=" in line]


def test_link_end_is_logged_with_counters(routers):
    router = routers(log=LOG_ALL)
    consuming, sending = connect_pair(router)
    out, into = identities(router)
    sending.feed(transfer(0, 0, message(b"a")) + transfer(0, 1, message(b"b")))
    sending.feed(transfer(0, 2, message(b"c"), settled=True))
    router.settle()
    consuming.feed(settle(0, 0, ACCEPTED))
    router.settle()
    router.pass_time(2 * SECOND_MS)
    consuming.feed(settle(1, 1, RELEASED))
    router.settle()
    sending.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert ends(router) == [
        f"{into} Link closed: del=3 presett=1 psdrop=0 acc=1 rej=0 rel=1 mod=0 delay1=1 delay10=0 blocked=no"
    ]
    consuming.feed(say("detach", handle=0))
    router.settle()
    assert ends(router)[1:] == [
        f"{out} Link detached: del=3 presett=1 psdrop=0 acc=1 rej=0 rel=1 mod=0 delay1=1 delay10=0 blocked=no"
    ]


def test_links_of_ended_connection_or_session_are_logged_as_lost(routers):
    router = routers(log=LOG_ALL)
    consuming, sending = connect_pair(router, credit=0)
    out, into = identities(router)
    router.pass_time(SCAN_MS)
    consuming.lose()
    router.settle()
    sending.feed(say("end"))
    router.settle()
    zero = "del=0 presett=0 psdrop=0 acc=0 rej=0 rel=0 mod=0 delay1=0 delay10=0"
    assert ends(router) == [f"{out} Link lost: {zero} blocked=yes", f"{into} Link lost: {zero} blocked=no"]


# -- Times in the slot of a link


def test_last_delivery_time_outlives_link(routers):
    router = routers()
    consuming, sending = connect_pair(router)
    assert (slot(router, 0)["last_delivery"], slot(router, 1)["last_delivery"]) == (0, 0)
    router.pass_time(SECOND_MS)
    sending.feed(transfer(0, 0, message(b"a"), settled=True))
    router.settle()
    now = router.workers[0].loop.scheduler.now_ns
    assert (slot(router, 0)["last_delivery"], slot(router, 1)["last_delivery"]) == (now, now)
    router.pass_time(SECOND_MS)
    known = [router.core.workers[0].connections[peer.known.number] for peer in (consuming, sending)]
    assert [connection.last_delivery for connection in known] == [0, 0]
    sending.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert [connection.last_delivery for connection in known] == [0, now]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("links", [1, END_LINES, END_LINES + 1, 3 * END_LINES + 2])
@pytest.mark.parametrize("closes", [True, False])
def test_ends_of_all_links_of_connection_are_logged_in_order_before_its_own(routers, workers, links, closes):
    router = routers(workers=workers, log=LOG_ALL)
    client = router.connect(workers - 1)
    client.feed(start() + b"".join(consumer(handle, f"balanced.{handle}", 1) for handle in range(links)))
    router.settle()
    attached = identities(router)
    assert len(attached) == links
    if closes:
        client.feed(say("close"))
    else:
        client.lose()
    router.settle()
    assert [line.split(" ")[0] for line in lines(router, "Link lost: del=0")] == attached
    assert "Connection Closed" in router.log.recent()[-1].text
