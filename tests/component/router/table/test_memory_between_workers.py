"""Memory of messages from one worker that wait for another worker's consumers, and of multicast copies."""

from collections import Counter
from typing import Any

import pytest

import sluice.router.testing.engine as engine
from sluice.router.testing.output import octets_held, octets_uncharged
from tests.component.engine.host import configuration
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import (
    begin,
    consumer,
    flow,
    frames,
    key,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)

MEGABYTE = 1 << 20
DELIVERY_OCTETS = 512  # octets counted for a delivery with one copy (router/amqp/meter.pxd)
COPY_OCTETS = 256  # octets counted for a queued copy (router/message/content.pxd)
SHARE = 8  # copies of messages from other workers may use 1/SHARE of the process's bound (UNCHARGED_SHARE)
LEAST = 16  # copies that each consumer may always have waiting (UNCHARGED_LEAST)
DEAF = 40
#: Policy that bounds the octets that a tenant's messages hold.
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
MESSAGES = 100


def held() -> int:
    """Return the octets of messages and of deliveries in this process."""
    incoming, outgoing, stored = engine.live_objects()[:3]
    return int(stored + (incoming + outgoing) * DELIVERY_OCTETS // 2)


def client(router: Any, worker: int, *octets: bytes, listener: str = "main") -> Any:
    peer = router.connect(worker, listener)
    peer.feed(start() + b"".join(octets))
    router.settle()
    frames(peer)
    return peer


class SessionWindows:
    """Sender of messages of one frame that keeps within the windows of its sessions."""

    def __init__(self, router: Any, peer: Any) -> None:
        self.router = router
        self.peer = peer
        self.sent: Counter[int] = Counter()  # transfers by channel
        self.most: dict[int, int] = {}

    def send(self, channel: int, handle: int, body: bytes) -> bool:
        """Send a message if the session's window is open; return whether it was."""
        self.router.settle()
        for frame in frames(self.peer):
            if frame.name in ("begin", "flow"):
                self.most[frame.channel] = (frame.fields.get("next_incoming_id") or 0) + frame.incoming_window
        if self.sent[channel] >= self.most.get(channel, 0):
            return False
        self.peer.feed(transfer(handle, self.sent[channel], message(body), channel=channel))
        self.sent[channel] += 1
        return True


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_copies_from_other_worker_keep_to_share_of_memory(routers: Any, settled: bool) -> None:
    router = routers(2, content_limit=MEGABYTE)
    client(router, 1, *(consumer(handle, "multicast.a", 0) for handle in range(DEAF)))
    reading = client(router, 1, consumer(0, "multicast.a"))
    slow = client(router, 1, consumer(0, "multicast.a", 0))
    sending = client(router, 0, producer(0, "multicast.a"))
    outcomes = []
    for number in range(MESSAGES):
        sending.feed(transfer(0, number, message(b"%d" % number), settled=settled))
        router.settle()
        reading.feed(b"" if settled else settle(number, state=ACCEPTED))
        if number % 10 == 9:
            slow.feed(flow(0, 10, delivery_count=number - 9))
            router.settle()
            slow.feed(b"" if settled else settle(number - 9, number, state=ACCEPTED))
        router.settle()
        outcomes += of(frames(sending), "disposition")
    allowed = MEGABYTE // SHARE // COPY_OCTETS
    assert allowed <= engine.live_objects()[1] <= allowed + LEAST * (DEAF + 2) + MESSAGES * (2 + 2)
    everything = [message(b"%d" % number) for number in range(MESSAGES)]
    assert messages(frames(reading)) == everything
    assert messages(frames(slow)) == everything
    assert not [frame for frame in outcomes if frame.state.descriptor == RELEASED]


def test_unsettled_copies_from_other_worker_keep_to_share_of_memory(routers: Any) -> None:
    """Consumers read every message and settle none."""
    router = routers(2, content_limit=MEGABYTE)
    client(router, 1, *(consumer(handle, "multicast.a") for handle in range(DEAF)))
    sending = client(router, 0, producer(0, "multicast.a"))
    for number in range(MESSAGES):
        sending.feed(transfer(0, number, message(b"%d" % number)))
        router.settle()
    allowed = MEGABYTE // SHARE // COPY_OCTETS
    assert allowed <= engine.live_objects()[1] <= allowed + LEAST * (DEAF + 1) + MESSAGES * 2


@pytest.mark.parametrize("credit", [0, 1000], ids=["waiting", "sent"])
@pytest.mark.parametrize("workers", [1, 2])
def test_ended_copies_are_no_longer_counted(routers: Any, workers: int, credit: int) -> None:
    router = routers(workers)
    deaf = client(router, workers - 1, *(consumer(handle, "multicast.a", credit) for handle in range(DEAF)))
    sending = client(router, 0, producer(0, "multicast.a"))
    before = octets_held(sending.connection), octets_uncharged()
    sending.feed(b"".join(transfer(0, number, message(b"%d" % number)) for number in range(10)))
    router.settle()
    held = octets_held(sending.connection) + octets_uncharged()
    assert held >= 10 * DEAF * COPY_OCTETS
    deaf.feed(b"".join(flow(handle, 5) for handle in range(DEAF)) if not credit else settle(0, 5 * DEAF - 1, RELEASED))
    router.settle()
    deaf.lose()
    router.settle()
    assert (octets_held(sending.connection), octets_uncharged()) == before


def test_refused_copy_without_other_outcome_is_released(routers: Any) -> None:
    router = routers(2, content_limit=MEGABYTE)
    deaf = client(router, 1, *(consumer(handle, "multicast.a", 0) for handle in range(DEAF)))
    sending = client(router, 0, producer(0, "multicast.a"))
    for number in range(MESSAGES):
        sending.feed(transfer(0, number, message(b"%d" % number)))
    router.settle()
    released = {
        number
        for frame in of(frames(sending), "disposition")
        for number in range(frame.first, (frame.last or frame.first) + 1)
    }
    assert released  # messages of which every consumer refused its copy
    deaf.feed(flow(0, MESSAGES))
    router.settle()
    got = messages(frames(deaf))
    assert len(got) >= LEAST
    assert not {message(b"%d" % number) for number in released} & set(got)


def test_annotations_of_waiting_copy_count_for_producer(routers: Any) -> None:
    annotations = [(key("x-long"), "x" * 50_000)]
    router = routers(text=configuration(listener="maxBufferedMegabytes: 4"))
    client(router, 0, *(consumer(handle, "multicast.a", 0) for handle in range(DEAF)), listener="kept")
    sending = client(router, 0, producer(0, "multicast.a"))
    sending.feed(transfer(0, 0, message(b"x", annotations=annotations)))
    router.settle()
    assert octets_held(sending.connection) >= DEAF * 50_000


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_messages_from_other_worker_keep_to_process_bound(routers: Any, settled: bool) -> None:
    router = routers(2, content_limit=MEGABYTE)
    client(router, 1, *(consumer(handle, f"balanced.{handle}", 0) for handle in range(10)))
    reading = client(router, 1, consumer(0, "balanced.read"))
    sending = client(router, 0, *(producer(handle, f"balanced.{handle}") for handle in range(10)))
    bystander = client(router, 0, producer(0, "balanced.read"))
    most = 0
    for number in range(300):
        sending.feed(transfer(number % 10, number, message(b"x" * 15_000), settled=settled))
        bystander.feed(transfer(0, number, message(b"%d" % number), settled=settled))
        router.settle()
        reading.feed(b"" if settled else settle(number, state=ACCEPTED))
        router.settle()
        most = max(most, held())
    assert MEGABYTE * 5 // 4 <= most <= MEGABYTE * 3 // 2 + 20_000
    assert messages(frames(reading)) == [message(b"%d" % number) for number in range(300)]
    states = [frame.state.descriptor for frame in of(frames(sending), "disposition")]
    assert settled == (not states)
    assert set(states) <= {RELEASED.descriptor}


def test_messages_at_other_worker_keep_to_bound_of_producers_connection(routers: Any) -> None:
    router = routers(2, text=configuration(listener="maxBufferedMegabytes: 1"))
    links = range(20)
    deaf = client(router, 1, *(consumer(handle, f"balanced.{handle}", 0) for handle in links))
    reading = client(router, 1, consumer(0, "balanced.read"))
    bystander = client(router, 0, producer(0, "balanced.read"))
    sending = client(router, 0)
    windows = SessionWindows(router, sending)
    sending.feed(begin(1) + b"".join(producer(handle, f"balanced.{handle}", channel=1) for handle in links))
    most = refused = 0
    for number in range(300):
        refused += not windows.send(1, number % 20, b"x" * 15_000)
        bystander.feed(transfer(0, number, message(b"%d" % number)))
        router.settle()
        reading.feed(settle(number, state=ACCEPTED))
        router.settle()
        most = max(most, held())
    assert refused
    assert MEGABYTE <= octets_held(sending.connection) <= MEGABYTE * 5 // 4
    assert MEGABYTE <= most <= MEGABYTE * 5 // 4
    assert messages(frames(reading)) == [message(b"%d" % number) for number in range(300)]
    for _ in range(10):
        deaf.feed(b"".join(flow(handle, 100) for handle in links) + settle(0, 299, ACCEPTED))
        router.settle()
    assert octets_held(sending.connection) == 0
    assert windows.send(1, 0, b"x"), "the window opens again"


@pytest.mark.parametrize("size", [100, 15_000, 400_000], ids=["short", "frame", "stream"])
def test_message_at_other_worker_counts_until_its_copy_ends(routers: Any, size: int) -> None:
    router = routers(2)
    deaf = client(router, 1, consumer(0, "balanced.a", 0))
    sending = client(router, 0, producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x" * size)))
    router.settle()
    assert octets_held(sending.connection) >= size
    sending.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert octets_held(sending.connection) >= size
    for _ in range(10):
        deaf.feed(flow(0, 100) + settle(0, state=ACCEPTED))
        router.settle()
    assert octets_held(sending.connection) == 0


def test_message_at_other_worker_counts_once_for_its_tenant(routers: Any) -> None:
    router = routers(2, text=configuration() + QUOTA)
    router.core.policy.measure(router.region)
    client(router, 1, consumer(0, "balanced.a", 0))
    sending = client(router, 0, producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x" * 10_000)))
    for _ in range(5):
        router.pass_time(1000)
        router.settle()
    held = [router.region.quota_counters(index)["buffered"] for index in range(8)]
    assert 10_000 <= max(held) < 12_000


def test_connection_at_its_bound_is_read_while_its_windows_are_kept(routers: Any) -> None:
    """Otherwise two clients that send to each other could wait for ever: each settles by its own connection."""
    router = routers(2, text=configuration(listener="maxBufferedMegabytes: 4"))
    sessions = range(1, 21)
    client(router, 1, *(consumer(number, f"balanced.{number}", 0) for number in sessions))
    sending = client(router, 0)
    windows = SessionWindows(router, sending)
    sending.feed(
        b"".join(begin(number) + producer(number, f"balanced.{number}", channel=number) for number in sessions)
    )
    for _ in range(30):
        for number in sessions:
            windows.send(number, number, b"x" * 15_000)
    assert 4 * MEGABYTE <= octets_held(sending.connection) < 5 * MEGABYTE
    sending.feed(flow(None, echo=True))
    router.settle()
    assert of(frames(sending), "flow")
