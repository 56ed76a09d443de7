"""Messages of traced links: sinks, lines of the log, trace context."""

import pytest

from sluice.router.amqp import codec
from sluice.router.amqp.text.trace_context import trace_context
from sluice.router.log import ALL_LEVELS, LogSettings, ModuleSettings
from tests.component.engine.host import configuration
from tests.peer.talk import consumer, message, producer, start, transfer

UNTRACED = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})


def lines(router, module="PROTOCOL", worker=0):
    return [entry.text for entry in router.workers[worker].log.recent() if entry.module == module]


MESSAGES = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null"), "MESSAGE": ModuleSettings(mask=ALL_LEVELS)})


LOGGED = configuration("messageLoggingComponents: to,subject")


def test_messages_are_logged_on_arrival_and_departure(routers):
    router = routers(text=LOGGED, log=MESSAGES)
    consuming, sending, quiet = router.connect(), router.connect(), router.connect(listener="kept")
    consuming.feed(start() + consumer(0, "balanced.a"))
    sending.feed(start() + producer(0, "balanced.a") + producer(1, None))
    quiet.feed(start() + producer(0, "balanced.a"))
    router.settle()
    sending.feed(transfer(0, 0, message(b"x", to="a1", subject="sub")))
    router.settle()
    c, s = consuming.known.number, sending.known.number
    text = 'Message{to="a1", subject="sub"}'
    assert sorted(lines(router, "MESSAGE")) == sorted(
        [f"[C{s}]: Received {text} on link 'p0' ( -> balanced.a)", f"[C{c}]: Sent {text} on link 'c0' (balanced.a -> )"]
    )
    sending.feed(transfer(1, 1, message(b"y" * 50_000, to="balanced.a")))  # in several frames
    router.settle()
    long = 'Message{to="balanced.a"}'
    assert sorted(lines(router, "MESSAGE")[2:]) == sorted(
        [f"[C{s}]: Received {long} on link 'p1' ( -> )", f"[C{c}]: Sent {long} on link 'c0' (balanced.a -> )"]
    )
    quiet.feed(transfer(0, 0, message(b"x")))
    router.settle()
    assert len([line for line in lines(router, "MESSAGE") if "Received" in line]) == 2


def test_messages_are_logged_only_at_trace_level(routers):
    router = routers(text=LOGGED, log=UNTRACED)
    worker = router.workers[0]
    peer = router.connect()
    peer.feed(start() + consumer(0, "balanced.a") + producer(1, "balanced.a"))
    router.settle()
    worker.use_log(MESSAGES.to_dict(), 0)
    peer.feed(transfer(1, 0, message(b"one")))
    router.settle()
    assert len(lines(router, "MESSAGE")) == 2
    worker.use_log(UNTRACED.to_dict(), 0)
    peer.feed(transfer(1, 1, message(b"two")))
    router.settle()
    assert len(lines(router, "MESSAGE")) == 2


CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


ANNOTATED = b"\x00\x53\x72" + codec.encode_map([codec.encode_symbol("traceparent"), codec.encode_string(CONTEXT)])


@pytest.mark.parametrize("workers", [1, 2])
def test_trace_context_is_logged_on_arrival_and_departure(routers, workers):
    router = routers(workers, text=configuration("messageLoggingComponents: to,traceparent"), log=MESSAGES)
    consuming, sending = router.connect(), router.connect(workers - 1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    sending.feed(transfer(0, 0, ANNOTATED + message(b"x", to="a1")) + transfer(0, 1, message(b"y")))
    router.settle()
    written = [line for worker in range(workers) for line in lines(router, "MESSAGE", worker)]
    shown = f'Message{{to="a1", traceparent={CONTEXT}}} on link'
    assert sorted(line.split(": ", 1)[1].split(shown)[0] for line in written if shown in line) == ["Received ", "Sent "]
    assert len([line for line in written if "Message{} on link" in line]) == 2


class SpanSink:
    """Second sink, which records the messages with a trace context on connections of one listener."""

    def __init__(self, seen):
        self.seen = seen

    def settings_changed(self):
        pass

    def wants(self, client):
        return client.profile.role == "normal"

    def message(self, client, record, octets):
        found = trace_context(octets)
        if found is not None:
            self.seen.append((client.number, record.link.name, record.outgoing, found.trace_id))


@pytest.mark.parametrize("workers", [1, 2])
def test_second_sink_receives_trace_context(routers, workers):
    router = routers(workers)
    seen: list[tuple[int, str, bool, str]] = []
    for worker in router.workers:
        worker.tracing.sinks.append(SpanSink(seen))
    consuming, sending = router.connect(), router.connect(workers - 1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    sending.feed(transfer(0, 0, ANNOTATED + message(b"x" * 40_000)))
    router.settle()
    trace = CONTEXT.split("-")[1]
    assert sorted(seen) == sorted([
        (sending.known.number, "p0", False, trace), (consuming.known.number, "c0", True, trace)
    ])  # fmt: skip
