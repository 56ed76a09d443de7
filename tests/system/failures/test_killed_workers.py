"""Workers killed under load: others continue, no accepted message is lost, every delivery gets an outcome."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from sluice.router.ring.layout import WorkerState
from tests.peer import message
from tests.peer.frames import ACCEPTED, RELEASED, modified
from tests.peer.links import PeerLink, PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.peer.wire import PeerTimeout, StreamEnd
from tests.system.counters import Counters
from tests.system.fixtures import Start, pass_one
from tests.system.router import SETTINGS, RouterProcess, listener, poll

WORKERS = 3
#: Number of pairs of sender and receiver. Each link has its own connection, so that all combinations of workers occur.
PAIRS = 8
#: Seconds for the replacement of a killed worker on a busy machine (architecture: milliseconds).
REPLACED_WITHIN = 10.0
#: Seconds for surviving deliveries to get an outcome, and to flow.
SETTLED_WITHIN = 10.0
#: Maximum number of a sender's open messages, far below its credit, so that senders never wait for credit.
MAX_OPEN = 50
#: Seconds of load before, between and after kills.
LOAD = 0.5
#: Number of kills in the test of the counters.
KILLS = int(os.environ.get("SLUICE_KILLS", "100"))
#: Seconds that a sender of a large message waits for the window, which a consumer without credit keeps closed.
WINDOW_WAIT = 0.1
#: Message that is forwarded before it is complete.
STREAM = message.data(bytes(600_000))
SEED = int(os.environ.get("SLUICE_KILL_SEED", "1"))


class LoadedPair(threading.Thread):
    """A sender and a receiver of one address, under load until `stopping` is set.

    The receiver records a delivery before it accepts it. A lost connection is recorded and not replaced.
    """

    def __init__(self, port: int, number: int, multicast: bool) -> None:
        super().__init__(name=f"flow {number}", daemon=True)
        prefix = "multicast" if multicast else "balanced"
        self.address = f"{prefix}/k{number}"
        self.receiver: PeerReceiver = AmqpPeer.opened(port).receiver(self.address, 0)
        self.sender: PeerSender = AmqpPeer.opened(port).sender(self.address)
        self.places = [_port(self.sender), _port(self.receiver)]
        self.stopping = threading.Event()
        self.got: set[int] = set()
        self.settled_got: set[int] = set()
        self.open: dict[int, int] = {}
        self.outcomes: dict[int, str | None] = {}
        self.sent = 0
        self.lost: set[str] = set()
        self.fault: BaseException | None = None
        self.granted = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._receive()
                self._send()
        except BaseException as error:
            self.fault = error
            raise

    def _receive(self) -> None:
        if "receiver" in self.lost:
            return
        receiver = self.receiver
        try:
            if self.granted - receiver.delivery_count < 500:
                receiver.flow(1000)
                self.granted = receiver.delivery_count + 1000
            receiver.peer.idle_until(time.monotonic() + 0.002)
            taken, receiver.deliveries = receiver.deliveries, []
            for delivery in taken:
                number = message.body(delivery.payload)
                (self.settled_got if delivery.settled else self.got).add(number)
            unsettled = [delivery.id for delivery in taken if not delivery.settled]
            for delivery_id in unsettled:
                receiver.session.disposition(delivery_id)
        except (StreamEnd, OSError):
            self.lost.add("receiver")

    def _send(self) -> None:
        if "sender" in self.lost:
            return
        sender = self.sender
        try:
            sender.peer.read_available()
            self._record_outcomes()
            for _ in range(min(5, sender.credit, MAX_OPEN - len(self.open))):
                settled = self.sent % 3 == 0
                delivery = sender.send(message.message(self.sent), settled=settled)
                if not settled:
                    self.open[delivery] = self.sent
                self.sent += 1
        except (StreamEnd, OSError):
            self.lost.add("sender")

    def _record_outcomes(self) -> None:
        outcomes = self.sender.session.outcomes
        for delivery in [one for one in self.open if one in outcomes and outcomes[one].settled]:
            self.outcomes[self.open.pop(delivery)] = outcomes.pop(delivery).name

    def _missing_presettled(self) -> set[int]:
        """Return the presettled messages that the receiver has not got."""
        return set(range(0, self.sent, 3)) - self.settled_got

    def finish(self, timeout: float) -> None:
        """Wait until all open messages of a surviving sender have outcomes, after the thread has ended.

        Presettled messages have none: the last ones may arrive after all outcomes.
        """
        deadline = time.monotonic() + timeout
        try:
            while (self.open or self._missing_presettled()) and not self.lost and time.monotonic() < deadline:
                self._receive()
                self.sender.peer.read_available()
                self._record_outcomes()
            while self.open and "sender" not in self.lost:
                self.sender.peer.read_frame(max(0.0, deadline - time.monotonic()), "an outcome")
                self._record_outcomes()
        except (StreamEnd, OSError):
            # The thread may have ended before it noticed that the last kill had closed this connection.
            self.lost.add("sender")
        except PeerTimeout:
            raise AssertionError(
                f"{self.address}: {len(self.open)} of {self.sent} without outcome; lost: {self.lost}"
            ) from None

    def check(self) -> None:
        """Check that the receiver got all accepted messages; without a lost connection, all messages are accepted."""
        assert self.fault is None, f"{self.address}: {self.fault!r}"
        accepted = {number for number, name in self.outcomes.items() if name == "accepted"}
        missing = accepted - self.got
        assert not missing, f"{self.address}: accepted and missing {sorted(missing)[:10]}"
        if not self.lost:
            assert set(self.outcomes.values()) <= {"accepted"}, f"{self.address}: {set(self.outcomes.values())}"
            presettled = self._missing_presettled()
            assert not presettled, f"{self.address}: presettled and lost {sorted(presettled)[:10]} of {self.sent}"

    def drop(self) -> None:
        """Drop both connections."""
        self.sender.peer.drop()
        self.receiver.peer.drop()


def _port(link: PeerLink) -> int:
    return int(link.peer.socket.getsockname()[1])


@pytest.fixture
def running() -> Iterator[list[LoadedPair]]:
    """Yield a list of flows that are stopped when the test ends."""
    flows: list[LoadedPair] = []
    yield flows
    for flow in flows:
        flow.stopping.set()
    for flow in flows:
        flow.join()
        flow.drop()


def start_flows(router: RouterProcess, running: list[LoadedPair]) -> list[LoadedPair]:
    """Start PAIRS flows, a quarter of them multicast."""
    flows = [LoadedPair(router.port, number, number % 4 == 3) for number in range(PAIRS)]
    running.extend(flows)
    for flow in flows:
        flow.start()
    return flows


def stop_flows(flows: list[LoadedPair], killed: list[LoadedPair]) -> None:
    """Stop the flows, wait for outcomes, check, and disconnect. killed: flows that may have lost a connection."""
    for flow in flows:
        flow.stopping.set()
    for flow in flows:
        flow.join()
    for flow in flows:
        flow.finish(SETTLED_WITHIN)
    closed = [flow.address for flow in flows if flow.lost and flow not in killed]
    assert not closed, f"connections on living workers were closed: {closed}"
    for flow in flows:
        flow.check()
    for flow in flows:
        flow.drop()


def split_flows(
    router: RouterProcess, flows: list[LoadedPair], victims: list[int]
) -> tuple[list[LoadedPair], list[LoadedPair]]:
    """Return the flows that must continue, and the flows with a connection on one of the victims."""
    # Found at once: each look at the connections reads those of all tests, for a second on a busy machine.
    workers = router.workers_of({port for flow in flows if not flow.lost for port in flow.places})
    lost = [flow for flow in flows if flow.lost or {workers[port] for port in flow.places} & set(victims)]
    return [flow for flow in flows if flow not in lost], lost


def kill_workers(router: RouterProcess, victims: list[int]) -> None:
    """Kill workers, and wait until every worker slot is ready again and none has a victim's pid."""
    seen = len(router.lines)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    with Counters(router) as counters:

        def replaced() -> bool:
            slots = [counters.worker(index) for index in range(WORKERS)]
            return all(slot["state"] == WorkerState.READY and slot["pid"] not in victims for slot in slots)

        poll(replaced, "the workers are replaced and ready", REPLACED_WITHIN)
    for pid in victims:
        router.wait_log(rf"\(process {pid}\) crashed with", after=seen)


