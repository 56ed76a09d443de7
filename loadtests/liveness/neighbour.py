"""Neighbour in the style of Dispatch 1.19: one session for all its streams, unlimited windows.

`tests.peer.router19` is the router, in a thread of its own. The producers and consumers here belong to it, and are
drawn like others. They control only sending and the time of settlement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.liveness import frames
from loadtests.liveness.consumer import ConsumerRole
from loadtests.liveness.draw import ConsumerSpec, ProducerSpec
from loadtests.liveness.ledger import LedgerMessage, encoded
from loadtests.liveness.links import Role
from loadtests.liveness.producer import ProducerRole
from tests.peer import frames as peer_frames
from tests.peer.router19.engine import Router19Timers
from tests.peer.router19.loop import Router19Loop as World19
from tests.peer.router19.router import Arrival, Injection, Router19
from tests.peer.router19.router import Router19Consumer as Consumer19

if TYPE_CHECKING:
    from loadtests.liveness.round import LivenessRound

NAME = "N19"
#: Seconds between announcements of addresses; 1 in Dispatch 1.19.
TICK = 0.05
#: Unsettled messages of one producer.
WINDOW = 50
#: Smaller messages are handed over whole, so that they keep their order.
WHOLE = 12_000
STATES = {
    "accepted": peer_frames.ACCEPTED,
    "released": peer_frames.RELEASED,
    "rejected": peer_frames.REJECTED,
    "modified": peer_frames.modified(False, False),
}


class NeighbourRouter19:
    """Router and its thread, used for many rounds."""

    def __init__(self, port: int, router_id: str) -> None:
        self.world = World19()
        distributions = {name: name for name in ("balanced", "closest", "multicast")}
        self.router = Router19(self.world, NAME, Router19Timers(tick=TICK), addresses=distributions)
        self.router.connect(port)
        self.router.wait_neighbour(router_id)
        self.router.wait_reach(router_id)

    def close(self) -> None:
        """Stop the router."""
        self.router.stop()
        self.world.close()


class NeighbourProducer:
    """Stand-in for the link of a producer at the neighbour."""

    def __init__(self, role: ProducerRole) -> None:
        self.role = role
        self.up = True
        self.clean = False
        self.under_way: list[tuple[LedgerMessage, Injection]] = []
        #: message in parts: its injection, octets, and the number handed over
        self.part: tuple[LedgerMessage, Injection, bytes, int] | None = None

    def __str__(self) -> str:
        return f"{self.role.name} of {self.role.address} behind the neighbour"


class NeighbourConsumer:
    """Stand-in for the link of a consumer at the neighbour."""

    def __init__(self, role: ConsumerRole, consumer: Consumer19) -> None:
        self.role = role
        self.consumer = consumer
        self.up = True
        self.seen = 0
        self.order: dict[tuple[int, int], int] = {}
        self.waiting: list[tuple[float, Arrival, str]] = []

    def __str__(self) -> str:
        return f"{self.role.name} of {self.role.address} behind the neighbour"


class NeighbourClients:
    """Clients of the neighbour in a round."""

    def __init__(self, round_: LivenessRound, neighbour: NeighbourRouter19, roles: list[Role]) -> None:
        self.round = round_
        self.neighbour = neighbour
        self.router = neighbour.router
        self.outs = [NeighbourProducer(role) for role in roles if isinstance(role, ProducerRole)]
        self.ins: list[NeighbourConsumer] = []
        for role in roles:
            role.behind = True
            if isinstance(role, ConsumerRole):
                credit = None if role.spec.credit[0] != "none" else 0
                self.ins.append(NeighbourConsumer(role, self.router.consumer(role.address.text, credit, accept=False)))

    @property
    def connected(self) -> bool:
        """True while the neighbour is connected to the router."""
        return bool(self.router.connections)

    def known(self) -> bool:
        """Return True if every address of a producer has a consumer."""
        with self.neighbour.world.lock:
            for out in self.outs:
                found = self.router.forward.table.get(f"M0{out.role.address.text}")
                if found is None or not (found.consumers or self.router.forward.remotes(found.key)):
                    return False
        return True

    # --- periodic work ------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Send, receive and settle what is possible now."""
        if self.neighbour.world.errors:
            raise self.neighbour.world.errors[0]
        for out in self.outs:
            self._send(out)
            self._outcomes(out)
        for end in self.ins:
            self._take(end)

    def _send(self, out: NeighbourProducer) -> None:
        role = out.role
        if out.part is not None:
            self._extend(out)
        elif role.left and len(out.under_way) < WINDOW:
            spec: ProducerSpec = role.spec
            number = role.next
            role.next += 1
            one = spec.messages[min(number, len(spec.messages) - 1)]
            message = LedgerMessage(spec.uid, number, one.size, one.settled, role.address, out)
            self.round.ledger.messages[spec.uid, number] = message
            octets = encoded(spec.uid, number, one.size, None)
            first = len(octets) if len(octets) < WHOLE else role.rng.randint(100, 10_000)
            injection = self.router.send(role.address.text, octets[:first], one.settled, first == len(octets))
            out.under_way.append((message, injection))
            if first < len(octets):
                out.part = message, injection, octets, first
            else:
                message.sent = True

    def _extend(self, out: NeighbourProducer) -> None:
        assert out.part is not None
        message, injection, octets, at = out.part
        spec = out.role.spec.messages[min(message.number, len(out.role.spec.messages) - 1)]
        if spec.pause_at is not None and at >= spec.pause_at and spec.pause > 1e6:
            return
        if spec.abort_at is not None and at >= spec.abort_at:
            injection.abort()
            message.aborted = True
            out.part = None
            out.under_way.remove((message, injection))
            return
        to = min(len(octets), at + out.role.rng.randint(1, 40_000))
        message.sent = to == len(octets)
        injection.extend(octets[at:to], message.sent)
        out.part = None if message.sent else (message, injection, octets, to)
        self.round.progress(out.role)

    def _outcomes(self, out: NeighbourProducer) -> None:
        left = []
        for message, injection in out.under_way:
            with self.neighbour.world.lock:
                done, state = injection.settled, injection.state
            if done:
                message.outcome, message.done = frames.state_name(state), True
                self.round.progress(out.role)
            elif message.settled and message.sent:
                continue
            else:
                left.append((message, injection))
        out.under_way = left

    def _take(self, end: NeighbourConsumer) -> None:
        role, consumer = end.role, end.consumer
        spec: ConsumerSpec = role.spec
        while True:
            with self.neighbour.world.lock:
                if len(consumer.arrivals) <= end.seen or not consumer.arrivals[end.seen].complete:
                    break
                arrival = consumer.arrivals[end.seen]
                end.seen += 1
                payload, settled, aborted = arrival.payload, arrival.presettled, arrival.out.aborted
                arrival.payload = b""
            if aborted:
                continue
            self.round.progress(role)
            message, wrong = self.round.ledger.identify(payload)
            if message is None:
                self.round.fault(f"{end}: {wrong}")
                continue
            self.round.arrived(message, end)
            if settled or spec.settle[0] == "never":
                continue
            odd = role.rng.random() < spec.odd
            outcome = role.rng.choice(("released", "rejected")) if odd else "accepted"
            message.reported.append(outcome)
            late = 0.0 if self.round.calm or spec.settle[0] == "now" else spec.settle[1]
            end.waiting.append((self.round.loop.now + late, arrival, outcome))
        due = [one for one in end.waiting if one[0] <= self.round.loop.now or self.round.calm]
        end.waiting = [one for one in end.waiting if one not in due]
        for _when, arrival, outcome in due:
            arrival.settle(STATES[outcome])

    def standing(self) -> list[str]:
        """Describe the unfinished work."""
        found = []
        for out in self.outs:
            if out.role.grudge:
                continue
            if out.part is not None:
                message, _injection, octets, at = out.part
                found.append(f"{out} has handed over {at} of {len(octets)} octets of {message}")
            elif out.role.left:
                found.append(f"{out} has {out.role.left} messages to send")
            if out.under_way:
                found.append(f"{out}: no outcome of {len(out.under_way)}, the first is {out.under_way[0][0]}")
        for end in self.ins:
            with self.neighbour.world.lock:
                parts = len(end.consumer.arrivals) - end.seen
            if parts and not end.role.grudge:
                found.append(f"{end} has {parts} that are not complete")
        return found

    def leave(self) -> None:
        """Abort unfinished messages and detach the consumers."""
        for out in self.outs:
            if out.part is not None:
                out.part[1].abort()
        for end in self.ins:
            end.consumer.close()
