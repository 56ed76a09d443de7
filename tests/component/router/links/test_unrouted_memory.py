"""Memory of incomplete messages that are not routed yet: it counts like other memory, from the first octet."""

from typing import Any

import pytest

import sluice.router.testing.engine as engine
from sluice.workers.links.record import LinkRecord
from tests.component.engine.actor import PART, ActorSender, AmqpActor, run
from tests.component.engine.flows import MEGABYTE, blocked_consumer, check_served, one_router, pass_time, send
from tests.component.engine.host import InProcessRouter
from tests.peer.talk import begin, consumer, frames, message, messages, of, producer, say, start, transfer

RELEASED = 0x26
EXCEEDED = "amqp:resource-limit-exceeded"
PIECE = 7 * PART  # octets of an unfinished message, too few to be streamed
WHOLE = 200_000
LITTLE = 200_000  # octets: enough to shut its session's window when memory is full
FRAMES = 20  # frames of a window
WINDOW = FRAMES * PART
SLACK = 1.5  # allowance for unused chunk room and octets under way


def send_unfinished(session, links: int, address: str = "balanced.good") -> list[ActorSender]:
    """Return links that each send only part of a message."""
    senders = [session.sender(address) for _ in range(links)]
    for sender in senders:
        sender.stalls_after = PIECE
        send(sender, [WHOLE])
    return senders


def ended_by(links: list[ActorSender]) -> list[str]:
    """Return the conditions of the links that the router has ended."""
    return [link.ended.error.value[0] for link in links if link.ended is not None]


