"""Spans of sampled deliveries: of the delivery and of each copy, in one worker and across workers."""

from random import Random

import pytest

from sluice.router.amqp import codec
from sluice.router.config.load import load_text
from sluice.router.tracing.spans import DeliverySpan
from sluice.router.tracing.tracer import drain
from tests.peer.frames import ACCEPTED, REJECTED, RELEASED
from tests.peer.talk import consumer, flow, frames, message, messages, producer, sections, settle, start, transfer

SPANS = 256
CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class SpanRequester:
    """Requester of spans, as operation TRACE adds it."""

    def __init__(self, router, pattern="#", ratio=1.0, seconds=1000.0, spans=None):
        while drain(SPANS):
            pass  # spans of routers that earlier tests had in this process
        self.spans = []
        self.ended = False
        router.core.delivery_traces.add(pattern, ratio, seconds, spans, self._receive)

    def _receive(self, spans):
        self.spans += spans
        self.ended = self.ended or not spans
        return True

    def of(self, kind):
        return [span for span in self.spans if span.kind == kind]


def messages_of(peer):
    return messages(frames(peer))


def annotations(octets):
    return next((value for code, value in sections(octets) if code == 0x72), {})


def traceparent(octets):
    return next((value for name, value in annotations(octets).items() if str(name) == "traceparent"), None)


