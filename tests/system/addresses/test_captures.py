"""Captures of messages and their replay (docs/user/capture.md)."""

from __future__ import annotations

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sluice.router.capture.capture_file import (
    CapturedMessage,
    CaptureHeader,
    CaptureReader,
    CaptureTrailer,
    CaptureWriter,
)
from sluice.router.client import Message, connect
from tests.peer import message as messages
from tests.peer.frames import ACCEPTED, rejected
from tests.peer.links import PeerReceiver
from tests.peer.management import Management
from tests.system.addresses.capture_process import CaptureProcess
from tests.system.fixtures import Connect, Fresh, bodies
from tests.system.router import RouterProcess, Section, poll
from tests.system.tools import TIMEOUT, command, environment, run

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
SECTIONS: list[Section] = [
    ("tap", {"name": "shared", "pattern": "shared/#", "address": "copies/shared"}),
]
TAP = "router.config.tap"
GAPS = 3
NOT_ALL = 3


def read(path: Path) -> list[CapturedMessage]:
    with CaptureReader(path) as reader:
        return list(reader)


def captures(management: Management) -> list[str]:
    """Return the names of the taps that captures have made."""
    return [row["name"] for row in management.query(TAP) if str(row["name"]).startswith("capture-")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capture"


@pytest.fixture
def url(router: RouterProcess) -> str:
    return f"amqp://127.0.0.1:{router.port}"


def settle_all(receiver: PeerReceiver, count: int) -> list[Any]:
    found = receiver.receive(count)
    for delivery in found:
        delivery.settle()
    return bodies(found)


def test_capture_has_the_octets_of_messages_in_order_and_removes_its_tap(
    router: RouterProcess, connect: Connect, fresh: Fresh, management: Management, path: Path
) -> None:
    address = fresh()
    consumer = connect().receiver(address, 200)
    sender = connect().sender(address)
    sent = [
        messages.header(durable=True)
        + (messages.annotations({"x-mine": number}) if number % 2 else b"")
        + messages.properties(subject=f"s{number}")
        + messages.application_properties({"k": number})
        + messages.value("x" * number * 10)
        for number in range(100)
    ]
    with CaptureProcess(router, path, "--address", address, "--max-messages", "100") as capture:
        assert len(captures(management)) == 1
        numbers = [sender.send(octets) for octets in sent]
        settle_all(consumer, 100)
        assert {sender.outcome(number).name for number in numbers} == {"accepted"}
        code, found = capture.wait()
    assert (code, found["messages"], found["reason"], found["complete"]) == (0, 100, "max-messages", True)
    assert [each.octets for each in read(path)] == sent
    assert {each.address for each in read(path)} == {address}
    arrivals = [each.arrived for each in read(path)]
    assert arrivals == sorted(arrivals)
    assert captures(management) == []
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_capture_ended_by_signal_is_complete(
    router: RouterProcess,
    connect: Connect,
    fresh: Fresh,
    management: Management,
    path: Path,
    number: signal.Signals,
) -> None:
    address = fresh()
    consumer, sender = connect().receiver(address, 50), connect().sender(address)
    with CaptureProcess(router, path, "--address", address) as capture:
        for body in range(50):
            sender.send(messages.message(body), settled=True)
        settle_all(consumer, 50)
        capture.send_signal(number)
        code, found = capture.wait()
    assert (code, found["messages"], found["reason"]) == (0, 50, number.name)
    assert (found["selected"], sum(found["missed"].values())) == (50, 0)
    assert captures(management) == []


def test_tap_of_killed_capture_is_removed_by_the_next(
    router: RouterProcess, connect: Connect, fresh: Fresh, management: Management, path: Path, tmp_path: Path
) -> None:
    """The file of the killed capture is readable; the tap of a capture under way remains."""
    address = fresh()
    consumer, sender = connect().receiver(address, 50), connect().sender(address)
    with CaptureProcess(router, path, "--address", address) as killed:
        (left,) = captures(management)
        sender.send(messages.message(1), settled=True)
        settle_all(consumer, 1)
        poll(lambda: management.one(TAP, name=left)["acceptedCount"] == 1, "the copy is accepted")
        killed.send_signal(signal.SIGKILL)
    with CaptureReader(path) as reader:
        assert len(list(reader)) == 1
        assert reader.trailer is None
    poll(lambda: not _consumers(management, "capture/" + left.split("-")[1]), "the router has noticed the loss")
    with (
        CaptureProcess(router, tmp_path / "second", "--address", address) as second,
        CaptureProcess(router, tmp_path / "third", "--address", address) as third,
    ):
        assert second.first == f"removed tap {left} of a capture that was killed\n"
        assert third.first.startswith("capturing ")
        assert len(captures(management)) == 2
    assert "has no trailer" in run("replay", router.port, str(path), "--info").out


def _consumers(management: Management, address: str) -> int:
    rows = [row for row in management.query("router.address") if row["name"].endswith(address)]
    return sum(int(row["subscriberCount"]) for row in rows)


def test_capture_with_gaps_reports_them(router: RouterProcess, connect: Connect, fresh: Fresh, path: Path) -> None:
    address = fresh()
    consumer, sender = connect().receiver(address, 10), connect().sender(address)
    with CaptureProcess(router, path, "--address", address) as capture:
        capture.send_signal(signal.SIGSTOP)  # so that the tap stores no more than its bound
        for _ in range(20):
            number = sender.send(messages.message("x" * 1_000_000))
            consumer.next().settle()
            assert sender.outcome(number).name == "accepted"
            consumer.flow(10)
        capture.send_signal(signal.SIGCONT)
        capture.send_signal(signal.SIGINT)
        code, found = capture.wait()
    assert (code, found["complete"], found["missed"]["beyond bounds"]) == (GAPS, False, 12)
    assert "messages missing: 12 beyond bounds" in run("replay", router.port, str(path), "--info").out


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_capture_has_streamed_messages(
    router: RouterProcess, connect: Connect, fresh: Fresh, path: Path, size: int
) -> None:
    address = fresh()
    consumer, sender = connect().receiver(address, 10), connect().sender(address)
    sent = messages.message("x" * size)
    with CaptureProcess(router, path, "--address", address, "--max-messages", "1") as capture:
        number = sender.send(sent)
        consumer.next().settle()
        assert sender.outcome(number).name == "accepted"
        code, found = capture.wait()
    assert (code, found["messages"], found["complete"]) == (0, 1, True)
    assert [each.octets for each in read(path)] == [sent]


def test_message_that_is_too_long_for_the_file_does_not_end_the_capture(
    router: RouterProcess, connect: Connect, fresh: Fresh, path: Path
) -> None:
    address = fresh()
    consumer, sender = connect().receiver(address, 10), connect().sender(address)
    with (
        ThreadPoolExecutor() as pool,  # the sender's window opens while the consumer reads
        CaptureProcess(router, path, "--address", address, "--max-messages", "1") as capture,
    ):
        for octets in (messages.message("x" * (17 << 20)), messages.message("kept")):
            delivery = pool.submit(consumer.next)
            number = sender.send(octets)
            delivery.result().settle()
            assert sender.outcome(number).name == "accepted"
        code, found = capture.wait()
    assert (code, found["complete"], found["missed"]["too long for the file"]) == (GAPS, False, 1)
    assert [messages.body(each.octets) for each in read(path)] == ["kept"]


MALFORMED = (
    messages.properties(subject="s") + b"junk",
    messages.value("cut off")[:-1],
    messages.properties(subject="s") + messages.properties(subject="t") + messages.value("twice"),
)


def test_malformed_message_of_a_sender_does_not_end_the_capture(
    router: RouterProcess, connect: Connect, fresh: Fresh, path: Path
) -> None:
    address = fresh()
    consumer, sender = connect().receiver(address, 10), connect().sender(address)
    with CaptureProcess(router, path, "--address", address, "--max-messages", "1") as capture:
        for octets in (*MALFORMED, messages.message("kept")):
            sender.send(octets, settled=True)
            consumer.next().settle()
        code, found = capture.wait()
    assert (code, found["complete"], found["missed"]["malformed"]) == (GAPS, False, len(MALFORMED))
    assert [messages.body(each.octets) for each in read(path)] == ["kept"]
    assert "messages missing: 3 malformed" in run("replay", router.port, str(path), "--info").out


def test_capture_of_existing_tap_counts_from_its_beginning(
    router: RouterProcess, connect: Connect, fresh: Fresh, management: Management, path: Path
) -> None:
    address = fresh("shared")
    consumer, sender = connect().receiver(address, 10), connect().sender(address)
    before = management.one(TAP, name="shared")["withoutConsumerCount"]
    sender.send(messages.message("missed"), settled=True)
    settle_all(consumer, 1)
    poll(lambda: management.one(TAP, name="shared")["withoutConsumerCount"] > before, "it is missed")
    with CaptureProcess(router, path, "--tap", "shared", "--max-messages", "1") as capture:
        sender.send(messages.message("kept"), settled=True)
        settle_all(consumer, 1)
        code, found = capture.wait()
    assert (code, found["selected"]) == (0, 1)
    assert messages.body(read(path)[0].octets) == "kept"
    assert management.one(TAP, name="shared")["address"] == "copies/shared"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--tap", "nothing"), "the router has no tap 'nothing'"),
        (("--address", "copies/#"), "copies would be copied"),
        (("--address", "ok/1", "--address", "copies/#"), "copies would be copied"),
    ],
)
def test_refused_capture_leaves_neither_tap_nor_file(
    router: RouterProcess, management: Management, path: Path, words: tuple[str, ...], text: str
) -> None:
    before = set(captures(management))  # taps of captures that other tests have killed
    done = run("capture", router.port, "--out", str(path), *words)
    assert (done.code, done.out) == (1, "")
    assert text in done.err
    assert not path.exists()
    assert set(captures(management)) <= before


