"""`sluice trace ADDRESS`: show the ways of sampled deliveries to an address, over all routers of the network."""

import argparse
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from sluice.router.amqp.errors import AmqpError
from sluice.router.cli.client import ManagementClient, ManagementError
from sluice.router.cli.errors import ToolError
from sluice.router.cli.options import QueryTarget, router_of, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.times import time_text

_CREDIT: Final = 100  # messages with spans in flight
_QUIET_SECONDS: Final = 1.0  # time without a further span after which a trace is shown
_TRACES_MOST: Final = 10_000  # traces that wait to be shown; beyond it the oldest is shown
_SPANS_MOST: Final = 1000  # spans of a trace; further ones begin another one with the same trace-id
_MESSAGES_MOST: Final = 1000  # messages with spans that wait to be printed; beyond it the routers get no credit
_ROUTERS_MOST: Final = 1024  # routers that are traced at the same time, with a thread and a connection each
_MALFORMED: Final = (AmqpError, TypeError, ValueError)  # errors of answers that cannot be read
_DURATION: Final = re.compile(r"([0-9]{1,6})(s|m|h)?")
_UNITS: Final = {None: 1, "s": 1, "m": 60, "h": 3600}
_DID: Final = {"receive": "received by", "cross": "crossed", "send": "sent by"}
_NS_A_MS: Final = 1e6
_NS_A_SECOND: Final = 1e9

Span = dict[str, Any]


def duration(text: str) -> int:
    """Return the seconds of a duration such as 60s, 5m or 1h, for argparse. Raises ArgumentTypeError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration: write 60s, 5m or 1h")
    return int(found[1]) * _UNITS[found[2]]


class _RouterStream(threading.Thread):
    """Stream of the spans of one router, which it puts into a queue: spans, an error, or None at the end.

    A router that cannot trace ends its own stream only.
    """

    def __init__(self, where: QueryTarget, properties: Span, found: "queue.Queue[Any]") -> None:
        super().__init__(daemon=True)
        self._where = where
        self._properties = properties
        self._found = found

    def run(self) -> None:
        try:
            with ManagementClient(self._where) as client:
                for spans in client.stream("TRACE", self._properties, _CREDIT):
                    self._found.put(spans)
        except (ToolError, ManagementError, OSError, *_MALFORMED) as error:
            self._found.put((self._where.address, error))
        finally:
            self._found.put(None)


class _Traces:
    """Traces that may get further spans. Owner: the command."""

    def __init__(self) -> None:
        self._spans: dict[str, list[Span]] = {}  # by trace, in the order of the last span
        self._last: dict[str, float] = {}  # time of the last span
        self._long: list[list[Span]] = []  # traces that get no further spans

    def add(self, span: Span) -> None:
        trace = span["trace_id"]
        spans = self._spans.setdefault(trace, [])
        spans.append(span)
        self._last.pop(trace, None)
        self._last[trace] = time.monotonic()
        if len(spans) >= _SPANS_MOST:
            del self._last[trace]
            self._long.append(self._spans.pop(trace))

    def take_quiet(self, *, everything: bool) -> Iterator[list[Span]]:
        """Remove and yield the traces without a recent span and those with `_SPANS_MOST` spans, or all."""
        while self._long:
            yield self._long.pop()
        now = time.monotonic()
        while self._last:
            trace, last = next(iter(self._last.items()))
            if not everything and now - last < _QUIET_SECONDS and len(self._last) <= _TRACES_MOST:
                return
            del self._last[trace]
            yield self._spans.pop(trace)


def run(options: argparse.Namespace) -> int:
    """Show the traces of an address; return the exit code."""
    properties: Span = {"address": options.what, "seconds": options.seconds, "ratio": options.ratio}
    if options.count > 0:
        properties["lines"] = options.count
    found: queue.Queue[Any] = queue.Queue(_MESSAGES_MOST)
    places = _places(target(options), alone=options.alone)
    for place in places:
        _RouterStream(place, properties, found).start()
    left = len(places)
    traces = _Traces()
    printed = 0
    try:
        while left:
            for trace in traces.take_quiet(everything=False):
                _show(trace)
            try:
                item = found.get(timeout=_QUIET_SECONDS / 2)
            except queue.Empty:
                continue
            if item is None:
                left -= 1
            elif isinstance(item, tuple):
                _report(*item, first=item[0] == places[0].address)
            else:
                for span in item:
                    if options.json:
                        print(to_json(span), flush=True)
                    else:
                        traces.add(span)
                    printed += 1
                if printed >= options.count > 0:
                    break
    except KeyboardInterrupt:
        print()
    for trace in traces.take_quiet(everything=True):
        _show(trace)
    return 0


def _places(first: QueryTarget, *, alone: bool) -> list[QueryTarget]:
    """Return the management agents to ask: that of `first`, then those of the other routers of its network."""
    if alone:
        return [first]
    with ManagementClient(first) as client:
        nodes = client.node_call("GET-MGMT-NODES", {})
    # The first node is the router itself.
    addresses = [node.removeprefix("amqp:/") for node in nodes[1:] if router_of(node.removeprefix("amqp:/"))]
    if len(addresses) >= _ROUTERS_MOST:
        raise ToolError(f"the network has {len(addresses)} other routers; name one with -r, and trace it with --alone")
    return [first, *(replace(first, address=address) for address in addresses)]


def _report(address: str, error: Exception, *, first: bool) -> None:
    """Report a router that cannot trace. Raises its error if it is the one that the tool is connected to."""
    if first:
        raise error
    print(f"Router {one_line(router_of(address) or address)} shows nothing: {one_line(str(error))}", file=sys.stderr)


def _show(spans: list[Span]) -> None:
    """Print one trace: a line about all of it, and one for each span, in order of time."""
    order = list(_DID)
    # A router of another version may report another kind.
    spans = sorted(spans, key=lambda span: (span["began"], order.index(span["kind"]) if span["kind"] in order else 0))
    first, began = spans[0], spans[0]["began"]
    took = (max(span["ended"] for span in spans) - began) / _NS_A_MS
    head = f"{time_text(began / _NS_A_SECOND)} {first['address'] or '-'}: {took:.3f} ms, {first['outcome']}, "
    print(one_line(f"{head}{first['octets']} octets, trace {first['trace_id']}"))
    for span in spans:
        print(one_line(f"  {_line(span, began)}"), flush=True)


def _line(span: Span, began: int) -> str:
    at = (span["began"] - began) / _NS_A_MS
    link = "" if span["kind"] == "cross" else f"[L{span['link']}]"
    where = f"[C{span['connection']}]{link} worker {span['worker']}"
    if span["from_worker"] is not None:
        where += f", from worker {span['from_worker']}"
    if span["kind"] == "send" and span["sent"] is not None and span["queued"]:
        where += f", waited {(span['sent'] - span['began']) / _NS_A_MS:.3f} ms"
    took = (span["ended"] - span["began"]) / _NS_A_MS
    did = _DID.get(span["kind"], str(span["kind"]))
    text = f"{at:9.3f} ms  {did:<11} {span['router']} {where}: "
    return f"{text}{took:.3f} ms" if span["kind"] == "cross" else f"{text}{span['outcome']} after {took:.3f} ms"
