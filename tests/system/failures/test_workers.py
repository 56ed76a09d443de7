"""Processes of a router: loss of a worker, exhaustion, leaks and exit (routing-semantics.md 16.2)."""

import itertools
import os
import signal
import threading
import time

import psutil
import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.wire import PeerTimeout, StreamEnd
from tests.system.counters import Counters
from tests.system.fixtures import Connect, Fresh, Start, pair, pass_one
from tests.system.router import SETTINGS, RouterProcess, Section, listener, poll

SECTIONS: list[Section] = []
#: Seconds within which a lost worker must be replaced.
REPLACED_WITHIN = 2.0
#: Maximum wakes of an idle worker in two seconds; the supervisor's probes cause some.
IDLE_WAKES = 6
PAIRS = 6


def local_port(peer: AmqpPeer) -> int:
    """Return the client's port of a connection."""
    return int(peer.socket.getsockname()[1])


def by_worker(router: RouterProcess, links: list[PeerSender] | list[PeerReceiver]) -> dict[int, list[int]]:
    """Return the indexes of the links by pid of the worker that serves them."""
    found: dict[int, list[int]] = {}
    for index, link in enumerate(links):
        found.setdefault(router.worker_of(local_port(link.peer)), []).append(index)
    return found


# --- shared router --------------------------------------------------------------------------------------------------


def test_connections_are_spread_over_workers(router: RouterProcess, connect: Connect) -> None:
    peers = [connect() for _ in range(router.workers * 4)]
    pids = [router.worker_of(local_port(peer)) for peer in peers]
    assert len(set(pids)) == router.workers
    assert router.pid not in pids, "the supervisor serves a client"


