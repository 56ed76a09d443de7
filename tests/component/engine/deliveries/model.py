"""Exact model of the reports about a delivery (routing-semantics.md 9, brokers-and-edge.md LR-24).

Each end of a delivery reports states and settles. The other end must receive the reports in order. It may miss
unsettled states that a later report follows, but never the last report, and it receives at most one settlement.
"""

from dataclasses import dataclass, field
from typing import Final

from tests.component.engine.deliveries.states import ACCEPTED, LOST, RELEASED, is_outcome

#: (state or None, settled).
Report = tuple[bytes | None, bool]
#: Outcomes for messages that a lost consumer had not fully received: queued ones are released, written ones modified.
LOSSES: Final = frozenset((RELEASED, LOST))


@dataclass(eq=False)
class Reports:
    """Reports from one end of a delivery to the other."""

    reports: list[Report] = field(default_factory=list)
    at: int = -1  # index of the last report received
    settled: bool = False  # the settlement was received
    not_required: bool = False  # the receiving end is gone or has settled: further reports are not required
    carried: bytes | None = None  # state in the transfer

    @property
    def state(self) -> bytes | None:
        return next((state for state, _settled in reversed(self.reports) if state is not None), None)

    def receive(self, report: Report, where: str) -> None:
        assert not self.settled, f"{where}: {shown(report)} behind the settlement"
        found = next((at for at in range(self.at + 1, len(self.reports)) if self.reports[at] == report), None)
        assert found is not None, f"{where}: received {shown(report)}, expected one of {self.expected()}"
        self.at = found
        self.settled = report[1]

    def expected(self) -> str:
        return ", ".join(shown(report) for report in self.reports[self.at + 1 :]) or "nothing"

    def check_complete(self, where: str) -> None:
        """Raise AssertionError unless the last report was received or tells the end nothing new."""
        last = len(self.reports) - 1
        if self.not_required or self.settled or self.at == last:
            return
        before = self.reports[self.at] if self.at >= 0 else (self.carried, False)
        known = before == self.reports[last] and not self.reports[last][1]
        assert known, f"{where}: nothing received of {self.expected()}"


@dataclass(eq=False)
class DeliveryModel:
    """Message from a producer to at most one consumer."""

    number: int
    routed: bool  # over a link route: states pass unchanged
    presettled: bool
    first_states: list[bytes | None]  # states that its first transfer may carry
    settled_by_router: bool = False  # its producer's link has rcv-settle-mode first
    router_settles: bool = False  # as settled_by_router, and the consumer has given an outcome without settling
    to_producer: Reports = field(default_factory=Reports)
    to_consumer: Reports = field(default_factory=Reports)
    begun: bool = False  # its first frame has reached a consumer
    received: bool = False  # all of it has reached a consumer
    may_end: frozenset[bytes] = frozenset()  # outcomes allowed because a consumer was lost
    over: bool = False  # settled by one end, or by the router
    producer_lost: bool = False
    consumer_lost: bool = False
    excluded: bool = False  # excluded from the model: an end of its routed link has gone

    @property
    def where(self) -> str:
        return f"delivery {self.number}"

    def report_from_consumer(self, state: bytes | None, settled: bool) -> None:
        if self.router_settles and not self.consumer_lost:
            self.repeat_outcome(state, settled)
        if self.over or self.consumer_lost or (state is None and not settled):
            return
        said = self.to_producer
        kept = state
        if state is None and not self.routed:
            kept = said.state
        if self.routed or not said.reports or said.reports[-1] != (kept, settled):
            said.reports.append((kept, settled))
        if settled:
            self.over = True
            self.to_consumer.not_required = True
        elif self.awaits_settlement(state) and (self.settled_by_router or self.producer_lost):
            self.over = self.router_settles = True
            said.reports.append((state, True))
            # The consumer's own router omits states that are longer than accepted and released. Another router returns
            # them.
            self.to_consumer.reports += [(None, True), (state, True)]

    def awaits_settlement(self, state: bytes | None) -> bool:
        """Return True if a consumer that has given this state waits for the settlement."""
        return is_outcome(state) and not self.routed and not self.presettled

    def repeat_outcome(self, state: bytes | None, settled: bool) -> None:
        """Record a further report after the consumer's outcome. Between routers it may replace the first one."""
        kept = self.to_producer.state if state is None else state
        ends = settled or is_outcome(state)
        self.to_producer.reports.append((kept, ends))
        self.to_consumer.reports += [(None, True), (kept, ends)]
        self.to_consumer.not_required = True

    def report_from_producer(self, state: bytes | None, settled: bool) -> None:
        if self.over or self.producer_lost or (state is None and not settled):
            return
        kept = state
        if state is None and not self.routed:
            kept = self.to_producer.state
        self.to_consumer.reports.append((kept, settled))
        if settled:
            self.over = True
            self.to_producer.not_required = True
        if self.first_states[-1] != state and state is not None:
            self.first_states.append(state)

    def begin(self, state: bytes | None) -> None:
        """Record that the message's first frame has arrived with this state."""
        assert not self.begun, f"{self.where} has come twice"
        self.begun = True
        known = state in self.first_states or self.excluded
        assert known, f"{self.where}: {shown((state, False))} in its transfer, sent {self.first_states}"
        if state is not None:
            # The transfer reports the producer's latest state, and no settlement. If the same state was reported
            # twice, the transfer may carry either report: assume the later one.
            reports = self.to_consumer
            reports.carried = state
            if state != self.first_states[0]:
                reports.at = max((at for at, one in enumerate(reports.reports) if one == (state, False)), default=-1)

    def receive_after_detach(self) -> None:
        """Record that the message's first frame has arrived on a link that the consumer has detached."""
        assert not self.begun, f"{self.where} has come twice"
        self.begun = self.consumer_lost = self.to_consumer.not_required = True

    def receive_last_frame(self, settled: bool) -> None:
        """Record that all of the message has arrived. settled: the settled flag of its transfers."""
        self.received = True
        if self.presettled:
            assert settled, f"{self.where} was settled"
        elif settled and not self.excluded:
            reports = self.to_consumer
            # The last frame of a routed link may repeat a settlement that a disposition has reported with a state.
            assert self.over, f"{self.where} is settled in its transfer, its producer has not settled"
            assert self.routed or not reports.settled, f"{self.where} is settled again in its transfer"
            reports.at = len(reports.reports) - 1
            reports.settled = True

    def report_to_producer(self, report: Report, where: str) -> None:
        state, settled = report
        reports = self.to_producer
        if settled and state in self.may_end and not reports.settled:
            self.over = True
            if report not in reports.reports[reports.at + 1 :]:
                reports.reports.append(report)
        reports.receive(report, where)

    def lose_consumer(self) -> None:
        """Record the loss of a consumer that has received all or part of the message."""
        if not self.received:
            self.may_end = LOSSES
        if not self.over:
            self.to_producer.reports.append((LOST, True))
            self.over = True
        self.consumer_lost = True
        self.to_consumer.not_required = True

    def lose_producer(self) -> None:
        self.producer_lost = True
        self.to_producer.not_required = True
        if not self.over and self.awaits_settlement(self.to_producer.state):
            self.over = True
            self.to_consumer.reports.append((LOST, True))


def shown(report: Report) -> str:
    state, settled = report
    name = "no state" if state is None else "accepted" if state == ACCEPTED else state.hex()
    return f"{name}{', settled' if settled else ''}"
