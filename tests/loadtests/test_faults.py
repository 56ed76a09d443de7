"""amqpload detects a router's possible faults, each injected by a relay that changes frames."""

import time

import pytest

from tests.loadtests.altering_relay import (
    BEGIN,
    DETACH,
    DISPOSITION,
    FLOW,
    TRANSFER,
    Change,
    FrameAlteringRelay,
    Frames,
    accepted,
    code_of,
    frame,
    uint,
)
from tests.loadtests.conftest import AmqpLoadRun, amqpload

COUNT = 100
PATIENT = 30  # seconds without progress, in runs that should succeed
CHOSEN = 50


def run_altered(forward: Change | None = None, backward: Change | None = None, **options: object) -> AmqpLoadRun:
    """Run COUNT messages through the relay. Runs that should succeed give `stall_seconds=PATIENT`."""
    given = {"count": COUNT, "stall_seconds": 1, **options}
    with FrameAlteringRelay(forward, backward) as relay:
        return amqpload(port=relay.sender_port, receiver_port=relay.receiver_port, direct=True, **given)


def change_one(chosen: int, frames: Change) -> Change:
    """Return a change that applies to one numbered frame and passes the others."""
    return lambda relay, number, data: frames(relay, number, data) if number == chosen else [data]


def test_unchanged_relay_is_no_fault() -> None:
    run = run_altered(stall_seconds=PATIENT)
    assert run.status == 0, run.complaints
    assert run.report["accepted"] == COUNT


def test_lost_presettled_message_is_reported() -> None:
    run = run_altered(change_one(CHOSEN, lambda m, n, f: []), presettled=True)
    assert (run.status, run.report["lost"], run.report["received"]) == (1, 1, COUNT - 1)
    assert "1 messages were lost" in run.complaints


def test_allowed_loss_is_counted() -> None:
    run = run_altered(change_one(CHOSEN, lambda m, n, f: []), presettled=True, allow_loss=True)
    assert (run.status, run.report["lost"]) == (0, 1)