def test_worker_pairs_have_equal_semantics(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    """Semantics are equal for each combination of the sender's and the receiver's worker."""
    address = fresh("closest")
    peers: dict[int, AmqpPeer] = {}
    for _ in range(router.workers * 6):
        peer = connect()
        peers.setdefault(router.worker_of(local_port(peer)), peer)
        if len(peers) == router.workers:
            break
    assert len(peers) == router.workers
    for one, two in itertools.product(peers.values(), repeat=2):
        receiver = two.receiver(address, 10)
        sender = one.sender(address)
        pass_one(sender, receiver)
        number = sender.send(message.message("lost"))
        receiver.next()
        receiver.detach()
        assert sender.outcome(number).name == "modified"
        sender.detach()


def test_idle_router_does_not_wake_periodically(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    """While connected clients are idle for two seconds, each worker wakes for their heartbeats, not for a periodic
    timer."""
    sender, receiver = pair(connect, fresh())
    pass_one(sender, receiver)

    def spent() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in router.family())

    with Counters(router) as counters:
        counters.wait_gauges("no delivery is in flight", connections=None, links=None)

        def wakes() -> list[int]:
            return [counters.worker(index)["wakes"] for index in range(router.workers)]

        before, processor = wakes(), spent()
        sender.peer.idle_until(time.monotonic() + 2)
        woken = [now - then for now, then in zip(wakes(), before, strict=True)]
        assert max(woken) <= IDLE_WAKES, woken
        assert spent() - processor < 0.3


@pytest.mark.long
@pytest.mark.timeout(300)  # 35 s alone, on two cores
@pytest.mark.parametrize("rounds", [2000])
def test_connects_and_disconnects_leak_nothing(
    router: RouterProcess, connect: Connect, rounds: int, fresh: Fresh
) -> None:
    """Five threads of `rounds` connections each, most of them with links, leak neither descriptors nor memory."""
    address = fresh()

    def churn(number: int, failures: list[BaseException]) -> None:
        try:
            for n in range(number):
                peer = AmqpPeer.opened(router.port, sasl=n % 2 == 0)
                if n % 4 == 0:
                    peer.receiver(address, 1)
                if n % 3:
                    peer.drop(reset=n % 2 == 0)
                else:
                    peer.close()
        except BaseException as error:
            failures.append(error)
            raise

    def run(number: int) -> None:
        failures: list[BaseException] = []
        threads = [threading.Thread(target=churn, args=(number, failures)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    before = router.descriptors()

    def settled() -> None:
        poll(lambda: router.descriptors() <= before + 5, "descriptors are returned")
        connect().barrier()

    run(rounds // 5)  # lets pools and caches reach their size
    settled()
    memory = router.memory()
    run(rounds - rounds // 5)
    settled()
    assert router.memory() - memory < 4 << 20


def test_address_is_removed_with_its_last_link(connect: Connect, management: Management, fresh: Fresh) -> None:
    address = fresh()
    peer = connect()
    peer.receiver(address)
    peer.sender(address)
    assert management.one("router.address", key=f"M0{address}")["subscriberCount"] == 1
    peer.drop()

    def gone() -> bool:
        return f"M0{address}" not in {row["key"] for row in management.query("router.address", "key")}

    poll(gone, "the address is forgotten")


# --- loss of a worker -----------------------------------------------------------------------------------------------


def attach_pairs(router: RouterProcess, peers: list[AmqpPeer]) -> tuple[list[PeerSender], list[PeerReceiver]]:
    """Attach a sender and a receiver for each of PAIRS addresses, with a connection each."""
    senders, receivers = [], []
    for number in range(PAIRS):
        for _ in range(2):
            peers.append(AmqpPeer.opened(router.port))
        receivers.append(peers[-1].receiver(f"load/{number}", 1000))
        senders.append(peers[-2].sender(f"load/{number}"))
    return senders, receivers


def is_ended(peer: AmqpPeer) -> bool:
    """Return whether the router has ended the connection."""
    try:
        peer.barrier()
    except (StreamEnd, OSError):
        return True
    return False


@pytest.mark.parametrize("workers", [3])
def test_killed_worker_loses_only_its_own_connections(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start([listener(), *SETTINGS], workers)
    senders, receivers = attach_pairs(router, peers)
    places = by_worker(router, receivers)
    sources = by_worker(router, senders)
    assert len(places) > 1, "all receivers on one worker"
    victim = max(places, key=lambda pid: len(places[pid]))
    lost_receivers, lost_senders = set(places[victim]), set(sources.get(victim, []))

    sent = {n: [sender.send(message.message([n, k])) for k in range(100)] for n, sender in enumerate(senders)}
    accepted: dict[int, set[int]] = {}
    for n, receiver in enumerate(receivers):
        deliveries = receiver.receive(100)
        receiver.session.disposition(deliveries[0].id, deliveries[29].id)
        accepted[n] = {message.body(one.payload)[1] for one in deliveries[:30]}
        if n not in lost_senders:
            for k in range(30):
                senders[n].outcome(sent[n][k])

    before = set(router.worker_pids())
    begun = time.monotonic()
    os.kill(victim, signal.SIGKILL)

    for n, receiver in enumerate(receivers):
        if n in lost_receivers or n in lost_senders:
            continue
        receiver.session.disposition(receiver.deliveries[30].id, receiver.deliveries[-1].id)
        assert {senders[n].outcome(number).name for number in sent[n]} == {"accepted"}
    for n in lost_receivers - lost_senders:
        names = [senders[n].outcome(number).name for number in sent[n]]
        assert names[:30] == ["accepted"] * 30
        assert set(names[30:]) <= {"modified", "released"}
        assert {number for number, name in enumerate(names) if name == "accepted"} <= accepted[n]
    for n in lost_senders - lost_receivers:
        receivers[n].session.disposition(receivers[n].deliveries[30].id, receivers[n].deliveries[-1].id)
        assert not is_ended(receivers[n].peer)

    poll(lambda: len(router.worker_pids()) >= len(before), "the worker is replaced", REPLACED_WITHIN)
    assert time.monotonic() - begun < REPLACED_WITHIN + 1
    for n in range(PAIRS):
        assert is_ended(receivers[n].peer) == (n in lost_receivers)
        assert is_ended(senders[n].peer) == (n in lost_senders)
    poll(lambda: victim not in router.worker_pids(), "the dead worker is gone")

    def spread() -> bool:
        """Open a client; return whether all workers have one. The new process may not serve yet."""
        peers.append(AmqpPeer.opened(router.port))
        return len({router.worker_of(local_port(peer)) for peer in _alive(peers)}) == workers

    poll(spread, "the new worker has connections", REPLACED_WITHIN)
    peers.extend(AmqpPeer.opened(router.port) for _ in range(5))
    receiver = peers[-6].receiver("load/new", 10)
    for peer in peers[-5:]:
        pass_one(peer.sender("load/new"), receiver)


def _alive(peers: list[AmqpPeer]) -> list[AmqpPeer]:
    return [peer for peer in peers if peer.ended is None and peer.socket.fileno() >= 0]


@pytest.mark.parametrize("workers", [3])
def test_worker_killed_under_load_settles_all_deliveries(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """Each delivery of a surviving producer is settled, and each accepted one has arrived."""
    router = start([listener(), *SETTINGS], workers)
    senders, receivers = attach_pairs(router, peers)
    places = by_worker(router, receivers)
    victim = min(places, key=lambda pid: len(places[pid]))
    survivors = [n for n, sender in enumerate(senders) if router.worker_of(local_port(sender.peer)) != victim]
    stop = threading.Event()
    arrived: list[set[int]] = [set() for _ in receivers]

    def consume(n: int) -> None:
        receiver = receivers[n]
        try:
            while not stop.is_set():
                try:
                    delivery = receiver.next(timeout=0.2)
                except PeerTimeout:
                    continue
                arrived[n].add(message.body(delivery.payload))
                delivery.settle()
                if receiver.taken % 500 == 0:
                    receiver.flow(1000)
        except (StreamEnd, OSError):
            return

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(PAIRS)]
    for thread in threads:
        thread.start()
    numbers: dict[int, list[int]] = {n: [] for n in survivors}
    killed = False
    for k in range(1500):
        for n in survivors:
            if senders[n].credit <= 0:
                senders[n].peer.read_available()
            if senders[n].credit > 0:
                numbers[n].append(senders[n].send(message.message(len(numbers[n]))))
        if k == 500:
            os.kill(victim, signal.SIGKILL)
            killed = True
    try:
        for n in survivors:
            for index, number in enumerate(numbers[n]):
                outcome = senders[n].outcome(number)
                assert outcome.settled
                assert outcome.name in ("accepted", "modified", "released")
                if outcome.name == "accepted":
                    assert index in arrived[n]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert killed


def test_workers_killed_repeatedly_are_replaced(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start(None, workers)
    for _ in range(3):
        before = set(router.worker_pids())
        victim = router.worker_of(local_port(_opened(router, peers)))
        os.kill(victim, signal.SIGKILL)
        poll(
            lambda v=victim, b=before: v not in router.worker_pids() and len(router.worker_pids()) >= len(b),  # type: ignore[misc]
            "the worker is replaced",
            5,
        )
        receiver = _opened(router, peers).receiver("again", 5)
        pass_one(_opened(router, peers).sender("again"), receiver)
        receiver.peer.close()
    assert router.alive


def _opened(router: RouterProcess, peers: list[AmqpPeer]) -> AmqpPeer:
    peers.append(AmqpPeer.opened(router.port))
    return peers[-1]


# --- exhaustion -----------------------------------------------------------------------------------------------------


def test_descriptors_exhausted_is_survived(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """Without free descriptors connections are refused or wait, no process exits, and the router recovers."""
    router = start(None, workers)
    receiver = _opened(router, peers).receiver("still", 10)
    sender = _opened(router, peers).sender("still")
    restore = {}
    for process in router.family():
        restore[process.pid] = process.rlimit(psutil.RLIMIT_NOFILE)
        soft = process.num_fds() + 10
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, restore[process.pid][1]))
    excess = []
    for _ in range(40 * workers):
        peer = AmqpPeer(router.port)
        peer.raw(b"AMQP\x00\x01\x00\x00")
        excess.append(peer)
    pass_one(sender, receiver, "while exhausted")
    for peer in excess:
        peer.drop()
    for pid, limit in restore.items():
        if psutil.pid_exists(pid):
            psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE, limit)
    poll(lambda: _serves(router), "new connections are served again")
    pass_one(sender, receiver, "afterwards")
    assert set(restore) == {process.pid for process in router.family()}, "a process died"


def _serves(router: RouterProcess) -> bool:
    try:
        AmqpPeer.opened(router.port).close()
    except (OSError, StreamEnd, PeerTimeout):
        return False
    return True


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_orderly_stop_leaves_nothing(start: Start, workers: int, peers: list[AmqpPeer], number: int) -> None:
    """The stop works under load, and sockets end without frames (routing-semantics.md O-4)."""
    router = start(None, workers)
    receiver = _opened(router, peers).receiver("stop", 10)
    sender = _opened(router, peers).sender("stop")
    sender.send(message.message("unsettled"))
    receiver.next()
    router.stop(number)
    for peer in (receiver.peer, sender.peer):
        assert [frame.name for frame in peer.expect_end()] == []
    with pytest.raises(ConnectionRefusedError):
        AmqpPeer(router.port)


def test_sigint_ends_by_the_signal(start: Start) -> None:
    router = start(None)
    os.kill(router.pid, signal.SIGINT)
    assert router.wait_exit() in (-signal.SIGINT, 130)
    router.check_nothing_left()


def test_sighup_is_harmless(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start(None, workers)
    receiver = _opened(router, peers).receiver("hup", 10)
    os.kill(router.pid, signal.SIGHUP)
    pass_one(_opened(router, peers).sender("hup"), receiver)
    assert router.alive


def test_killed_supervisor_leaves_nothing(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start(None, workers)
    peer = _opened(router, peers)
    os.kill(router.pid, signal.SIGKILL)
    assert router.wait_exit() == -signal.SIGKILL
    router.check_nothing_left()
    peer.expect_end()


def test_router_killed_while_starting_leaves_nothing(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    """SIGTERM at several moments of the start ends all processes."""
    for lines in (0, 1, 3):
        router = RouterProcess(tmp_path_factory.mktemp("starting"), [listener()], 3)
        router.spawn()
        if lines:
            router.wait(lambda r=router, n=lines: len(r.lines) >= n, "a line of the log")  # type: ignore[misc]
        os.kill(router.pid, signal.SIGTERM)
        router.wait_exit()
        router.check_nothing_left()
