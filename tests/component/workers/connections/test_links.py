"""Answer to the end of a session: delayed until no worker knows the session's consumers."""

import pytest

from tests.peer.talk import begin, consumer, frames, say, start


@pytest.mark.parametrize("detached", [1, 2])
def test_end_after_unconfirmed_detach_waits_for_its_consumers(routers, detached):
    """The confirmation of the earlier detach arrives first. It must not count for the consumers that ended with the
    session."""
    router = routers(2)
    peer = router.connect(0)
    peer.feed(start() + b"".join(consumer(handle, f"balanced.{handle}") for handle in range(2 * detached)))
    router.settle()
    frames(peer)
    peer.feed(b"".join(say("detach", handle=handle, closed=True) for handle in range(detached)))
    router.decide()  # both workers know of it, and acknowledge it with the next event
    slow, held = router.workers[1], []
    slow.control.on_delta = lambda *delta: held.append(delta)
    peer.feed(say("end"))
    assert len(peer.client.links.leaving) == 2 * detached
    while len(peer.client.links.leaving) > detached:
        assert router.decide()
        for worker in router.workers:
            router.wake(worker)
    for _ in range(3):
        router.decide()
        router.wake(router.workers[0])
    assert len(peer.client.links.leaving) == detached, "worker 1 knows the others"
    assert frames(peer) == []
    slow.control.on_delta = slow.on_delta
    for delta in held:
        slow.on_delta(*delta)
    router.wake(slow)
    router.settle()
    assert [frame.name for frame in frames(peer)] == ["end"]
    peer.feed(begin(0) + consumer(0, "balanced.0") + say("end"))
    router.settle()
    assert [frame.name for frame in frames(peer)][-1] == "end", "nothing is counted that is not there"