def expect_progress(flows: list[LoadedPair]) -> None:
    """Wait until each of these flows makes progress with unsettled and presettled messages."""
    before = [(len(flow.outcomes), len(flow.settled_got)) for flow in flows]

    def moved() -> bool:
        return all(
            flow.lost or (len(flow.outcomes) > was[0] and len(flow.settled_got) > was[1])
            for flow, was in zip(flows, before, strict=True)
        )

    poll(moved, "surviving pairs go on", SETTLED_WITHIN)
    closed = [flow.address for flow in flows if flow.lost]
    assert not closed, f"connections on living workers were closed: {closed}"


def check_workers_serve(router: RouterProcess) -> None:
    """Check that new connections reach every worker, and that messages pass between any two workers."""
    peers: dict[int, AmqpPeer] = {}
    made = []
    for _ in range(WORKERS * 6):
        peer = AmqpPeer.opened(router.port)
        made.append(peer)
        peers.setdefault(router.worker_of(int(peer.socket.getsockname()[1])), peer)
        if len(peers) == WORKERS:
            break
    assert len(peers) == WORKERS, "a worker gets no connections"
    for one in peers.values():
        for two in peers.values():
            receiver = two.receiver("balanced/afterwards", 10)
            sender = one.sender("balanced/afterwards")
            pass_one(sender, receiver)
            receiver.detach()
            sender.detach()
    for peer in made:
        peer.close()


