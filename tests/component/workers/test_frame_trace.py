"""Traces of frames: recipients, order and number of the lines."""

import re

from sluice.router.control.messages import Snapshot
from sluice.router.log import ALL_LEVELS, LogSettings, ModuleSettings
from tests.peer.frames import ACCEPTED, AMQP_HEADER
from tests.peer.talk import begin, consumer, frames, message, of, producer, say, settle, start, transfer

TRACED = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null"), "PROTOCOL": ModuleSettings(mask=ALL_LEVELS)})
UNTRACED = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})
SEND_MS = 100


def lines(router, module="PROTOCOL", worker=0):
    return [entry.text for entry in router.workers[worker].log.recent() if entry.module == module]


def frame_names(texts):
    """Return `<- open`, `-> AMQP`, … for each line."""
    return [" ".join(re.sub(r"@([a-z-]+)\(.*", r"\1", text.split("FRAME: ")[-1]).split()[-2:]) for text in texts]


def watch_recorder(router):
    """Return a list of the batches of lines that a watch has received (an empty batch at its end), and the watch's
    callback."""
    batches = []

    def record(batch):
        batches.append([text for _, text in batch])
        return True

    return batches, record


def test_frames_are_written_once_in_order(routers):
    router = routers(log=TRACED)
    peer = router.connect()
    number = peer.known.number
    peer.feed(start() + consumer(0, "balanced.a", 1) + producer(1, "balanced.a"))
    router.settle()
    peer.feed(transfer(1, 0, message(b"hello")))
    router.settle()
    peer.feed(settle(0, 0, ACCEPTED))
    router.settle()
    peer.feed(say("close"))
    router.settle()
    written = lines(router)
    assert all(line.startswith(f"[C{number}]:FRAME: ") for line in written)
    received = [frame for frame in frame_names(written) if frame.startswith("<-")]
    assert received == [
        *("<- AMQP", "<- open", "<- begin", "<- attach", "<- flow", "<- attach", "<- transfer", "<- disposition"),
        "<- close",
    ]
    sent = [frame for frame in frame_names(written) if frame.startswith("->")]
    assert sent[:3] == ["-> AMQP", "-> open", "-> begin"]
    assert set(sent[3:]) == {"-> attach", "-> flow", "-> transfer", "-> disposition", "-> close"}
    assert frame_names(written)[-2:] == ["<- close", "-> close"]


def test_waiting_frame_is_written_once(routers):
    """A transfer before the answer to the attach is processed twice by the connection."""
    router = routers(log=TRACED)
    router.connect().feed(start() + consumer(0, "balanced.a"))
    router.settle()
    peer = router.connect()
    peer.feed(start() + producer(0, "balanced.a") + transfer(0, 0, message(b"early")) + transfer(0, 1, message(b"x")))
    router.settle()
    of_peer = [line for line in lines(router) if line.startswith(f"[C{peer.known.number}]")]
    assert frame_names(of_peer).count("<- transfer") == 2
    assert [line for line in of_peer if "delivery-id=0" in line and "<-" in line]