def test_capture_does_not_overwrite_a_file(router: RouterProcess, management: Management, path: Path) -> None:
    path.write_text("precious")
    before = set(captures(management))
    done = run("capture", router.port, "--out", str(path), "--address", "a")
    assert done.code == 1
    assert f"{path}: File exists" in done.err
    assert path.read_text() == "precious"
    assert set(captures(management)) <= before


# -- replay -------------------------------------------------------------------------------------------------------


@pytest.fixture
def captured(router: RouterProcess, connect: Connect, fresh: Fresh, path: Path) -> list[str]:
    """Capture messages with the bodies 0 … 59, sent to three addresses in turn; return the addresses."""
    prefix = fresh()
    addresses = [f"{prefix}/{name}" for name in "abc"]
    peer = connect()
    consumers = [peer.receiver(address, 100) for address in addresses]
    senders = [connect().sender(address) for address in addresses]
    with CaptureProcess(router, path, "--address", f"{prefix}/#", "--max-messages", "60") as capture:
        for number in range(60):
            sender = senders[number % 3]
            sender.send(messages.message(number, subject="s"), settled=True)
            settle_all(consumers[number % 3], 1)
        code, _ = capture.wait()
    assert code == 0
    for consumer in consumers:
        consumer.detach()
    return addresses