def test_accepted_message_that_never_arrives_is_lost() -> None:
    def swallow(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        relay.to_sender(accepted(CHOSEN))
        return []

    run = run_altered(change_one(CHOSEN, swallow))
    assert (run.status, run.report["accepted"], run.report["lost"]) == (1, COUNT, 1)
    assert run.report["settled_twice"] == 0  # the receiver's ranges exclude messages that it has not received


def test_unsettled_delivery_stalls_sender() -> None:
    run = run_altered(change_one(CHOSEN, lambda m, n, f: []))
    assert run.status == 1
    assert f"no progress for 1 s: {COUNT} sent, {COUNT - 1} settled" in run.complaints


def test_duplicate_message_is_reported() -> None:
    run = run_altered(change_one(CHOSEN, lambda m, n, f: [f, f]), presettled=True)
    assert (run.status, run.report["duplicates"]) == (1, 1)


def test_disordered_messages_are_reported() -> None:
    held: list[bytes] = []

    def swap(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        if number == CHOSEN:
            held.append(data)
            return []
        return [data, held.pop()] if number == CHOSEN + 1 else [data]

    run = run_altered(swap, presettled=True)
    assert (run.status, run.report["disordered"], run.report["lost"]) == (1, 1, 0)


@pytest.mark.parametrize("at", [-1, -84])  # last octet, and first one after the stamp
def test_changed_content_is_reported(at: int) -> None:
    def flip(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        changed = bytearray(data)
        changed[at] ^= 1
        return [bytes(changed)]

    run = run_altered(change_one(CHOSEN, flip), presettled=True)
    assert (run.status, run.report["corrupt"]) == (1, 1)


def test_second_settlement_is_reported() -> None:
    run = run_altered(backward=change_one(0, lambda m, n, f: [f, f]))
    assert run.status == 1
    assert run.report["settled_twice"] > 0


def test_disposition_without_delivery_is_reported() -> None:
    run = run_altered(backward=change_one(0, lambda m, n, f: [accepted(COUNT + 7), f]))
    assert run.status == 1
    assert f"disposition for delivery {COUNT + 7}, which was never sent" in run.complaints


@pytest.mark.parametrize(("outcome", "name"), [(0x25, "rejected"), (0x26, "released"), (0x27, "modified")])
def test_outcomes_are_counted(outcome: int, name: str) -> None:
    def other(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        return [data.replace(b"\x00\x53\x24\x45", b"\x00\x53" + bytes([outcome]) + b"\x45")] if number >= 0 else [data]

    run = run_altered(backward=other)
    assert (run.status, run.report[name], run.report["accepted"]) == (0, COUNT, 0)


def test_outcome_left_for_sender_to_settle_is_settled() -> None:
    settled_by_sender: list[bytes] = []

    def forward(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        if code_of(data) == DISPOSITION:
            settled_by_sender.append(data)
            return []
        return [data]

    def unsettled(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        return [data.replace(b"\x41\x00\x53\x24\x45", b"\x42\x00\x53\x24\x45")]

    run = run_altered(forward, unsettled)
    assert (run.status, run.report["accepted"]) == (0, COUNT), run.complaints
    assert settled_by_sender
    assert all(data.endswith(b"\x41") for data in settled_by_sender)


def test_closed_connection_is_reported() -> None:
    def close(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        relay.close()
        return []

    run = run_altered(change_one(CHOSEN, close))
    assert run.status == 1
    assert "closed by the peer" in run.complaints or "reset by peer" in run.complaints


def test_detach_is_reported_with_condition() -> None:
    error = b"\x00\x53\x1d\xc0\x1b\x01\xa3\x18amqp:link:detach-forced!"
    detach = frame(DETACH, uint(0) + b"\x41" + error, 3)
    run = run_altered(change_one(CHOSEN, lambda m, n, f: [f, detach]))
    assert run.status == 1
    assert "the peer sent detach" in run.complaints
    assert "amqp:link:detach-forced" in run.complaints


def test_delivery_without_credit_is_reported() -> None:
    def generous(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        return [data.replace(uint(7), uint(COUNT))] if code_of(data) == FLOW else [data]

    run = run_altered(backward=generous, credit=7, presettled=True)
    assert run.status == 1
    assert "has no credit" in run.complaints


def test_transfer_outside_window_is_reported() -> None:
    def generous(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        return [data.replace(uint(5), uint(COUNT))] if code_of(data) in (BEGIN, FLOW) else [data]

    run = run_altered(backward=generous, session_window=5, presettled=True)
    assert run.status == 1
    assert "outside the session window" in run.complaints


def test_frame_above_maximum_is_reported() -> None:
    big = frame(TRANSFER, b"", 0) + bytes(600)
    big = (len(big)).to_bytes(4, "big") + big[4:]
    run = run_altered(change_one(CHOSEN, lambda m, n, f: [big]), max_frame=512)
    assert run.status == 1
    assert "our max-frame-size is 512" in run.complaints


def test_sender_obeys_shrinking_window() -> None:
    """The window closes while the sender is sending. Between its two answers to `echo` it must not send.

    There is more to send than sockets can hold, so the sender is still sending when the window closes.
    """
    count = 20_000
    asking = frame(FLOW, uint(0) + uint(0) + uint(0) + uint(1000) + b"\x40" * 5 + b"\x41", 10)
    opening = frame(FLOW, uint(0) + uint(count) + uint(0) + uint(1000), 4)
    answers = 0
    between: list[int] = []
    last_before = -1

    def forward(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        nonlocal answers, last_before
        if number == 5:
            relay.to_sender(asking)
        if code_of(data) == FLOW:
            answers += 1
            relay.to_sender(asking if answers == 1 else opening)
            return []
        if answers == 0:
            last_before = number
        if answers == 1:
            between.append(number)
        return [data]

    run = run_altered(forward, count=count, size=1_000, presettled=True, credit=3 * count, stall_seconds=PATIENT)
    assert run.status == 0, run.complaints
    assert (answers, between) == (2, [])
    assert 5 <= last_before < count - 1
    assert run.report["received"] == count


def test_latency_includes_delay_of_path() -> None:
    """Each message is held until the next one arrives, so none can take less than one interval."""
    held: list[bytes] = []

    def hold(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        if number < 0:
            return [data]
        held.append(data)
        if number == COUNT - 1:
            return held
        return [held.pop(0)] if len(held) > 1 else []

    run = run_altered(hold, rate=200, presettled=True, stall_seconds=PATIENT)
    assert run.status == 0, run.complaints
    assert run.report["latency_us"]["p50"] >= 0.8 * 1e6 / 200


def test_clock_starts_with_first_credit() -> None:
    """All messages are due within a tenth of a second; credit arrives after half a second."""

    def late(relay: FrameAlteringRelay, number: int, data: bytes) -> Frames:
        if code_of(data) == FLOW:
            time.sleep(0.5)
        return [data]

    run = run_altered(backward=late, rate=1_000, presettled=True, stall_seconds=PATIENT)
    assert run.status == 0, run.complaints
    assert run.report["latency_us"]["p50"] < 0.25 * 1e6


def test_missing_credit_is_reported() -> None:
    run = run_altered(backward=lambda m, n, f: [] if code_of(f) == FLOW else [f])
    assert run.status == 1
    assert "sender 0: no credit within 1 s" in run.complaints
