"""Turns for interpreter work: a client with a thousand links does not occupy a whole wake."""

import itertools

import pytest

from sluice.supervisor.connections.registry import DROPS_PER_WAKE
from tests.peer.frames import RELEASED, SASL_HEADER
from tests.peer.talk import begin, consumer, flow, frames, message, of, producer, say, start, transfer

LINKS = 200  # links of one connection; LINKS of tests.component.engine.host is the number for a worker
A_WAKE = 128  # bound for frames, or ends of links, in one wake; half of it for listed connections
HEALTHY = "balanced.healthy"
LARGE = 100_000  # octets of a message
ESTABLISHED_MS = 1000  # time from the open of a client until its traffic limits the work for others
MOST_WRITTEN = 4 * LARGE  # bound for the octets that a connection writes in one wake


def counts_per_wake(router, done):
    """Wake worker 0 until `done`. Return (frames, ends of links) of each wake."""
    worker = router.workers[0]
    counts = []
    while not done():
        scheduler = worker.loop.scheduler
        before = scheduler.frames, scheduler.losses
        router.wake(worker)
        counts.append((scheduler.frames - before[0], scheduler.losses - before[1]))
    return counts


def open_client(router, worker=0):
    """Open a connection and a session."""
    peer = router.connect(worker)
    peer.feed(start())
    router.settle()
    frames(peer)
    return peer