@pytest.mark.parametrize("speed", ["1", "max"])
def test_replay_sends_to_recorded_addresses_in_order(
    router: RouterProcess, connect: Connect, captured: list[str], path: Path, speed: str
) -> None:
    peer = connect()
    consumers = [peer.receiver(address, 100) for address in captured]
    process = subprocess.Popen(
        [*command("replay"), "-b", f"127.0.0.1:{router.port}", str(path), "--json", "--speed", speed],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        for first, consumer in enumerate(consumers):
            found = consumer.receive(20)
            assert bodies(found) == list(range(first, 60, 3))
            assert not any(each.settled for each in found)
            for each in found:
                each.settle()
        found = json.loads(process.communicate(timeout=TIMEOUT)[0])
    assert process.returncode == 0
    assert (found["messages"], found["outcomes"], found["reconnections"]) == (60, {"accepted": 60}, 0)


def test_replay_to_one_address_is_exact(router: RouterProcess, url: str, captured: list[str], path: Path) -> None:
    with connect(url) as connection:
        receiver = connection.receiver("elsewhere", settled=True)
        done = run("replay", router.port, str(path), "--to", "elsewhere", "--speed", "max", "--settled", "--json")
        assert (done.code, json.loads(done.out)["outcomes"]) == (0, {"sent settled": 60})
        assert [receiver.receive(30).octets for _ in range(60)] == [each.octets for each in read(path)]


def test_replay_reports_outcomes_and_addresses_without_consumer(
    router: RouterProcess, connect: Connect, captured: list[str], path: Path
) -> None:
    consumer = connect().receiver(captured[0], 100)
    process = subprocess.Popen(
        [*command("replay"), "-b", f"127.0.0.1:{router.port}", str(path), "--json", "--speed", "max", "--wait", "1s"],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        for number, delivery in enumerate(consumer.receive(20)):
            delivery.settle(rejected("my:condition", "mine") if number < 5 else ACCEPTED)
        found = json.loads(process.communicate(timeout=TIMEOUT)[0])
    assert process.returncode == NOT_ALL
    assert found["outcomes"] == {"accepted": 15, "rejected": 5, "without credit": 40}


def test_capture_without_payload_is_replayed_with_zeros(
    router: RouterProcess, url: str, fresh: Fresh, path: Path
) -> None:
    address = fresh()
    with connect(url) as connection:
        receiver, sender = connection.receiver(address, settled=True), connection.sender(address)
        with CaptureProcess(router, path, "--address", address, "--max-messages", "1", "--no-payload") as capture:
            sender.send(Message(b"secret" * 100, subject="kept"), settled=True)
            sent = receiver.receive(30).octets
            assert capture.wait()[0] == 0
        assert b"secret" not in path.read_bytes()
        assert "--fill" in run("replay", router.port, str(path)).err
        assert run("replay", router.port, str(path), "--fill", "--settled").code == 0
        again = receiver.receive(30)
        assert (again.message.subject, len(again.octets)) == ("kept", len(sent))
        assert not any(again.message.body)


SERVICE_ADDRESSES = ("$management", "amqp:/$management", "/_local/QDR/$management", "_topo/0/QDR/$management", "_$x")


@pytest.mark.parametrize("address", SERVICE_ADDRESSES)
def test_replay_of_a_file_by_somebody_else_does_not_manage_the_router(
    router: RouterProcess, management: Management, path: Path, address: str
) -> None:
    create = Message(
        {"pattern": "stolen/#", "address": "elsewhere"},
        reply_to="nowhere",
        properties={"operation": "CREATE", "type": TAP, "name": "stolen"},
    )
    header = CaptureHeader(began=0, router="QDR", patterns=["#"], payload=True, version="0")
    writer = CaptureWriter(path, header)
    writer.write(CapturedMessage(1, address, create.encode(), settled=True))
    writer.finish(CaptureTrailer(ended=2, messages=1, reason="time", selected=1))
    done = run("replay", router.port, str(path), "--speed", "max")
    assert all(row["name"] != "stolen" for row in management.query(TAP))
    assert done.code == 1
    assert f"message 1 has the address '{address}', of which no tap makes copies" in done.err


def test_replay_of_damaged_file_reports_the_place(router: RouterProcess, captured: list[str], path: Path) -> None:
    octets = bytearray(path.read_bytes())
    octets[-200] ^= 1
    path.write_bytes(octets)
    done = run("replay", router.port, str(path), "--info")
    assert done.code == 1
    assert f"{path} is damaged: the record at octet " in done.err