def test_sasl_frames_and_headers_are_written(routers):
    router = routers(log=TRACED)
    peer = router.connect()
    init = b"\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS"
    peer.feed(b"AMQP\x03\x01\x00\x00" + (len(init) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + init)
    router.settle()
    peer.feed(start())
    router.settle()
    seen = frame_names(lines(router))
    assert [frame for frame in seen if frame.startswith("->")] == [
        *("-> SASL", "-> sasl-mechanisms", "-> sasl-outcome", "-> AMQP", "-> open", "-> begin")
    ]
    assert [frame for frame in seen if frame.startswith("<-")] == [
        *("<- SASL", "<- sasl-init", "<- AMQP", "<- open", "<- begin")
    ]


def test_trace_switch_writes_frames_at_any_level(routers):
    router = routers(log=UNTRACED)
    one, other = router.connect(), router.connect()
    for peer in (one, other):
        peer.feed(start())
        router.settle()
    assert lines(router) == []
    router.core.connections.trace(one.known, True)
    router.settle()
    for peer in (one, other):
        peer.feed(consumer(0, "balanced.a", 0))
        router.settle()
    assert frame_names(lines(router)) == ["<- attach", "-> attach"]
    assert all(line.startswith(f"[C{one.known.number}]") for line in lines(router))
    router.core.connections.trace(one.known, False)
    router.settle()
    one.feed(say("end"))
    router.settle()
    assert len(lines(router)) == 2


def test_trace_switch_off_keeps_frames_out_of_log(routers):
    router = routers(log=TRACED)
    one, other = router.connect(), router.connect()
    for peer in (one, other):
        peer.feed(start())
        router.settle()
    router.core.connections.trace(one.known, False)
    batches, record = watch_recorder(router)
    router.core.watches.add(one.known, record)
    router.settle()
    before = len(lines(router))
    for peer in (one, other):
        peer.feed(consumer(0, "balanced.a", 0))
        router.settle()
    written = lines(router)[before:]
    assert frame_names(written) == ["<- attach", "-> attach"]
    assert all(line.startswith(f"[C{other.known.number}]") for line in written)
    router.pass_time(SEND_MS)
    assert [frame_names(batch) for batch in batches] == [["<- attach", "-> attach"]], (
        "the watch gets its lines nevertheless"
    )
    router.workers[0].use_log(TRACED.to_dict(), 0)
    one.feed(say("end"))
    router.settle()
    assert len(lines(router)) == before + 2, "the level does not matter"


def test_snapshot_restores_trace_switches(routers):
    """The snapshot names the switches. For all other connections the level of the log decides."""
    router = routers(log=TRACED)
    never, silent = router.connect(), router.connect()
    for peer in (never, silent):
        peer.feed(start())
        router.settle()
    router.core.connections.trace(silent.known, False)
    router.settle()
    router.workers[0].tracing.trace(router.workers[0].clients[never.known.number], False)
    router.workers[0].on_snapshot(Snapshot(router.core.journal.epoch, router.core.events.snapshot_ops()))
    router.settle()
    before = len(lines(router))
    for peer in (never, silent):
        peer.feed(consumer(0, "balanced.a", 0))
        router.settle()
    assert all(line.startswith(f"[C{never.known.number}]") for line in lines(router)[before:])
    assert frame_names(lines(router)[before:]) == ["<- attach", "-> attach"]


def test_changed_log_settings_reach_open_connections(routers):
    router = routers(log=UNTRACED)
    worker = router.workers[0]
    peer = router.connect()
    peer.feed(start())
    router.settle()
    worker.use_log(TRACED.to_dict(), 0)
    peer.feed(consumer(0, "balanced.a", 0))
    router.settle()
    assert frame_names(lines(router)) == ["<- attach", "-> attach"]
    worker.use_log(UNTRACED.to_dict(), 0)
    peer.feed(say("end"))
    router.settle()
    assert len(lines(router)) == 2
    assert not peer.connection.traced


# -- Watching


def test_watch_receives_frames_until_connection_ends(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    batches, record = watch_recorder(router)
    router.core.watches.add(peer.known, record)
    router.settle()
    peer.feed(consumer(0, "balanced.a", 0))
    router.settle()
    router.pass_time(SEND_MS)
    assert [frame_names(batch) for batch in batches] == [["<- attach", "-> attach"]]
    peer.feed(say("close"))
    router.settle()
    router.pass_time(SEND_MS)
    assert [frame_names(batch) for batch in batches[1:]] == [["<- close", "-> close"], []]
    assert len(router.core.watches) == 0


def test_watch_of_lost_connection_ends(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    batches, record = watch_recorder(router)
    router.core.watches.add(peer.known, record)
    peer.lose()
    router.settle()
    router.pass_time(SEND_MS)
    assert batches == [[]]


def test_watch_at_its_limits_ends(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    batches, record = watch_recorder(router)
    router.core.watches.add(peer.known, record, lines=1)
    router.settle()
    peer.feed(consumer(0, "balanced.a", 0))
    router.settle()
    router.pass_time(SEND_MS)
    assert [frame_names(batch) for batch in batches] == [["<- attach"], []]
    assert not peer.connection.traced
    batches.clear()
    router.core.watches.add(peer.known, record, seconds=1e-6)
    router.settle()
    router.pass_time(SEND_MS)
    assert batches == [[]]
    assert not peer.connection.traced


def test_lost_requester_ends_only_its_watch(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    batches, record = watch_recorder(router)
    router.core.watches.add(peer.known, lambda batch: False)
    router.core.watches.add(peer.known, record)
    router.settle()
    for handle in range(2):
        peer.feed(consumer(handle, "balanced.a", 0))
        router.settle()
        router.pass_time(SEND_MS)
        assert len(router.core.watches) == 1
    assert len(batches) == 2


def test_watched_lines_are_bounded_and_counted(routers, monkeypatch):
    monkeypatch.setattr("sluice.workers.frame_trace.LINES_PER_MESSAGE", 5)
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    batches, record = watch_recorder(router)
    router.core.watches.add(peer.known, record)
    router.settle()
    for handle in range(10):
        peer.feed(consumer(handle, "balanced.a", 0))
    router.settle()
    router.pass_time(SEND_MS)
    assert len(batches[0]) == 6
    assert batches[0][-1] == "(15 more lines dropped: there were too many at once)"


def test_watched_frames_are_not_logged(routers):
    router = routers(log=UNTRACED)
    peer = router.connect()
    peer.feed(start())
    router.settle()
    _, record = watch_recorder(router)
    router.core.watches.add(peer.known, record)
    router.settle()
    peer.feed(consumer(0, "balanced.a", 0))
    router.settle()
    router.pass_time(SEND_MS)
    assert lines(router) == []


def test_frame_with_invalid_char_is_written_and_watched(routers):
    router = routers(log=TRACED)
    others = router.connect()
    others.feed(start())
    peer = router.connect()
    batches, record = watch_recorder(router)
    router.core.watches.add(peer.known, record)
    router.settle()
    peer.feed(AMQP_HEADER + bytes.fromhex("0000000d 02000000 73 0000d800"))
    router.settle()
    router.pass_time(SEND_MS)
    text = "0 <- 0xd800"
    assert any(line.endswith(text) for line in lines(router))
    assert any(line.endswith(text) for batch in batches for line in batch)
    others.feed(begin(1))
    router.settle()
    assert of(frames(others), "begin")
