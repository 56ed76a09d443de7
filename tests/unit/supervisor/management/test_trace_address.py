"""Operation TRACE with an address: the spans of deliveries, sent to the requester."""

import struct

import pytest

from sluice.router.control import messages
from sluice.router.control.ops import SamplingOp
from sluice.supervisor.children.worker import WorkerFaultError
from sluice.supervisor.tracing.delivery_traces import MAX_REQUESTERS, SPANS_PER_ANSWER
from tests.peer.management import ManagementReply
from tests.unit.supervisor.management.managed_router import request

LAYOUT = struct.Struct("=16s8s8s6Q4BI168s")


def ask(router, address, **limits):
    """Request the spans of an address; return the answer."""
    (answer,) = router.raw(request({"operation": "TRACE", "address": address, **limits}))
    return answer


def span(address):
    """Encode a span of a delivery, as a worker does."""
    text = address.encode()
    return LAYOUT.pack(b"t" * 16, b"s" * 8, bytes(8), 1, 0, 3, 9, 5, 6, 1, 0x24, 0, 255, len(text), text)


def report(router, *addresses, octets=b""):
    """Report spans as a worker does; return the addresses in each body that is sent to requesters."""
    router.sent.clear()
    octets = octets or b"".join(span(each) for each in addresses)
    event = messages.Spans(octets=octets, recorded=len(addresses), dropped=4, offset_ns=0)
    router.core.receive(router.workers[0], event)
    bodies = [ManagementReply.of(octets).body for _, octets, _ in router.sent]
    return [[each["address"] for each in body] for body in bodies]


def sampling(router):
    """Return the rules that a new worker gets."""
    return [op.rules for op in router.core.events.snapshot_ops() if isinstance(op, SamplingOp)]


def test_trace_of_address_sends_its_spans_up_to_limit(router):
    answer = ask(router, "orders/#", lines=2, ratio=0.5)
    assert (answer.outcome, answer.body["address"]) == ((200, "OK"), "orders/#")
    assert sampling(router) == [[("orders/#", 0.5)]]
    assert report(router, "orders/a", "invoices") == [["orders/a"]]
    assert report(router, "orders", "orders/b") == [["orders"], []]
    assert sampling(router) == []
    assert report(router, "orders/c") == []
    assert router.core.delivery_traces.counts()["dropped"] == 4


def test_spans_of_one_report_are_divided_into_answers(router):
    ask(router, "a")
    assert [len(body) for body in report(router, *["a"] * (SPANS_PER_ANSWER + 1))] == [SPANS_PER_ANSWER, 1]


def test_requests_for_addresses_have_bound(router):
    assert [ask(router, f"a{number}").status for number in range(MAX_REQUESTERS + 1)] == [200] * MAX_REQUESTERS + [500]


@pytest.mark.parametrize("address", ["", "/", 7, "/".join("a" * 101)])
def test_trace_of_invalid_address_is_refused(router, address):
    answer = ask(router, address)
    assert (answer.status, answer.description.startswith("'address'")) == (400, True)
    assert sampling(router) == []


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"seconds": 0}, "'seconds' must be a number above 0, at most 3600"),
        ({"seconds": 3601}, "'seconds' must be a number above 0, at most 3600"),
        ({"ratio": 1.1}, "'ratio' must be a number above 0, at most 1"),
        ({"lines": 0}, "'lines' must be above 0"),
    ],
)
def test_trace_of_address_with_invalid_limit_is_refused(router, limits, text):
    assert ask(router, "a", **limits).outcome == (400, text)


def test_octets_of_worker_that_are_no_spans_are_its_fault(router):
    with pytest.raises(WorkerFaultError, match="3 octets are no multiple of 256"):
        report(router, octets=b"abc")