def check_at_rest(router: RouterProcess) -> None:
    """Check that no load is left, that every delivery is accounted for, and that no process logged a fault."""
    with Counters(router) as counters:
        counters.wait_gauges("after everybody has left", connections=0, links=0)
        counters.wait_balance(dict.fromkeys(counters.totals(), 0))
        assert counters.totals()["checks_failed"] == 0
    faults = [line for line in router.lines if "(critical)" in line or "Traceback" in line]
    assert not faults, faults[:3]


def kill_random_workers(
    router: RouterProcess, flows: list[LoadedPair], count: int, choose: random.Random
) -> list[LoadedPair]:
    """Kill `count` random workers under load, and return the flows with a connection on one of them."""
    victims = choose.sample(router.worker_pids(), count)
    staying, killed = split_flows(router, flows, victims)
    kill_workers(router, victims)
    expect_progress(staying)
    return killed


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 3])
def test_workers_killed_together_spare_survivors(start: Start, running: list[LoadedPair], count: int) -> None:
    router = start([listener(), *SETTINGS], WORKERS)
    flows = start_flows(router, running)
    threading.Event().wait(LOAD)
    killed = kill_random_workers(router, flows, count, random.Random(SEED + count))
    threading.Event().wait(LOAD)
    stop_flows(flows, killed)
    check_workers_serve(router)
    check_at_rest(router)


@pytest.mark.long
def test_consecutive_kills_reuse_rings_and_slots(start: Start, running: list[LoadedPair]) -> None:
    """Five kills, each with new flows; rings and slots of killed workers are reused."""
    router = start([listener(), *SETTINGS], WORKERS)
    choose = random.Random(SEED)
    for _ in range(5):
        flows = start_flows(router, running)
        threading.Event().wait(LOAD)
        killed = kill_random_workers(router, flows, 1, choose)
        stop_flows(flows, killed)
        check_at_rest(router)
    check_workers_serve(router)
    check_at_rest(router)