class BystanderClients:
    """Client with a consumer, and client that sends small and large messages to it."""

    def __init__(self, router: InProcessRouter, worker: int = 0) -> None:
        self.router = router
        self.consumer, self.producer = AmqpActor(router, "g", worker), AmqpActor(router, "s")
        self.actors = [self.consumer, self.producer]
        self.receiver = self.consumer.session(100).receiver("balanced.good")
        run(router, self.actors)
        session = self.producer.session()
        self.small, self.large = session.sender("balanced.good"), session.sender("balanced.good")
        run(router, self.actors)

    def hold(self) -> None:
        """Send a message that is not read, so that the session needs memory for its window."""
        blocked_consumer(self.consumer, "balanced.little")
        run(self.router, self.actors)
        little = self.producer.sessions[0].sender("balanced.little")
        run(self.router, self.actors)
        send(little, [LITTLE])
        run(self.router, self.actors)

    def send(self) -> None:
        send(self.small, [1000] * 50, first=self.small.count)
        send(self.large, [60_000] * 5, first=self.large.count)

    def check(self) -> None:
        for sender in (self.small, self.large):
            check_served(sender, [self.receiver])


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("sessions", [1, 4])
def test_unfinished_messages_of_many_links_stay_within_limit_of_connection(workers, sessions):
    with one_router(f"maxBufferedMegabytes: 1; maxSessionFrames: {FRAMES}", workers) as router:
        pair = BystanderClients(router, workers - 1)
        hostile = AmqpActor(router, "h")
        opened = [hostile.session() for _ in range(sessions)]
        run(router, [hostile])
        links = [link for session in opened for link in send_unfinished(session, 60 // sessions)]
        actors = [hostile, *pair.actors]
        pair.send()
        run(router, actors)
        pair.check()
        assert engine.live_objects()[2] <= SLACK * (MEGABYTE + sessions * WINDOW)
        assert not ended_by(links)
        for _ in range(10):
            pair.send()
            pass_time(router, actors, 1)
            pair.check()
            assert engine.live_objects()[2] <= SLACK * (MEGABYTE + sessions * WINDOW)
        ended = ended_by(links)
        assert 0 < len(ended) <= 10
        assert set(ended) == {EXCEEDED}


@pytest.mark.parametrize("workers", [1, 3])
def test_unfinished_messages_at_limit_are_finished_by_remaining_links(workers):
    """Only links of the connection end, and no more than needed. All others finish their messages."""
    with one_router(f"maxBufferedMegabytes: 1; maxSessionFrames: {FRAMES}", workers) as router:
        pair = BystanderClients(router, workers - 1)
        client = AmqpActor(router, "h")
        session = client.session()
        run(router, [client])
        links = send_unfinished(session, 40)
        actors = [client, *pair.actors]
        run(router, actors)
        for link in links:
            link.stalls_after = 0
        pass_time(router, actors, 100)
        left = [link for link in links if link.ended is None]
        assert len(left) >= len(links) // 2
        assert all(link.idle and len(link.sent) == 1 for link in left)
        assert set(ended_by(links)) <= {EXCEEDED}
        assert engine.live_objects()[2] == 0


def test_unfinished_messages_that_fill_process_end_and_stream_continues():
    limit = 4 * MEGABYTE
    with one_router(f"maxSessionFrames: {FRAMES}") as router:
        (worker,) = router.workers
        worker.loop.scheduler.memory.content_limit = limit
        pair = BystanderClients(router)
        pair.hold()
        hostile = [AmqpActor(router, f"h{number}") for number in range(4)]
        opened = [actor.session() for actor in hostile]
        run(router, hostile)
        links = [link for session in opened for link in send_unfinished(session, 10)]
        actors = [*hostile, *pair.actors]
        run(router, actors)
        assert engine.live_objects()[2] <= SLACK * (limit + len(hostile) * WINDOW)
        send(pair.large, [3_000_000])
        pair.send()
        run(router, actors)
        assert not pair.large.idle
        pass_time(router, actors, 15)
        check_served(pair.large, [pair.receiver])
        assert (pair.small.ended, pair.large.ended) == (None, None)
        assert set(ended_by(links)) == {EXCEEDED}


def test_links_that_hold_little_make_room_for_stream_within_seconds():
    limit = 12 * MEGABYTE
    with one_router(f"maxSessionFrames: {FRAMES}") as router:
        (worker,) = router.workers
        worker.loop.scheduler.memory.content_limit = limit
        pair = BystanderClients(router)
        pair.hold()
        hostile = [AmqpActor(router, f"h{number}") for number in range(4)]
        opened = [actor.session() for actor in hostile]
        run(router, hostile)
        links = [link for session in opened for link in send_unfinished(session, 30)]
        actors = [*hostile, *pair.actors]
        run(router, actors)
        send(pair.large, [3_000_000])
        run(router, actors)
        assert not pair.large.idle
        pass_time(router, actors, 15)
        check_served(pair.large, [pair.receiver])
        assert len(ended_by(links)) > limit // 4 // WHOLE


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("end", ["abort", "detach", "end", "lose", "finish"])
def test_ended_unfinished_message_is_not_counted(end, settled):
    with one_router("maxBufferedMegabytes: 1") as router:
        peer = router.connect()
        peer.feed(start() + begin(1) + producer(0, "balanced.a"))
        router.settle()
        fields: dict[str, Any] = {
            "handle": 0,
            "delivery_id": 0,
            "delivery_tag": b"0",
            "message_format": 0,
            "settled": settled or None,
        }
        peer.feed(say("transfer", payload=b"\0\x53\x75\xb0\x00\x01\x00\x00", more=True, **fields))
        peer.feed(4 * say("transfer", payload=bytes(15_000), handle=0, more=True))
        router.settle()
        assert engine.live_objects()[2] > 60_000
        (record,) = peer.client.links.by_number.values()
        assert isinstance(record, LinkRecord)
        assert engine.held(record.producer_link) == 60_008
        if end == "abort":
            peer.feed(say("transfer", handle=0, aborted=True))
        elif end == "detach":
            peer.feed(say("detach", handle=0, closed=True))
        elif end == "end":
            peer.feed(say("end"))
        elif end == "lose":
            peer.lose()
        else:
            peer.feed(say("transfer", payload=bytes(5_536), handle=0))
        router.settle()
        assert engine.held(record.producer_link) == 0
        assert engine.live_objects()[2] == 0


@pytest.mark.parametrize("settled", [False, True])
def test_dropped_unfinished_message_is_released_and_link_continues(settled):
    """Links of other routers are not closed at the bound."""
    with one_router() as router:
        peer, receiver = router.connect(), router.connect()
        receiver.feed(start() + consumer(0, "balanced.a"))
        peer.feed(start() + producer(0, "balanced.a"))
        router.settle()
        first = transfer(0, 0, message(bytes(3 * PART)), settled=settled or None)
        size = int.from_bytes(first[:4], "big")
        peer.feed(first[:size])
        router.settle()
        frames(peer)
        (record,) = peer.client.links.by_number.values()
        assert isinstance(record, LinkRecord)
        assert engine.held(record.producer_link) > 0
        engine.release_unrouted(record.producer_link)
        assert engine.held(record.producer_link) == 0
        assert engine.live_objects()[2] == 0
        peer.feed(first[size:] + transfer(0, 1, message(b"next"), settled=True))
        router.settle()
        assert messages(frames(receiver)) == [message(b"next")]
        outcomes = of(frames(peer), "disposition")
        assert {int(one.state.descriptor) for one in outcomes} == (set() if settled else {RELEASED})
        assert any(one.settled for one in outcomes) is not settled