@pytest.mark.parametrize("workers", [1, 3])
def test_delivery_and_copy_have_spans_of_one_trace(routers, workers):
    router = routers(workers)
    requester = SpanRequester(router)
    consuming, sending = router.connect(), router.connect(workers - 1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    (octets,) = messages_of(consuming)
    consuming.feed(settle(0, state=ACCEPTED))
    router.settle()
    router.pass_time(1000)
    (received,), (sent,) = requester.of("receive"), requester.of("send")
    assert traceparent(octets) == f"00-{received.trace_id}-{received.span_id}-01"
    assert received.parent_id is None
    assert (sent.trace_id, sent.parent_id) == (received.trace_id, received.span_id)
    assert {received.address, sent.address} == {"balanced.a"}
    assert (received.outcome, sent.outcome) == ("accepted", "accepted")
    assert received.connection == sending.known.number
    assert sent.connection == consuming.known.number
    assert received.began <= sent.sent <= sent.ended


class TracedRouter:
    """Router with a consumer, a producer at the last worker, and a requester of spans."""

    def __init__(self, routers, workers, address="balanced.a", credit=100, target="same", **recording):
        self.router = routers(workers)
        self.requester = SpanRequester(self.router, **recording)
        self.consuming, self.sending = self.router.connect(), self.router.connect(workers - 1)
        self.consuming.feed(start() + consumer(0, address, credit))
        self.sending.feed(start() + producer(0, address if target == "same" else target))
        self.router.settle()

    def send(self, octets, **fields):
        self.sending.feed(transfer(0, 0, octets, **fields))
        self.router.settle()

    def spans(self):
        """Return the spans of deliveries and copies."""
        self.router.settle()
        self.router.pass_time(1000)
        return [span for span in self.requester.spans if span.kind != "cross"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("address", ["balanced.a", "multicast.a"])
def test_presettled_delivery_has_spans(routers, workers, address):
    sampled = TracedRouter(routers, workers, address)
    sampled.send(message(b"x"), settled=True)
    (octets,) = messages_of(sampled.consuming)
    spans = sampled.spans()
    assert sorted((span.kind, span.outcome, span.queued) for span in spans) == [
        ("receive", "presettled", False), ("send", "presettled", False)
    ]  # fmt: skip
    assert [str(name) for name in annotations(octets)] == ["traceparent"]


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("target", ["same", None])
def test_way_between_workers_has_span(routers, settled, target):
    sampled = TracedRouter(routers, 3, target=target)
    sampled.send(message(b"x", to="balanced.a"), settled=settled or None)
    sampled.consuming.feed(settle(0, state=ACCEPTED))
    spans = {span.kind: span for span in sampled.spans()}
    (crossed,) = sampled.requester.of("cross")
    assert (crossed.trace_id, crossed.parent_id) == (spans["receive"].trace_id, spans["receive"].span_id)
    assert crossed.span_id not in (spans["receive"].span_id, spans["send"].span_id)
    assert (crossed.from_worker, crossed.address) == (2, "balanced.a")
    assert (crossed.connection, crossed.outcome) == (sampled.sending.known.number, "crossed")
    assert spans["receive"].began <= crossed.began <= crossed.ended <= spans["send"].began


def test_way_between_workers_has_one_span_for_each_worker(routers):
    sampled = TracedRouter(routers, 3, "multicast.a")
    for worker in (0, 1, 1):
        sampled.router.connect(worker).feed(start() + consumer(0, "multicast.a"))
    sampled.router.settle()
    sampled.send(message(b"x"), settled=True)
    assert len(sampled.spans()) == 5
    assert [span.from_worker for span in sampled.requester.of("cross")] == [2, 2]


def test_delivery_within_worker_has_no_span_between_workers(routers):
    sampled = TracedRouter(routers, 1)
    sampled.send(message(b"x"), settled=True)
    assert len(sampled.spans()) == 2
    assert not sampled.requester.of("cross")


@pytest.mark.parametrize("workers", [1, 3])
def test_copy_without_credit_waits_in_its_span(routers, workers):
    sampled = TracedRouter(routers, workers, credit=0)
    sampled.send(message(b"x"))
    assert sampled.spans() == []
    sampled.consuming.feed(flow(0, 1))
    sampled.router.settle()
    (octets,) = messages_of(sampled.consuming)
    sampled.consuming.feed(settle(0, state=REJECTED))
    spans = {span.kind: span for span in sampled.spans()}
    assert spans["send"].queued
    assert spans["send"].sent > spans["send"].began
    assert {span.outcome for span in spans.values()} == {"rejected"}
    assert traceparent(octets) is not None


@pytest.mark.parametrize("workers", [1, 3])
def test_copies_of_multicast_delivery_have_spans_each(routers, workers):
    sampled = TracedRouter(routers, workers, "multicast.a")
    other = sampled.router.connect(workers // 2)
    other.feed(start() + consumer(0, "multicast.a"))
    sampled.router.settle()
    sampled.send(message(b"x"))
    sampled.consuming.feed(settle(0, state=ACCEPTED))
    other.feed(settle(0, state=RELEASED))
    spans = sampled.spans()
    assert sorted((span.kind, span.outcome) for span in spans) == [
        ("receive", "accepted"), ("send", "accepted"), ("send", "released")
    ]  # fmt: skip
    assert len({span.trace_id for span in spans}) == 1


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [50_000, 300_000])
def test_message_of_several_frames_has_its_context(routers, workers, size):
    sampled = TracedRouter(routers, workers)
    sampled.send(message(b"x" * size, to="kept"))
    (octets,) = messages_of(sampled.consuming)
    sampled.consuming.feed(settle(0, state=ACCEPTED))
    spans = {span.kind: span for span in sampled.spans()}
    assert traceparent(octets) == f"00-{spans['receive'].trace_id}-{spans['receive'].span_id}-01"
    assert octets.endswith(message(b"x" * size, to="kept"))
    assert spans["send"].outcome == "accepted"


def test_message_for_nobody_has_span_with_its_outcome(routers):
    sampled = TracedRouter(routers, 1, target=None)
    sampled.send(message(b"x", to="balanced.nobody"))
    (span,) = sampled.spans()
    assert (span.kind, span.address, span.outcome) == ("receive", "balanced.nobody", "released")


@pytest.mark.parametrize("workers", [1, 3])
def test_sampling_by_pattern_leaves_other_addresses_out(routers, workers):
    sampled = TracedRouter(routers, workers, target=None, pattern="balanced.a/#")
    sampled.send(message(b"x", to="balanced.b"))
    sampled.sending.feed(transfer(0, 1, message(b"y", to="balanced.a")))
    sampled.router.settle()
    sampled.consuming.feed(settle(0, state=ACCEPTED))
    assert {span.address for span in sampled.spans()} == {"balanced.a"}


@pytest.mark.parametrize("section", [0x72, 0x74])
def test_incoming_context_is_continued(routers, section):
    fields = codec.encode_map([
        codec.encode_symbol("kept"), codec.encode_string("k"),
        codec.encode_symbol("traceparent"), codec.encode_string(CONTEXT),
        codec.encode_symbol("tracestate"), codec.encode_string("a=b"),
    ])  # fmt: skip
    given = b"\x00\x53" + bytes([section]) + fields
    sampled = TracedRouter(routers, 1)
    sampled.send(given + message(b"x"))
    (octets,) = messages_of(sampled.consuming)
    sampled.consuming.feed(settle(0, state=ACCEPTED))
    spans = {span.kind: span for span in sampled.spans()}
    _, trace, parent, _ = CONTEXT.split("-")
    assert (spans["receive"].trace_id, spans["receive"].parent_id) == (trace, parent)
    assert spans["send"].trace_id == trace
    found = {str(name): value for name, value in annotations(octets).items()}
    assert found["traceparent"] == f"00-{trace}-{spans['receive'].span_id}-01"
    assert found["tracestate"] == "a=b"
    assert ("kept" in found) == (section == 0x72)
    if section == 0x74:
        assert octets.endswith(given + message(b"x"))  # the bare message is unchanged


def test_sampled_flag_of_client_is_ignored_without_parents(routers):
    fields = codec.encode_map([codec.encode_symbol("traceparent"), codec.encode_string(CONTEXT)])
    sampled = TracedRouter(routers, 1, ratio=1e-9)
    for number in range(20):
        sampled.sending.feed(transfer(0, number, b"\x00\x53\x72" + fields + message(b"x"), settled=True))
    assert sampled.spans() == []
    assert {traceparent(octets) for octets in messages_of(sampled.consuming)} == {CONTEXT}


def test_spans_beyond_the_rate_are_dropped_and_counted(routers):
    sampled = TracedRouter(routers, 1, credit=5000)
    bound = 1000
    for number in range(2 * bound):
        sampled.sending.feed(transfer(0, number, message(b"x"), settled=True))
    spans = sampled.spans()
    assert len(messages_of(sampled.consuming)) == 2 * bound
    assert bound - 1 <= len(spans) <= bound
    assert sampled.router.core.delivery_traces.counts()["dropped"] > 0


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("lost", ["consumer", "producer"])
def test_spans_end_with_lost_connection(routers, workers, lost):
    sampled = TracedRouter(routers, workers)
    sampled.send(message(b"x"))
    (sampled.consuming if lost == "consumer" else sampled.sending).lose()
    sampled.router.settle()
    if lost == "producer":
        sampled.consuming.feed(settle(0, state=ACCEPTED))
    spans = {span.kind: span for span in sampled.spans()}
    assert set(spans) == {"receive", "send"}
    assert spans["send"].outcome == ("modified" if lost == "consumer" else "accepted")


def test_sampling_ends_with_its_request(routers):
    sampled = TracedRouter(routers, 1, spans=2)
    sampled.send(message(b"x"), settled=True)
    sampled.spans()
    assert sampled.requester.ended
    messages_of(sampled.consuming)
    sampled.sending.feed(transfer(0, 1, message(b"y"), settled=True))
    sampled.router.settle()
    (octets,) = messages_of(sampled.consuming)
    assert traceparent(octets) is None
    assert not [op for op in sampled.router.core.events.snapshot_ops() if type(op).__name__ == "SamplingOp"]


def tracing(*lines):
    """Return the configuration of a tracing section with these attributes."""
    text = "".join(f"{line}\n" for line in ("tracing {", "endpoint: http://127.0.0.1:1/", *lines, "}"))
    (found,) = load_text("x.conf", "router {\nid: R\n}\n" + text).of_type("tracing")
    return found


def with_context(flags, number=0):
    context = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{number + 1:016x}-{flags}"
    fields = codec.encode_map([codec.encode_symbol("traceparent"), codec.encode_string(context)])
    return b"\x00\x53\x72" + fields + message(b"x")


@pytest.mark.parametrize("target", ["same", None])
@pytest.mark.parametrize("frames_each", [1, 2])
def test_ratio_samples_its_part_of_deliveries(routers, target, frames_each):
    sampled = TracedRouter(routers, 1, credit=10_000, target=target, ratio=0.1)
    for number in range(4000):
        octets = message(b"x", to="balanced.a")
        sampled.sending.feed(transfer(0, number, octets, len(octets) + 1 - frames_each, settled=True))
    received = [span for span in sampled.spans() if span.kind == "receive"]
    assert 250 <= len(received) <= 550  # eight standard deviations around 400


@pytest.mark.parametrize("workers", [1, 3])
def test_parent_based_sampling_follows_flag_of_sender(routers, workers):
    sampled = TracedRouter(routers, workers, pattern="nobody")
    exported: list[DeliverySpan] = []
    sampled.router.core.delivery_traces.configure(tracing("ratio: 0", "parentBased: yes"), exported.extend)
    sampled.router.settle()
    for number, flags in enumerate(("00", "01", "03")):
        sampled.sending.feed(transfer(0, number, with_context(flags, number), settled=True))
    sampled.sending.feed(transfer(0, 3, message(b"y"), settled=True))
    assert sampled.spans() == []
    parents = sorted(str(span.parent_id) for span in exported if span.kind == "receive")
    assert parents == [f"{number:016x}" for number in (2, 3)]


def test_parent_flags_of_flood_are_bounded_by_rate(routers):
    sampled = TracedRouter(routers, 1, credit=1000, pattern="nobody")
    exported: list[DeliverySpan] = []
    section = tracing("ratio: 0", "parentBased: yes", "spansPerSecond: 10")
    sampled.router.core.delivery_traces.configure(section, exported.extend)
    sampled.router.settle()
    for number in range(200):
        sampled.sending.feed(transfer(0, number, with_context("01", number), settled=True))
    sampled.spans()
    assert len(messages_of(sampled.consuming)) == 200
    assert 0 < len(exported) <= 10


class ParentSampledRouter:
    """Router that samples by parents, with a consumer at worker 0, and a flooding producer and a bystander at the last
    worker."""

    def __init__(self, routers, workers, spans_per_second, links=1):
        self.router = routers(workers)
        while drain(SPANS):
            pass  # spans of routers that earlier tests had in this process
        self.exported: list[DeliverySpan] = []
        section = tracing("ratio: 0", "parentBased: yes", f"spansPerSecond: {spans_per_second}")
        self.router.core.delivery_traces.configure(section, self.exported.extend)
        self.consuming = self.router.connect()
        self.flooding, self.bystander = (self.router.connect(workers - 1) for _ in range(2))
        self.consuming.feed(start() + consumer(0, "balanced.a", 100_000))
        self.flooding.feed(start() + b"".join(producer(handle, "balanced.a") for handle in range(links)))
        self.bystander.feed(start() + producer(0, "balanced.a"))
        self.router.settle()
        self._sent = {self.flooding: 0, self.bystander: 0}

    def send(self, peer, count, handle=0, settled=True):
        for _ in range(count):
            number = self._sent[peer]
            self._sent[peer] += 1
            peer.feed(transfer(handle, number, with_context("01", number), settled=settled or None))
        self.router.settle()

    def traced(self, peer):
        """Return the spans of deliveries of this peer, and those of their copies."""
        self.router.pass_time(1000)
        received = [
            span for span in self.exported if span.kind == "receive" and span.connection == peer.known.number
        ]  # fmt: skip
        ids = {span.span_id for span in received}
        return received, [span for span in self.exported if span.kind == "send" and span.parent_id in ids]


@pytest.mark.parametrize("workers", [1, 3])
def test_flood_of_sampled_flags_leaves_spans_to_bystander(routers, workers):
    sampled = ParentSampledRouter(routers, workers, 40)
    sampled.send(sampled.flooding, 200)
    sampled.send(sampled.bystander, 1)  # wants a span in a second that the flood has used up
    sampled.router.pass_time(1000)
    sampled.exported.clear()
    sampled.send(sampled.flooding, 40)
    sampled.send(sampled.bystander, 3)
    received, sent = sampled.traced(sampled.bystander)
    assert (len(received), len(sent)) == (3, 3)
    flooded, _ = sampled.traced(sampled.flooding)
    assert 0 < len(flooded) <= 30
    assert sampled.router.core.delivery_traces.counts()["dropped"] > 200
    assert len(messages_of(sampled.consuming)) == 244


@pytest.mark.parametrize("workers", [1, 3])
def test_unsettled_flood_leaves_pending_spans_to_bystander(routers, workers):
    sampled = ParentSampledRouter(routers, workers, 10_000, links=8)
    for handle in range(8):
        sampled.send(sampled.flooding, 150, handle, settled=False)
    sampled.send(sampled.bystander, 3)
    received, sent = sampled.traced(sampled.bystander)
    assert (len(received), len(sent)) == (3, 3)
    assert sampled.router.core.delivery_traces.counts()["dropped"] > 0


def test_requester_sees_addresses_that_section_samples_rarely(routers):
    sampled = TracedRouter(routers, 1, pattern="balanced/#")
    sampled.router.core.delivery_traces.configure(tracing("ratio: 0.000001", "addresses: balanced.a"), lambda _: None)
    sampled.router.settle()
    sampled.send(message(b"x"), settled=True)
    assert len(sampled.spans()) == 2


def test_mutated_sections_of_sampled_messages_do_no_harm(routers):
    sampled = TracedRouter(routers, 1, credit=5000)
    random = Random(39)
    given = with_context("01") + message(b"body", to="balanced.a")
    for number in range(1500):
        octets = bytearray(given)
        for _ in range(random.randint(1, 3)):
            octets[random.randrange(len(octets))] = random.randrange(256)
        cut = len(octets) if random.random() < 0.7 else random.randrange(1, len(octets))
        sampled.sending.feed(transfer(0, number, bytes(octets[:cut]), settled=True))
    sampled.router.settle()  # raises the faults of the workers
    sampled.sending.feed(transfer(0, 1500, given, settled=True))
    sampled.router.settle()
    last = messages_of(sampled.consuming)[-1]
    assert last.endswith(message(b"body", to="balanced.a"))


@pytest.mark.parametrize("workers", [1, 3])
def test_spans_of_unsettled_delivery_are_sent_when_overdue(routers, workers):
    sampled = TracedRouter(routers, workers)
    sampled.send(message(b"x"))
    assert sampled.spans() == []
    sampled.router.pass_time(31_000)
    assert sorted((span.kind, span.outcome) for span in sampled.spans()) == [
        ("receive", "unsettled"), ("send", "unsettled")
    ]  # fmt: skip
    sampled.consuming.feed(settle(0, state=ACCEPTED))  # ends the delivery, whose span is gone
    assert len(sampled.spans()) == 2


class Tenant:
    """Tenant with a consumer of `balanced.a` at worker 0, and a producer without a target at the last worker."""

    def __init__(self, router, name, workers):
        self.router = router
        self.consuming = router.connect(0, "tenants")
        self.sending = router.connect(workers - 1, "tenants")
        self.consuming.feed(start(hostname=name) + consumer(0, "balanced.a"))
        self.sending.feed(start(hostname=name) + producer(0, None))
        router.settle()

    def send(self, octets):
        self.sending.feed(transfer(0, 0, octets, settled=True))
        self.router.settle()


@pytest.mark.parametrize("workers", [1, 3])
def test_spans_of_tenant_are_sampled_and_named_by_whole_address(routers, workers):
    router = routers(workers)
    requesters = {name: SpanRequester(router, f"{name}/#") for name in ("red", "blue")}
    plain = SpanRequester(router, "balanced.a")
    for name in ("red", "blue"):
        Tenant(router, name, workers).send(message(b"x", to="balanced.a"))
    router.pass_time(1000)
    assert plain.spans == []
    for name, requester in requesters.items():
        kinds = [span.kind for span in requester.spans]
        assert sorted(kinds) == (["receive", "send"] if workers == 1 else ["cross", "receive", "send"])
        assert {span.address for span in requester.spans} == {f"{name}/balanced.a"}


@pytest.mark.parametrize("workers", [1, 3])
def test_tenant_that_names_address_of_another_stays_outside_its_spans(routers, workers):
    router = routers(workers)
    blue = SpanRequester(router, "blue/#")
    red, bystander = (Tenant(router, name, workers) for name in ("red", "blue"))
    for number, to in enumerate(("blue/balanced.a", "/blue/balanced.a", "amqp:/blue/balanced.a")):
        red.sending.feed(transfer(0, number, message(b"x", to=to), settled=True))
    bystander.send(message(b"y", to="balanced.a"))
    router.pass_time(1000)
    assert {span.connection for span in blue.of("receive")} == {bystander.sending.known.number}
    assert {span.connection for span in blue.of("send")} == {bystander.consuming.known.number}


@pytest.mark.parametrize("workers", [1, 3])
def test_address_in_message_for_target_names_no_span(routers, workers):
    sampled = TracedRouter(routers, workers)
    sampled.send(message(b"x", to="balanced.other"), settled=True)
    assert {span.address for span in sampled.spans()} == {"balanced.a"}
    assert {span.address for span in sampled.requester.spans} == {"balanced.a"}


def test_rules_of_many_addresses_of_one_link_hold(routers):
    sampled = TracedRouter(routers, 1, credit=100, target=None, pattern="balanced.a/even/#")
    for number in range(60):
        which = f"balanced.a/{'odd' if number % 2 else 'even'}/{number % 12}"
        sampled.sending.feed(transfer(0, number, message(b"x", to=which), settled=True))
    addresses = [span.address for span in sampled.spans()]
    assert len(addresses) == 30
    assert set(addresses) == {f"balanced.a/even/{number}" for number in range(0, 12, 2)}


def test_search_for_rule_is_charged_to_producer(routers):
    sampled = TracedRouter(routers, 1, target=None, pattern="balanced.b")
    scheduler = sampled.router.workers[0].loop.scheduler
    before = scheduler.charged + scheduler.work
    for number in range(20):
        sampled.sending.feed(transfer(0, number, message(b"x", to=f"balanced.{number}"), settled=True))
    sampled.router.settle()
    assert scheduler.charged + scheduler.work - before >= 20 * 100


def pairs_section(count, code=0x72, **more):
    """Return a section with this many annotations, or application-properties, of a user."""
    pairs = {f"user-{number}": f"value-{number}" for number in range(count)} | more
    items = [item for name, value in pairs.items() for item in (codec.encode_symbol(name), codec.encode_string(value))]
    return b"\x00\x53" + bytes([code]) + codec.encode_map(items)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("target", ["same", None])
@pytest.mark.parametrize("credit", [0, 100])
@pytest.mark.parametrize("count", [0, 1, 9, 40, 90])
@pytest.mark.parametrize("header", [b"", b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x04\x02\x41\x50\x05"])
def test_sampled_message_differs_by_its_context_only(routers, workers, target, credit, count, header):
    sampled = TracedRouter(routers, workers, credit=credit, target=target)
    given = pairs_section(count) if count else b""
    body = message(b"body", to="balanced.a", subject="s")
    for number in range(3):  # the first one makes a plan
        sampled.sending.feed(transfer(0, number, header + given + body))
        sampled.router.settle()
    if not credit:
        sampled.consuming.feed(flow(0, 100))
        sampled.router.settle()
    received = messages_of(sampled.consuming)
    assert len(received) == 3
    contexts = set()
    for octets in received:
        assert octets.startswith(header)
        assert octets.endswith(body)
        found = {str(name): value for name, value in annotations(octets).items()}
        contexts.add(found.pop("traceparent"))
        assert found == {f"user-{number}": f"value-{number}" for number in range(count)}
    sampled.consuming.feed(settle(0, 2, state=ACCEPTED))
    spans = sampled.spans()
    expected = {f"00-{span.trace_id}-{span.span_id}-01" for span in spans if span.kind == "receive"}
    assert contexts == expected
    assert sorted((span.kind, span.outcome) for span in spans) == [("receive", "accepted")] * 3 + [
        ("send", "accepted")
    ] * 3  # fmt: skip


def test_sampled_message_has_router_annotations_for_consumer_that_wants_them(routers):
    router = routers(1)
    requester = SpanRequester(router)
    consuming, sending = router.connect(0, "kept"), router.connect()
    consuming.feed(start() + consumer(0, "balanced.a"))
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    for number in range(2):
        sending.feed(transfer(0, number, pairs_section(1) + message(b"x"), settled=True))
        router.settle()
    router.pass_time(1000)
    ids = {f"00-{span.trace_id}-{span.span_id}-01" for span in requester.of("receive")}
    found = [{str(name): value for name, value in annotations(octets).items()} for octets in messages_of(consuming)]
    assert {each.pop("traceparent") for each in found} == ids
    for each in found:
        assert set(each) == {"user-0", "x-opt-qd.to", "x-opt-qd.ingress", "x-opt-qd.trace"}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("before", [b"", b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x02\x01\x41", pairs_section(3)])
@pytest.mark.parametrize("code", [0x72, 0x74])
def test_parent_is_found_behind_other_sections(routers, workers, before, code):
    sampled = TracedRouter(routers, workers, pattern="nobody")
    exported: list[DeliverySpan] = []
    sampled.router.core.delivery_traces.configure(tracing("ratio: 0", "parentBased: yes"), exported.extend)
    sampled.router.settle()
    given = pairs_section(2, code, traceparent=CONTEXT, tracestate="a=b")
    if code == 0x72:
        octets = (b"" if before.startswith(b"\x00\x53\x72") else before) + given + message(b"x")
    else:
        properties = message(b"", subject="s")[: -len(message(b""))]
        octets = before + properties + given + message(b"x")
    sampled.sending.feed(transfer(0, 0, octets, settled=True))
    assert sampled.spans() == []
    (received,) = [span for span in exported if span.kind == "receive"]
    assert (received.trace_id, received.parent_id) == tuple(CONTEXT.split("-")[1:3])
    (copy,) = messages_of(sampled.consuming)
    found = {str(name): value for name, value in annotations(copy).items()}
    assert found["traceparent"] == f"00-{received.trace_id}-{received.span_id}-01"
    assert found["tracestate"] == "a=b"
