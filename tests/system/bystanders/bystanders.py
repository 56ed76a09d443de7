"""Connections of a router's bystanders, and the thread that serves them.

Each worker has a pair and a sender to the next worker. A tenant exchanges secret messages, across workers where there
are several. With a neighbour router there is a pair in each direction. All send at a steady rate.

`check` fails if a message was lost, duplicated, reordered, changed, not accepted or late, if a connection, session or
link was closed, or if another client received a secret.
"""

from __future__ import annotations

import secrets as randomness
import selectors
import socket
import threading
import time
import traceback

from tests.peer import secrets
from tests.peer.peer import AmqpPeer
from tests.peer.wire import PeerError, StreamEnd
from tests.system.bystanders.pair import CREDIT, BystanderPair
from tests.system.networks import CONVERGENCE
from tests.system.router import RouterProcess

#: Name of the listener for bystanders.
CLIENTS = "bystanders"
#: Prefix of the bystanders' container ids. Tests use it to leave these connections out of counts.
CONTAINER = "bystander"
#: Virtual hosts of the ordinary pairs, and of the tenant whose messages are secret.
PUBLIC, TENANT = "bystanders.example", "tenant.example"
#: Seconds between two messages of a pair.
PERIOD = 0.1
#: Permitted delay in s of a message or its outcome, in addition to TIMES the delay that the machine itself causes:
#: with a control pair that does not use the router, and without one. The watchdog kills a worker that stalls for 10 s.
LATE_BESIDE, LATE_ALONE, TIMES = 1.0, 3.0, 3
#: Surplus connections to wait for an even distribution: the router still counts some that have just ended.
TRIES = 40
#: Seconds for a check. A late message is reported earlier, by the thread.
PATIENCE = 60.0


