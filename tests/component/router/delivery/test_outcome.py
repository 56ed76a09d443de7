"""Loss of a multicast producer: the reports to consumers on its worker and on others (9.5)."""

from typing import Any

import pytest

from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, say, settle, start, transfer

WAYS = ["detach", "end", "lose"]
FAILED = 0x27  # modified


def leave(peer: Any, way: str) -> None:
    if way == "lose":
        peer.lose()
    else:
        peer.feed(say("detach", handle=0, closed=True) if way == "detach" else say("end"))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [10, 40_000, 200_000], ids=["one-frame", "several-frames", "stream"])
@pytest.mark.parametrize("each", [1, 3], ids=["one-consumer-a-worker", "three-consumers-a-worker"])
def test_multicast_copies_of_lost_producer_are_equal_on_all_workers(
    routers: Any, workers: int, way: str, size: int, each: int
) -> None:
    """A queued copy leaves unsettled; the consumer of a sent copy receives modified."""
    router = routers(workers)

    def client(worker: int, *octets: bytes) -> Any:
        peer = router.connect(worker)
        peer.feed(start() + b"".join(octets))
        router.settle()
        frames(peer)
        return peer

    waiting = [client(worker, consumer(0, "multicast.a", 0)) for worker in range(workers) for _ in range(each)]
    served = [client(worker, consumer(0, "multicast.a")) for worker in range(workers) for _ in range(each)]
    sending = client(0, producer(0, "multicast.a"))
    body = message(b"x" * size)
    sending.feed(transfer(0, 0, body))
    router.settle()
    for peer in served:
        assert messages(frames(peer)) == [body]
    leave(sending, way)
    router.settle()
    for peer in served:
        (told,) = of(frames(peer), "disposition")
        assert (told.role, told.first, told.settled, told.state.descriptor) == (False, 0, True, FAILED)
    for peer in waiting:
        assert frames(peer) == []
        peer.feed(flow(0, 1))
        router.settle()
        heard = frames(peer)
        assert messages(heard) == [body]
        assert not any(frame.settled for frame in of(heard, "transfer"))
        peer.feed(settle(0, state=ACCEPTED))
        router.settle()
        assert frames(peer) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_queued_multicast_copies_of_lost_producer_leave_unsettled_in_order(routers: Any, workers: int) -> None:
    router = routers(workers)
    receiving = [router.connect(worker) for worker in range(workers)]
    for peer in receiving:
        peer.feed(start() + consumer(0, "multicast.a", 0))
        router.settle()
        frames(peer)
    sending = router.connect(0)
    sending.feed(start() + producer(0, "multicast.a"))
    router.settle()
    sending.feed(b"".join(transfer(0, number, message(b"%d" % number)) for number in range(20)))
    router.settle()
    sending.lose()
    router.settle()
    for peer in receiving:
        peer.feed(flow(0, 100))
        router.settle()
        heard = frames(peer)
        assert messages(heard) == [message(b"%d" % number) for number in range(20)]
        assert [bool(frame.settled) for frame in of(heard, "transfer")] == [False] * 20
