"""Sampling of deliveries in this worker: the producers' links that sample, and the way of spans to the supervisor.

The supervisor sends the rules as an op (`SamplingOp`). Without rules no link samples, and a delivery costs nothing.
router/tracing records the spans; they are sent to the supervisor while there are any, every SEND_MS.
"""

import time
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from sluice.router.addressing.address import MOBILE, classify, normalise
from sluice.router.addressing.pattern import PatternTree
from sluice.router.control import messages as control
from sluice.router.control.ops import SamplingOp
from sluice.router.links.control_link import ControlIn
from sluice.router.links.producer_link import ProducerLink
from sluice.router.tracing.tracer import SpanFacts, drain, end_overdue, span_counts, use_tracer

if TYPE_CHECKING:
    from sluice.workers.links.record import LinkRecord
    from sluice.workers.links.routed import RoutedEnd
    from sluice.workers.worker import WorkerRuntime

SEND_MS: Final = 200  # between two messages with spans
OVERDUE_NS: Final = 30 * 10**9  # age at which a span is sent although its delivery is not settled
SPANS_PER_MESSAGE: Final = 256  # 64 KiB
ALWAYS: Final = 0xFFFFFFFF  # ProducerLink.sampling of a link that samples each delivery
# Observation, producer_link.pxd.
LOG_MESSAGES: Final = 1
SAMPLE_DELIVERIES: Final = 2
SAMPLE_BY_ADDRESS: Final = 4
SAMPLE_PARENTS: Final = 8


def threshold(ratio: float, parents: bool) -> int:
    """Return ProducerLink.sampling for a ratio. parents: a ratio of 0 still samples what the producer has sampled."""
    if ratio >= 1:
        return ALWAYS
    return max(int(ratio * (ALWAYS + 1)), int(parents))


class SpanTrace:
    """Sampling of deliveries in one worker. Owner: the worker's `Tracing`."""

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._rules: PatternTree[float] = PatternTree()
        self._highest = 0.0  # greatest ratio of the rules
        self._on = False
        self._parents = False
        self._armed = False  # `_send` is due

    def use(self, op: SamplingOp) -> None:
        """Apply the rules of the supervisor. The caller marks the links again."""
        self._rules = PatternTree()
        for pattern, ratio in op.rules:
            self._rules.put(pattern, ratio)
        self._highest = max((ratio for _, ratio in op.rules), default=0.0)
        self._on, self._parents = bool(op.rules), op.parents
        use_tracer(self._worker.loop.scheduler, self._arm, op.per_second, op.parents)

    def observe(self, record: "LinkRecord | RoutedEnd", logged: bool) -> bool:
        """Let a link of a producer sample its deliveries. logged: messages of the link are shown to sinks. Return True
        if deliveries of the link are observed for either reason."""
        link = record.link
        if not isinstance(link, ProducerLink) or isinstance(link, ControlIn):
            return logged
        flags = LOG_MESSAGES if logged else 0
        sampling = 0
        if self._on:
            producer = cast("LinkRecord", record)  # routed links have another type
            producer.span_facts = None  # remembers rules
            address = producer.traced_address()
            if address is None:
                flags |= SAMPLE_DELIVERIES | SAMPLE_BY_ADDRESS
                sampling = threshold(self._highest, self._parents)
            elif sampling := self._threshold_of(address):
                flags |= SAMPLE_DELIVERIES
        if flags & SAMPLE_DELIVERIES and self._parents:
            flags |= SAMPLE_PARENTS
        link.sample(flags, sampling)
        return flags != 0

    def facts(self, record: "LinkRecord", address: str | None) -> SpanFacts:
        """Return the facts that spans of a link name. address: None if its messages name their addresses."""
        client = record.client
        if address is not None:
            return SpanFacts(record.identity, client.number, address.encode())
        return SpanFacts(record.identity, client.number, None, partial(self._rule_of, client.policy.tenant))

    def _threshold_of(self, address: str) -> int:
        """Return the threshold of deliveries to an address; 0: no rule concerns it."""
        ratio = self._rules.match(address)
        return 0 if ratio is None else threshold(ratio, self._parents)

    def _rule_of(self, tenant: str | None, text: bytes) -> tuple[int, bytes]:
        """Return the threshold and the whole address of a message. text: the address as the message names it."""
        table = self._worker.table
        plain = normalise(text.decode("utf-8", "replace"))
        cls, name = classify(plain, table.router_id, table.mode)
        address = (tenant or "") + name if cls == MOBILE else plain
        return self._threshold_of(address), address.encode()

    def _arm(self) -> None:
        """Send spans soon."""
        if not self._armed:
            self._armed = True
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + SEND_MS, self._send)

    def _send(self) -> None:
        self._armed = False
        end_overdue(OVERDUE_NS)
        while True:
            octets = drain(SPANS_PER_MESSAGE)
            recorded, dropped, pending = span_counts()
            if not octets:
                break
            offset = time.time_ns() - time.monotonic_ns()
            event = control.Spans(octets=octets, recorded=recorded, dropped=dropped, offset_ns=offset)
            self._worker.control.send_event(event)
        if pending:
            self._arm()