class Bystanders:
    """Bystanders of one router, from their start to `stop`.

    Owner: after the constructor only the thread uses the connections.
    """

    def __init__(self, router: RouterProcess, neighbour: RouterProcess | None = None) -> None:
        self.router = router
        self._token = randomness.token_hex(8)
        self.secret = f"secret {randomness.token_hex(16)}".encode()
        secrets.keep(self.secret)
        self._lines = 0
        self._peers: list[AmqpPeer] = []
        self._pairs: list[BystanderPair] = []
        self._numbers = 0
        self._changed = threading.Condition()
        #: True while a check is in progress. Written under `_changed`.
        self._check_requested = False
        self._sending = True
        #: Pair that uses only the neighbour router. Its delays are those of the machine.
        self._control: BystanderPair | None = None
        self._rest_requested = False
        self._goals: dict[BystanderPair, int] | None = None
        self._fault: str | None = None
        #: Result of the last check: longest delay in s, name of its pair, permitted delay in s.
        self._slowest = 0.0, "", 0.0
        self._stopping = False
        #: Longest time in s between a write of the thread and its read of the same octet.
        self._machine_delay = 0.0
        self._sent_at = 0.0
        self._echo_out, self._echo_in = socket.socketpair()
        self._bell_out, self._bell_in = socket.socketpair()
        try:
            self._attach_pairs(neighbour)
        except BaseException:
            self._drop()
            raise
        self._thread = threading.Thread(target=self._run, name="bystanders", daemon=True)
        self._thread.start()

    # --- connections ------------------------------------------------------------------------------------------------

    def _connect(self, router: RouterProcess, hostname: str = PUBLIC) -> AmqpPeer:
        self._numbers += 1
        peer = AmqpPeer.opened(router.ports[CLIENTS], container_id=f"{CONTAINER}{self._numbers}", hostname=hostname)
        self._peers.append(peer)
        return peer

    def _connect_to_workers(self, each: int, hostname: str = PUBLIC) -> list[list[AmqpPeer]]:
        """Open connections until each worker has `each` of them, and return them by worker.

        A new connection goes to the worker with the fewest.
        """
        wanted = each * self.router.workers
        peers = [self._connect(self.router, hostname) for _ in range(wanted)]
        for _ in range(wanted + TRIES):
            owners = self.router.owners()
            by_worker: dict[int, list[AmqpPeer]] = {}
            for peer in peers:
                by_worker.setdefault(owners[peer.socket.getsockname()[1]], []).append(peer)
            if len(by_worker) == self.router.workers and all(len(found) >= each for found in by_worker.values()):
                return [found for _, found in sorted(by_worker.items())]
            peers.append(self._connect(self.router, hostname))
        counts = {worker: len(found) for worker, found in by_worker.items()}
        raise AssertionError(f"bystanders have not come to all workers, but by process id: {counts}")

    def _pair(self, name: str, sending: AmqpPeer, receiving: AmqpPeer, text: bytes) -> BystanderPair:
        address = f"{CONTAINER}/{self._token}/{name}"
        receiver = receiving.begin().receiver(address, CREDIT)
        sender = sending.begin().sender(address, credit=False)
        sender.wait_credit(timeout=CONVERGENCE)
        pair = BystanderPair(name, sender, receiver, text)
        self._pairs.append(pair)
        return pair

    def _attach_pairs(self, neighbour: RouterProcess | None) -> None:
        text = b"innocent " * 12
        places = self._connect_to_workers(2)
        for number, place in enumerate(places):
            self._pair(f"on worker {number}", place[0], place[1], text)
        if len(places) > 1:
            for number, place in enumerate(places):
                self._pair(f"from worker {number} to the next", place[0], places[(number + 1) % len(places)][1], text)
        tenants = self._connect_to_workers(1, TENANT)
        tenant_sends, tenant_receives = tenants[0][0], tenants[-1][0]
        if tenant_sends is tenant_receives:
            tenant_receives = self._connect(self.router, TENANT)
        tenant_receives.scan = None
        self._pair("tenant", tenant_sends, tenant_receives, self.secret * 4)
        if neighbour is not None:
            beyond = self._connect(neighbour)
            self._control = self._pair("on the neighbour router", beyond, self._connect(neighbour), text)
            self._pair("to the neighbour router", places[0][0], beyond, text)
            self._pair("from the neighbour router", beyond, places[-1][1], text)
        used = {link.peer for pair in self._pairs for link in (pair.sender, pair.receiver)}
        for peer in [peer for peer in self._peers if peer not in used]:
            peer.close()
            self._peers.remove(peer)

    def _drop(self) -> None:
        for peer in self._peers:
            peer.drop()
        for end in (self._echo_out, self._echo_in, self._bell_out, self._bell_in):
            end.close()
        secrets.forget(self.secret)

    # --- thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            self._fail(f"the thread of the bystanders has failed: {traceback.format_exc()}")
            raise

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        for peer in self._peers:
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        selector.register(self._echo_in, selectors.EVENT_READ)
        selector.register(self._bell_in, selectors.EVENT_READ)
        due = time.monotonic()
        while not self._stopping:
            found = [key for key, _ in selector.select(max(0.0, due - time.monotonic()))]
            for key in found:
                if isinstance(key.data, AmqpPeer) and not self._read(key.data):
                    selector.unregister(key.fileobj)
            for pair in self._pairs:
                pair.take(time.monotonic())
            if any(key.fileobj is self._bell_in for key in found):
                self._bell_in.recv(64)
            if any(key.fileobj is self._echo_in for key in found):  # last: the delay includes other work
                self._echo_in.recv(64)
                self._machine_delay = max(self._machine_delay, time.monotonic() - self._sent_at)
            asked = self._check_requested and self._goals is None
            if asked or time.monotonic() >= due:
                due = time.monotonic() + PERIOD
                if self._sending and self._fault is None:  # after a fault, new bystanders are checked
                    self._send()
            self._check_delays()
        selector.close()

    def _read(self, peer: AmqpPeer) -> bool:
        """Read the available input; return False if the connection has failed."""
        try:
            peer.read_available()
        except StreamEnd as end:
            self._fail(f"a connection has ended: {end}")
            return False
        except PeerError as error:
            self._fail(f"a connection has received octets that are no frame: {error}")
            return False
        ends = [frame for frame in peer.inbox if frame.name in ("detach", "end", "close")]
        if ends:
            self._fail(f"a link, session or connection was ended: {ends[0]}")
        for kept in (peer.inbox, peer.frames, peer.arrivals):
            kept.clear()
        return True

    def _send(self) -> None:
        for pair in self._pairs:
            try:
                pair.send(time.monotonic())
            except OSError as error:
                self._fail(f"{pair.name}: cannot send: {error!r}")
        self._sent_at = time.monotonic()
        self._echo_out.send(b"x")
        if self._check_requested and self._goals is None:
            with self._changed:
                self._goals = {pair: pair.due for pair in self._pairs}
                self._sending = not self._rest_requested

    def _permitted_delay(self, now: float) -> float:
        """Return the permitted delay in s. Delays of this thread and of the control pair count as the machine's."""
        if self._control is None:
            return LATE_ALONE + TIMES * self._machine_delay
        oldest = self._control.oldest()
        waits = now - oldest[0] if oldest else 0.0
        return LATE_BESIDE + TIMES * max(self._machine_delay, self._control.worst, waits)

    def _check_delays(self) -> None:
        """Report faults of pairs and late messages, and complete a check whose messages have been settled."""
        now = time.monotonic()
        for pair in self._pairs:
            oldest = pair.oldest()
            if pair.fault is None and oldest is not None and now - oldest[0] > self._permitted_delay(now):
                pair.report(f"{oldest[1]} after {now - oldest[0]:.1f} s")
            if pair.fault is not None:
                self._fail(pair.fault)
        if self._goals is not None and all(pair.settled_up_to(goal) for pair, goal in self._goals.items()):
            allowed = self._permitted_delay(now)
            slowest = max((pair.take_worst(), pair.name) for pair in self._pairs)
            with self._changed:
                self._slowest = *slowest, allowed
                self._machine_delay = 0.0
                self._check_requested, self._goals = False, None
                self._changed.notify_all()

    def _fail(self, fault: str) -> None:
        with self._changed:
            if self._fault is None:
                self._fault = fault
            self._changed.notify_all()

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self, rest: bool = False) -> None:
        """Send one more message of each pair, wait for all messages sent, and raise AssertionError for any fault.

        rest: send no further messages until `go_on`.
        """
        with self._changed:
            self._check_requested = self._sending = True
            self._rest_requested = rest
            self._bell_out.send(b"x")
            done = self._changed.wait_for(lambda: self._fault is not None or not self._check_requested, PATIENCE)
            fault = self._fault if done else f"the thread of the bystanders has not answered for {PATIENCE} s"
        worst, name, allowed = self._slowest
        if fault is None and worst > allowed:
            fault = f"{name}: a message or its outcome took {worst:.1f} s, of {allowed:.1f} s that it may take"
        assert fault is None, f"a bystander was disturbed: {fault}"
        lines = self.router.lines[self._lines :]
        self._lines += len(lines)
        for line in lines:
            secrets.look(line.encode(errors="replace"), f"log: {line}")
        leaks = secrets.take_leaks(self.secret)
        assert not leaks, f"a tenant's message was seen by others: {leaks}"

    def go_on(self) -> None:
        """Resume sending after a rest."""
        with self._changed:
            self._sending = True

    def stop(self) -> None:
        """Stop the thread and drop all connections."""
        self._stopping = True
        self._bell_out.send(b"x")
        self._thread.join(PATIENCE)
        self._drop()
        assert not self._thread.is_alive(), "the thread of the bystanders has not ended"