def open_receivers(router, count=1, worker=0):
    """Open `count` connections with LINKS receivers in all."""
    peers = []
    for _ in range(count):
        peers.append(open_client(router, worker))
        peers[-1].feed(b"".join(consumer(h, "balanced.crowd", 0) for h in range(LINKS // count)))
    router.settle()
    return peers


def test_simultaneous_attaches_take_turns(routers):
    router = routers()
    greedy, modest = open_client(router), open_client(router)
    greedy.put(b"".join(consumer(handle, "balanced.a", 0) for handle in range(LINKS)))
    modest.feed(consumer(0, "balanced.b", 0))
    assert len(greedy.client.links.by_number) <= A_WAKE / 2, "its turn has ended"
    assert len(modest.client.links.by_number) == 1, "another connection has its turn"
    counts = counts_per_wake(router, lambda: len(greedy.client.links.by_number) == LINKS)
    assert max(taken for taken, _ in counts) <= A_WAKE
    router.settle()
    assert len([f for f in frames(greedy) if f.name == "attach"]) == LINKS


def slow_links(monkeypatch, worker):
    """Make each link that is attached or released cost this worker more than its time budget."""
    enter, release = worker.enter_link, worker.release_slot

    def slow_enter(*given, **more):
        worker.poller.time_ns += 200_000
        return enter(*given, **more)

    def slow_release(slot):
        worker.poller.time_ns += 200_000
        release(slot)

    monkeypatch.setattr(worker, "enter_link", slow_enter)
    monkeypatch.setattr(worker, "release_slot", slow_release)


def open_healthy_pair(router, *, established=True):
    """Connect a receiver and a sender, which has sent one message. established: they have been open for a while."""
    receiver, sender = open_client(router), open_client(router)
    receiver.feed(consumer(0, HEALTHY))
    sender.feed(producer(0, HEALTHY))
    router.settle()
    if established:
        router.pass_time(ESTABLISHED_MS)
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    frames(receiver)
    return receiver, sender


def test_attaches_are_bounded_by_time_beside_active_clients(routers, monkeypatch):
    """A slow attach uses up the time budget of a wake. Deliveries of other clients pass in each wake."""
    router = routers()
    worker = router.workers[0]
    greedy, modest = open_client(router), open_client(router)
    receiver, sender = open_healthy_pair(router)
    slow_links(monkeypatch, worker)
    greedy.put(b"".join(consumer(handle, "balanced.a", 0) for handle in range(20)))
    modest.put(b"".join(consumer(handle, "balanced.b", 0) for handle in range(20)))
    links = [0]
    while links[-1] < 40:
        sender.put(transfer(0, len(links), message(b"x")))
        router.wake(worker)
        assert [f.name for f in frames(receiver)] == ["transfer"], "in the same wake"
        links.append(len(greedy.client.links.by_number) + len(modest.client.links.by_number))
    steps = [after - before for before, after in itertools.pairwise(links)]
    assert max(steps) <= 4, "each connection: one when read, one in its turn"
    assert min(steps[:-1]) >= 1


def test_attaches_without_active_clients_get_more_time(routers, monkeypatch):
    router = routers()
    worker = router.workers[0]
    alone = open_client(router)
    slow_links(monkeypatch, worker)
    alone.put(b"".join(consumer(handle, "balanced.a", 0) for handle in range(60)))
    router.wake(worker)
    assert 20 < len(alone.client.links.by_number) < 60, "a few milliseconds, when read and in its turn"


def test_lost_links_are_bounded_by_time_beside_active_clients(routers, monkeypatch):
    router = routers()
    worker = router.workers[0]
    gone = open_receivers(router, 2)
    receiver, sender = open_healthy_pair(router)
    slow_links(monkeypatch, worker)
    for peer in gone:
        peer.put(say("end"))
    links = [sum(len(peer.client.links.by_number) for peer in gone)]
    while links[-1]:
        sender.put(transfer(0, len(links), message(b"x")))
        router.wake(worker)
        assert [f.name for f in frames(receiver)] == ["transfer"], "in the same wake"
        links.append(sum(len(peer.client.links.by_number) for peer in gone))
    steps = [before - after for before, after in itertools.pairwise(links)]
    assert max(steps) <= 4
    assert min(steps) >= 1


def test_connecting_clients_take_one_step_per_wake(routers):
    """A single client takes an admission step per wake, whether it logs in or opens at once.

    Established clients are served in each wake.
    """
    router = routers()
    receiver, sender = open_healthy_pair(router)
    worker = router.workers[0]
    connecting = [router.connect() for _ in range(40)]
    for number, peer in enumerate(connecting):
        peer.put(SASL_HEADER if number % 2 else start())
    for number in range(len(connecting) + 1):
        sender.put(transfer(0, 1 + number, message(b"x")))
        router.wake(worker)
        assert [f.name for f in frames(receiver)] == ["transfer"], "in the same wake"
        admitted = [
            peer for peer in connecting if peer.client.login.sasl is not None or peer.client.connection.remote_open
        ]
        assert admitted == connecting[:number], "in their order, from the second wake on"
    router.settle()
    assert {frames(peer)[0].name for peer in connecting} == {"sasl-mechanisms", "open"}


def test_new_clients_do_not_delay_admission(routers):
    """Clients that connect, send a message and leave are not established."""
    router = routers()
    worker = router.workers[0]
    receiver, sender = open_healthy_pair(router, established=False)
    connecting = [router.connect() for _ in range(8)]
    for peer in connecting:
        peer.put(start())
    sender.put(transfer(0, 1, message(b"x")))
    router.wake(worker)
    assert [f.name for f in frames(receiver)] == ["transfer"]
    assert all(peer.client.connection.remote_open for peer in connecting)


def test_waiting_frames_of_many_connections_get_turns_in_one_wake(routers):
    """Batches of attaches grow with their number, since each batch costs the supervisor an epoch."""
    router = routers()
    clients = [open_client(router) for _ in range(A_WAKE)]
    router.pass_time(ESTABLISHED_MS)  # an attach that waits does not count as activity either
    for peer in clients:
        peer.put(consumer(0, "balanced.a", 0))
    counts = counts_per_wake(router, lambda: all(peer.client.links.by_number for peer in clients))
    assert [taken for taken, _ in counts] == [A_WAKE]


def test_frames_in_turns_are_bounded_for_all_connections(routers):
    router = routers()
    clients = [open_client(router) for _ in range(6)]
    for peer in clients:
        peer.put(b"".join(consumer(handle, "balanced.a", 0) for handle in range(LINKS // 6)))
    counts = counts_per_wake(router, lambda: all(len(peer.client.links.by_number) == LINKS // 6 for peer in clients))
    assert max(taken for taken, _ in counts) <= A_WAKE


def test_attach_behind_many_others_makes_progress(routers):
    router = routers()
    greedy = [open_client(router) for _ in range(8)]
    for peer in greedy:
        peer.feed(b"".join(consumer(handle, "balanced.a", 0) for handle in range(30)))
    modest = open_client(router)
    modest.feed(consumer(0, "balanced.b", 0))
    counts_per_wake(router, lambda: modest.client.links.by_number)
    router.settle()
    assert [len(peer.client.links.by_number) for peer in greedy] == [30] * 8


def test_undecided_attaches_are_bounded(routers, monkeypatch):
    """Other events for the supervisor wait behind these few attaches only."""
    monkeypatch.setattr("sluice.workers.worker.MAX_UNDECIDED_ATTACHES", 100)
    router = routers()
    worker = router.workers[0]
    greedy = [open_client(router) for _ in range(2)]
    for peer in greedy:
        peer.feed(b"".join(consumer(handle, "balanced.a", 0) for handle in range(LINKS // 2)))
    for _ in range(LINKS):
        router.wake(worker)
    assert worker.questions == 100
    assert not worker.loop.scheduler.unfinished(), "the loop sleeps until there is an answer"
    assert all(peer.client.links.by_number for peer in greedy)
    router.settle()
    assert worker.questions == 0
    assert [len(peer.client.links.by_number) for peer in greedy] == [LINKS // 2] * 2


def test_lost_attaches_do_not_count_as_undecided(routers, monkeypatch):
    monkeypatch.setattr("sluice.workers.worker.MAX_UNDECIDED_ATTACHES", 40)
    router = routers()
    greedy, modest = open_client(router), open_client(router)
    greedy.feed(b"".join(consumer(handle, "balanced.a", 0) for handle in range(40)))
    for _ in range(4):
        router.wake(router.workers[0])
    modest.feed(consumer(0, "balanced.b", 0))
    assert not modest.client.links.by_number
    greedy.lose()
    counts_per_wake(router, lambda: modest.client.links.by_number)
    assert router.workers[0].questions == 1
    router.settle()
    assert router.workers[0].questions == 0


def test_deliveries_pass_beside_attaches(routers):
    router = routers()
    receiver, sender, greedy = open_client(router), open_client(router), open_client(router)
    receiver.feed(consumer(0, HEALTHY))
    sender.feed(producer(0, HEALTHY))
    router.settle()
    frames(receiver)
    greedy.feed(b"".join(consumer(handle, "balanced.a", 0) for handle in range(LINKS)))
    sender.feed(transfer(0, 0, message(b"x")))
    router.wake(router.workers[0])
    assert [f.name for f in frames(receiver)] == ["transfer"]


@pytest.mark.parametrize("how", ["lost", "close", "end"])
def test_links_lost_together_end_in_turns(routers, how):
    """The links end one after the other. The answer is sent after the last of them."""
    router = routers()
    (peer,) = open_receivers(router)
    other = router.connect()
    other.feed(start() + consumer(0, HEALTHY))
    router.settle()
    frames(peer)
    scheduler, client = router.workers[0].loop.scheduler, peer.client
    before = scheduler.losses
    if how == "lost":
        peer.lose()
    else:
        peer.feed(say(how))
    assert 0 < scheduler.losses - before < LINKS / 2
    assert client.links.by_number
    assert not client.closed_reported
    assert frames(peer) == []
    counts = counts_per_wake(router, lambda: not client.links.by_number)
    assert max(losses for _, losses in counts) <= A_WAKE
    assert client.closed_reported == (how != "end")
    router.settle()
    assert (client.number in router.workers[0].clients) == (how == "end")
    if how != "lost":
        assert [f.name for f in frames(peer)] == [how]
    other.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert frames(other)[-1].name == "detach"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", ["lost", "close", "end"])
def test_delivery_for_lost_link_is_released(routers, how, workers):
    """The delivery is released. Nothing is written to the client."""
    router = routers(workers)
    (peer,) = open_receivers(router)
    last = LINKS - 1
    peer.feed(consumer(LINKS, "balanced.last", 10))
    sender = open_client(router, workers - 1)
    sender.feed(producer(0, "balanced.last"))
    router.settle()
    frames(peer)
    frames(sender)
    if how == "lost":
        peer.lose()
    else:
        peer.feed(say(how))
    assert len(peer.client.links.by_number) > last / 2
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    (outcome,) = [f for f in frames(sender) if f.name == "disposition"]
    assert outcome.state == RELEASED
    assert [f.name for f in frames(peer)] == ([] if how == "lost" else [how])


def test_connection_lost_during_session_end_is_removed(routers):
    router = routers()
    (peer,) = open_receivers(router)
    client = peer.client
    peer.feed(say("end"))
    peer.lose()
    assert client.links.by_number
    assert not client.closed_reported
    router.settle()
    assert client.closed_reported
    assert not client.links.by_number


def test_session_may_begin_before_links_of_last_one_end(routers):
    """The new session uses the same channel, and begins before the links of the first one have ended."""
    router = routers()
    (peer,) = open_receivers(router)
    frames(peer)
    sender = open_client(router)
    peer.feed(say("end") + begin(0) + consumer(0, HEALTHY))
    sender.feed(producer(0, HEALTHY))
    router.settle()
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    names = [f.name for f in frames(peer)]
    assert sorted(names) == ["attach", "begin", "end", "transfer"]
    assert names.index("attach") < names.index("transfer")


def test_answer_for_lost_link_is_dropped(routers):
    router = routers()
    (peer,) = open_receivers(router)
    frames(peer)
    peer.feed(consumer(LINKS, "balanced.late", 0) + say("end"))
    assert any(record.link.session.ended for record in peer.client.links.by_number.values())
    while router.decide():
        pass
    router.settle()
    assert [f.name for f in frames(peer)] == ["end"]


def test_supervisor_drops_links_in_turns(routers):
    """The supervisor drops links of lost connections in turns, and answers others meanwhile."""
    router = routers(links=6 * LINKS)
    peers = [peer for _ in range(4) for peer in open_receivers(router)]
    modest = open_client(router)
    for peer in peers:
        peer.lose()
    counts_per_wake(router, lambda: not router.workers[0].loop.scheduler.unfinished())
    modest.feed(consumer(0, HEALTHY, 0))
    left = [len(router.core.links.by_identity)]
    answered = 0  # links that were left when `modest` was answered
    while router.core.connections.count > 1:
        router.decide()
        left.append(len(router.core.links.by_identity))
        router.wake(router.workers[0])
        if not answered:
            answered = left[-1] if of(frames(modest), "attach") else 0
    assert left[0] == 4 * LINKS
    assert answered > 1
    assert max(before - after for before, after in itertools.pairwise(left)) <= 2 * DROPS_PER_WAKE
    assert left[-1] == 1


def test_connection_writes_once_per_wake(routers):
    """Other connections are read before it continues to write."""
    router = routers()
    greedy, sender = open_client(router), open_client(router)
    greedy.feed(consumer(0, "balanced.a", 0))
    count = 4 * MOST_WRITTEN // LARGE
    sender.feed(producer(0, "balanced.a"))
    sender.feed(b"".join(transfer(0, number, message(bytes(LARGE))) for number in range(count)))
    router.settle()
    greedy.put(flow(0, count))
    worker = router.workers[0]
    written: list[int] = []
    while sum(written) < count * LARGE:
        router.wake(worker)
        written.append(len(greedy.take()))
        assert written[-1], "the connection writes in each wake"
    assert max(written) <= MOST_WRITTEN