class MixedTraffic(threading.Thread):
    """Deliveries of all kinds on short-lived links; only the router's counters are checked."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(name=f"mixed {number}", daemon=True)
        self.port = port
        self.choose = random.Random(SEED + number)
        self.stopping = threading.Event()
        self.rounds = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            peers: list[AmqpPeer] = []
            try:
                self._round(peers)
                self.rounds += 1
            except (StreamEnd, OSError, PeerTimeout):
                self.stopping.wait(0.01)  # the worker of a connection was killed
            for peer in peers:
                peer.drop(reset=self.choose.random() < 0.5)

    def _round(self, peers: list[AmqpPeer]) -> None:
        choose = self.choose
        receivers: list[PeerReceiver] = []
        address = f"{choose.choice(['balanced', 'closest', 'multicast'])}/m{choose.randrange(4)}"
        for _ in range(choose.randint(0, 3)):
            peers.append(AmqpPeer.opened(self.port))
            credit, mode = choose.choice([0, 3, 100]), choose.choice([1, 2])
            receivers.append(peers[-1].receiver(address, credit, snd_settle_mode=mode))
        peers.append(AmqpPeer.opened(self.port))
        sender = peers[-1].sender(choose.choice([address, None]), credit=False)
        for number in range(choose.randint(1, 40)):
            settled = choose.random() < 0.5
            if choose.random() < 0.1:
                if not sender.send_some(STREAM[:-10], WINDOW_WAIT, settled=settled, more=True):
                    break  # the window stays closed
                end = choose.choice(["whole", "aborted", "unfinished"])
                if end == "unfinished":
                    break
                if not sender.send_some(STREAM[-10:], WINDOW_WAIT, settled=settled, aborted=end == "aborted" or None):
                    break
            else:
                sender.send(message.message(number, to=address), settled=settled)
        for receiver in receivers:
            receiver.peer.read_available()
            for delivery in receiver.deliveries[: choose.randint(0, 20)]:
                if not delivery.settled and delivery.complete:
                    delivery.settle(choose.choice([ACCEPTED, RELEASED, modified(True, False)]))
        sender.peer.read_available()


@pytest.mark.long
@pytest.mark.timeout(60 + 2 * KILLS)
def test_counters_after_kills_balance(start: Start) -> None:
    """All deliveries received have ended or were dropped, whatever the kills interrupted."""
    router = start([listener(), *SETTINGS], WORKERS)
    choose = random.Random(SEED)
    load = [MixedTraffic(router.port, number) for number in range(4)]
    for thread in load:
        thread.start()
    try:
        for _ in range(KILLS):
            before = sum(thread.rounds for thread in load)
            poll(lambda before=before: sum(thread.rounds for thread in load) > before + 2, "there is traffic")  # type: ignore[misc]
            kill_workers(router, [choose.choice(router.worker_pids())])
    finally:
        for thread in load:
            thread.stopping.set()
        for thread in load:
            thread.join()
    check_at_rest(router)
    with Counters(router) as counters:
        totals = counters.totals()
    assert totals["ingress"] > 10 * KILLS
    assert totals["dropped.unfinished"], "no kill met a delivery on its way"


def test_worker_killed_during_start_is_replaced(start: Start, running: list[LoadedPair]) -> None:
    """The router recovers from kills as fast as new processes appear."""
    router = start([listener(), *SETTINGS], WORKERS)
    flows = start_flows(router, running)
    choose = random.Random(SEED)
    for _ in range(3):
        victim = choose.choice(router.worker_pids())
        os.kill(victim, signal.SIGKILL)
        poll(lambda pid=victim: pid not in router.worker_pids(), "the worker is gone", REPLACED_WITHIN)  # type: ignore[misc]
    poll(lambda: len(router.worker_pids()) == WORKERS, "all workers are back", 2 * REPLACED_WITHIN)
    stop_flows(flows, flows)
    poll(lambda: _serves(router), "connections are served")
    check_workers_serve(router)
    check_at_rest(router)


def _serves(router: RouterProcess) -> bool:
    try:
        for _ in range(WORKERS):
            AmqpPeer.opened(router.port).close()
    except (OSError, StreamEnd, PeerTimeout):
        return False
    return True


def test_worker_kill_during_streams_gives_outcomes(start: Start) -> None:
    """Streams are aborted at the consumer, and modified or released at the producer; none hangs."""
    router = start([listener(), *SETTINGS], WORKERS)
    content = message.data(bytes(600_000))
    receivers, senders = [], []
    for number in range(PAIRS):
        receivers.append(AmqpPeer.opened(router.port).receiver(f"balanced/s{number}", 10))
        senders.append(AmqpPeer.opened(router.port).sender(f"balanced/s{number}"))
    numbers = [sender.send(content[:300_000], more=True) for sender in senders]
    for receiver in receivers:
        receiver.next(complete=False)
    workers = router.workers_of({_port(each) for each in (*senders, *receivers)})
    places = [(workers[_port(s)], workers[_port(r)]) for s, r in zip(senders, receivers, strict=True)]
    victim = places[0][1]
    kill_workers(router, [victim])
    for sender, receiver, number, (source, sink) in zip(senders, receivers, numbers, places, strict=True):
        if source != victim:
            sender.send(content[300_000:])
        if source != victim and sink != victim:
            receiver.peer.until(lambda r=receiver: r.deliveries[0].complete, "the rest")  # type: ignore[misc]
            assert len(receiver.deliveries[0].payload) == len(content)
            receiver.deliveries[0].settle()
            assert sender.outcome(number).name == "accepted"
        elif source != victim:
            assert sender.outcome(number).name in ("modified", "released")
        elif sink != victim:
            receiver.peer.until(lambda r=receiver: r.deliveries[0].complete, "the end")  # type: ignore[misc]
            assert receiver.deliveries[0].aborted
    for link in (*senders, *receivers):
        link.peer.drop()
    check_at_rest(router)


def test_credit_after_kill_is_complete(start: Start) -> None:
    """A producer regains all its credit when a consumer attaches after its consumers' workers were killed."""
    router = start([listener(), *SETTINGS], WORKERS)
    receivers = [AmqpPeer.opened(router.port).receiver("balanced/credit", 20) for _ in range(2 * WORKERS)]
    sender = AmqpPeer.opened(router.port).sender("balanced/credit")
    own = router.worker_of(_port(sender))
    numbers = [sender.send(message.message(n), settled=n % 2 == 0) for n in range(200)]
    sender.peer.barrier()
    for receiver in receivers:
        receiver.peer.barrier()
    kill_workers(router, [pid for pid in router.worker_pids() if pid != own])
    for receiver in receivers:
        if router_ended(receiver):
            continue
        receiver.peer.read_available()
        receiver.flow(1000)
        receiver.peer.barrier()
        for delivery in receiver.deliveries:
            if not delivery.settled:
                delivery.settle()
    for n, number in enumerate(numbers):
        if n % 2:
            assert sender.outcome(number).name in ("accepted", "modified", "released")
    fresh = AmqpPeer.opened(router.port).receiver("balanced/credit", 1000)
    sender.wait_credit(250)
    number = sender.send(message.message("after"))
    for receiver in (*receivers, fresh):
        if not router_ended(receiver):
            receiver.peer.read_available()
            for delivery in receiver.deliveries:
                if not delivery.settled and message.body(delivery.payload) == "after":
                    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    for link in (sender, fresh, *receivers):
        link.peer.drop()
    check_at_rest(router)


def router_ended(link: PeerReceiver | PeerSender) -> bool:
    """Return whether the router has closed the link's connection."""
    try:
        link.peer.barrier()
    except (StreamEnd, OSError):
        return True
    return False


def test_killed_zygote_ends_router(start: Start) -> None:
    """The router ends with all its processes if the process that starts workers is killed."""
    router = start([listener(), *SETTINGS], WORKERS)
    zygote = next(process for process in router.family() if process.pid != router.pid and process.children())
    assert isinstance(zygote, psutil.Process)
    zygote.kill()
    assert router.wait_exit() != 0
    router.check_nothing_left()
    assert "The process that starts workers has exited" in router.log
    assert "Traceback" not in router.log
