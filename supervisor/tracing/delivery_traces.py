"""Rules of sampled deliveries, and the requesters of their spans (operation TRACE with an address).

The rules of the configuration and those of requesters are joined: an address is sampled at the higher ratio of both.
Workers get the joined rules in one op, whenever these change.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sluice.router.addressing.pattern import PatternTree
from sluice.router.config.entities import TracingConfig
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Spans
from sluice.router.control.ops import Op, SamplingOp
from sluice.router.tracing.spans import DeliverySpan, SpanError, read_spans
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import NEVER, Subsystem

MAX_REQUESTERS: Final = 8  # at a time, because each may have all deliveries of its addresses sampled
SPANS_PER_SECOND: Final = 1000  # bound of a worker without a tracing section
SPANS_PER_ANSWER: Final = 50  # some 20 KiB

# Callback for spans; called with an empty list at the end. Returns False if the requester is gone.
OnSpans = Callable[[list[DeliverySpan]], bool]
OnExport = Callable[[list[DeliverySpan]], None]


class RequestersFullError(Exception):
    """Raised when there are MAX_REQUESTERS requesters already."""


class _Requester:
    """Requester of the spans of some addresses. Owner: the delivery traces."""

    __slots__ = ("deadline", "left", "on_spans", "pattern", "ratio", "tree")

    def __init__(self, pattern: str, ratio: float, seconds: float, spans: int | None, on_spans: OnSpans) -> None:
        """Raises PatternError."""
        self.pattern, self.ratio, self.on_spans = pattern, ratio, on_spans
        self.tree: PatternTree[bool] = PatternTree()
        self.tree.insert(pattern, True)
        self.deadline = time.monotonic() + seconds
        self.left = spans  # number of spans still to be passed on; None: no limit

    def pass_on(self, spans: list[DeliverySpan]) -> bool:
        """Pass on the spans of its addresses. Returns False if the request has ended."""
        found = [span for span in spans if self.tree.match(span.address)]
        if self.left is not None:
            found = found[: self.left]
            self.left -= len(found)
        if not all(self.on_spans(found[at : at + SPANS_PER_ANSWER]) for at in range(0, len(found), SPANS_PER_ANSWER)):
            return False
        if self.left == 0:
            self.on_spans([])
            return False
        return True


class DeliveryTraces(Subsystem):
    """Rules of sampled deliveries, and the way of their spans. Owner: the core."""

    def __init__(self, journal: Journal, waker: Waker) -> None:
        self._journal: Final = journal
        self._waker: Final = waker
        self._op = SamplingOp([], SPANS_PER_SECOND, False)
        self._config: TracingConfig | None = None
        self._export: OnExport | None = None
        self._requesters: list[_Requester] = []
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}  # recorded, dropped; by worker and generation
        self._gone = [0, 0]  # of workers that have exited
        self._exported = 0, 0  # exported, unexported

    def counts(self) -> dict[str, int]:
        """Return the numbers of spans since the start of the router, by result.

        `recorded` and `dropped` are those of workers, `exported` and `unexported` those of the export.
        """
        recorded = self._gone[0] + sum(recorded for recorded, _ in self._counts.values())
        dropped = self._gone[1] + sum(dropped for _, dropped in self._counts.values())
        exported, unexported = self._exported
        return {"recorded": recorded, "dropped": dropped, "exported": exported, "unexported": unexported}

    def note_export(self, exported: int, unexported: int) -> None:
        """Keep the numbers of spans that the collector has and has not got since the start of the router."""
        self._exported = exported, unexported

    # Rules

    def snapshot_ops(self) -> Iterable[Op]:
        return (self._op,) if self._op.rules else ()

    def configure(self, config: TracingConfig | None, export: OnExport | None) -> None:
        """Use the rules of a tracing section, and pass all spans to `export`. None: there is no section."""
        self._config, self._export = config, export
        self._announce()

    def _announce(self) -> None:
        """Send the joined rules to the workers, if they have changed."""
        config = self._config
        bound = SPANS_PER_SECOND if config is None else config.spans_per_second
        op = SamplingOp(list(self._rules()), bound, config is not None and config.parent_based)
        if op != self._op:
            self._op = op
            self._journal.append(op)
            self._waker.wake()

    def _rules(self) -> Iterator[tuple[str, float]]:
        rules: dict[str, float] = {}
        if self._config is not None and (self._config.ratio > 0 or self._config.parent_based):
            rules = dict.fromkeys(self._config.addresses, self._config.ratio)
        for requester in self._requesters:
            # A pattern of the section that is narrower than the requester's decides alone about its addresses.
            for pattern in [requester.pattern, *(each for each in rules if requester.tree.match(each))]:
                rules[pattern] = max(rules.get(pattern, 0.0), requester.ratio)
        yield from rules.items()

    # Requesters

    def add(self, pattern: str, ratio: float, seconds: float, spans: int | None, on_spans: OnSpans) -> None:
        """Pass the spans of addresses that match a pattern to `on_spans`, for `seconds` or up to `spans`.

        ratio: of the deliveries to sample. Raises RequestersFullError, and PatternError.
        """
        if len(self._requesters) >= MAX_REQUESTERS:
            raise RequestersFullError
        self._requesters.append(_Requester(pattern, ratio, seconds, spans, on_spans))
        self._announce()

    @property
    def deadline(self) -> float:
        if not self._requesters:
            return NEVER
        return min(each.deadline for each in self._requesters)

    def expire(self) -> None:
        now = time.monotonic()
        over = [each for each in self._requesters if each.deadline <= now]
        if over:
            self._requesters = [each for each in self._requesters if each.deadline > now]
            for each in over:
                each.on_spans([])
            self._announce()

    # Spans

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Spans, self._spans)

    def _spans(self, worker: WorkerProcess, message: Spans) -> None:
        try:
            spans = read_spans(message.octets, worker.index, message.offset_ns)
        except SpanError as error:
            raise WorkerFaultError(f"spans: {error}") from error
        self._counts[worker.index, worker.generation] = message.recorded, message.dropped
        if self._export is not None:
            self._export(spans)
        staying = [each for each in self._requesters if each.pass_on(spans)]
        if len(staying) < len(self._requesters):
            self._requesters = staying
            self._announce()

    def worker_lost(self, worker: WorkerProcess) -> None:
        recorded, dropped = self._counts.pop((worker.index, worker.generation), (0, 0))
        self._gone[0] += recorded
        self._gone[1] += dropped
