"""Lander with real routers: landed messages, their outcomes, and behaviour after faults."""

import json
import resource
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

from sluice.pipeline.segments import Group, Landing, check_metadata, schema
from sluice.router.client import Accepted, Rejected, connect
from tests.peer.pki import pki
from tests.pipeline.landers import (
    COMMAND,
    HEAD,
    LanderProcess,
    SendingThread,
    message,
    numbers,
    rows,
    segments,
    send_all,
)
from tests.system.router import SETTINGS, RouterProcess, listener, poll

pytestmark = pytest.mark.timeout(180)

CAPACITY = 20_000
LOG = "l/balanced.a"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(tmp_path_factory.mktemp("router"), [listener(linkCapacity=CAPACITY), *SETTINGS])
    router.start()
    yield router
    router.stop()


@pytest.fixture
def url(shared: RouterProcess) -> str:
    return f"amqp://127.0.0.1:{shared.port}"


def test_messages_are_landed_then_accepted(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        send_all(url, map(message, range(3000)))
        assert sorted(numbers(tmp_path)) == list(range(3000))  # all accepted messages are in the folder
        lander.stop()
    table = rows(tmp_path)
    assert table.schema.equals(schema())
    assert set(table["address"].to_pylist()) == {"balanced.a"}
    first = segments(tmp_path, LOG)[0]
    part = pq.read_table(tmp_path / first.path)
    assert part["ordinal"].to_pylist() == list(range(first.rows))
    check_metadata(pq.read_metadata(tmp_path / first.path).metadata, first.path)
    # The next lander continues with the next segment number.
    end = segments(tmp_path, LOG)[-1].number + 1
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        send_all(url, [message(3000)])
        lander.stop()
    assert segments(tmp_path, LOG)[-1].number == end
    assert numbers(tmp_path)[-1] == 3000


def test_staged_messages_are_landed_at_stop(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l", "--land-interval-ms", "600000").ready() as lander:
        sending_thread = SendingThread(url, map(message, range(50)))
        poll(lambda: "staged 450 B" in "\n".join(lander.lines), "the messages are in memory")
        assert sending_thread.is_alive()
        lander.stop()
        sending_thread.done()
    assert numbers(tmp_path) == list(range(50))


def test_large_and_presettled_messages_of_any_address_are_landed(url, tmp_path):
    address = "balanced/ä ö/%_x"
    large = HEAD[:3] + b"\xb0" + (400_000).to_bytes(4, "big") + bytes(range(250)) * 1600
    with LanderProcess(url, tmp_path, "--id", "l", address=address).ready() as lander:
        with connect(url) as connection:
            sender = connection.sender(address)
            sender.send(message(1), settled=True)
            assert sender.send(large, timeout=30) == Accepted()
            sender.send(message(2), timeout=30)
        lander.stop()
    assert rows(tmp_path)["message"].to_pylist() == [message(1), large, message(2)]
    assert [log.address for log in Landing.open(str(tmp_path)).logs()] == [address]


def test_overlong_message_is_rejected_alone(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l", "--max-message", "1k").ready() as lander:
        with connect(url) as connection:
            sender = connection.sender("balanced.a")
            long = HEAD[:3] + b"\xb0" + (200_000).to_bytes(4, "big") + bytes(200_000)
            outcomes = sender.send_all([message(1), long, message(2)], timeout=30)
        lander.stop()
    assert [type(outcome) for outcome in outcomes] == [Accepted, Rejected, Accepted]
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].condition == "amqp:link:message-size-exceeded"
    assert numbers(tmp_path) == [1, 2]


def test_landers_share_a_balanced_address(url, tmp_path):
    with (
        LanderProcess(url, tmp_path, "--id", "one").ready() as one,
        LanderProcess(url, tmp_path, "--id", "two").ready() as two,
    ):
        send_all(url, map(message, range(4000)))
        one.stop()
        two.stop()
    assert sorted(numbers(tmp_path)) == list(range(4000))
    assert segments(tmp_path, "one/balanced.a")
    assert segments(tmp_path, "two/balanced.a")


def test_second_lander_with_same_id_is_refused(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        with LanderProcess(url, tmp_path, "--id", "l") as second:
            assert second.wait() == 1
            assert second.lines[-1].startswith("sluice pipeline land: lander 'l' is already running")
            assert f"process {lander.process.pid} " in second.lines[-1]
        lander.stop()


@pytest.mark.long
@pytest.mark.parametrize("point", ["before-rename", "after-rename", "before-disposition", "after-disposition"])
def test_killed_lander_loses_no_message(url, tmp_path, point):
    command = (sys.executable, "-m", "tests.pipeline.crashing_lander", point, "1")
    size = 500
    with LanderProcess(url, tmp_path, "--id", "l", "--land-rows", str(size), command=command).ready() as lander:
        sending_thread = SendingThread(url, map(message, range(4000)))
        assert lander.wait() == -signal.SIGKILL
        landed = set(numbers(tmp_path))
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        sending_thread.done()
        lander.stop()
    after = numbers(tmp_path)
    assert set(after) == set(range(4000))
    # Only messages that had landed without being accepted come twice.
    repeated = len(after) - 4000
    assert repeated == 0 if point == "before-rename" else 0 < repeated <= len(landed)
    assert [each.number for each in segments(tmp_path, LOG)] == list(range(len(segments(tmp_path, LOG))))
    assert not list(tmp_path.rglob("*.tmp"))


def test_killed_router_loses_no_message(tmp_path):
    with_port = RouterProcess(tmp_path, [listener(linkCapacity=CAPACITY), *SETTINGS])
    with_port.start()
    port = with_port.port
    url = f"amqp://127.0.0.1:{port}"
    path = tmp_path / "landing"
    router = RouterProcess(
        tmp_path, [("listener", {"host": "127.0.0.1", "port": port, "linkCapacity": CAPACITY}), *SETTINGS]
    )
    try:
        with LanderProcess(url, path, "--id", "l", "--land-rows", "500").ready() as lander:
            sending_thread = SendingThread(url, map(message, range(20_000)))
            poll(lambda: len(numbers(path)) > 500, "some have landed")
            with_port.kill()
            router.start()
            sending_thread.done()
            lander.stop()
        assert set(numbers(path)) == set(range(20_000))
    finally:
        with_port.kill()
        router.kill()


def test_full_disk_releases_messages_until_there_is_room(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        unlimited = resource.prlimit(lander.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lander.process.pid, resource.RLIMIT_FSIZE, (100, unlimited[1]))
        sending_thread = SendingThread(url, map(message, range(1000)))
        lander.wait_line("cannot be written: .* are released")
        assert not list(tmp_path.rglob("*.parquet"))
        assert not list(tmp_path.rglob("*.tmp"))
        assert sending_thread.is_alive()  # no message was accepted
        resource.prlimit(lander.process.pid, resource.RLIMIT_FSIZE, unlimited)
        sending_thread.done()
        lander.stop()
    assert sorted(numbers(tmp_path)) == list(range(1000))


def test_credit_follows_staged_octets(url, tmp_path):
    high = 300_000
    with LanderProcess(url, tmp_path, "--id", "l", "--stage-high", str(high), "--land-rows", "500").ready() as lander:
        incompressible = [HEAD[:3] + b"\xb0\x00\x00\x08\x00" + _random(each) for each in range(2000)]
        sending_thread = SendingThread(url, incompressible)
        lander.wait_line("so the router gets no credit")
        log = Landing.open(str(tmp_path)).listing(LOG)
        assert sending_thread.is_alive()
        while sending_thread.is_alive():  # reads all segments that are there
            landing = Landing.open(str(tmp_path))
            landing.commit(Group("default", {LOG: landing.listing(LOG).end}))
            sending_thread.join(0.1)
        sending_thread.done()
        lander.wait_line("gets credit again")
        lander.stop()
    # Messages within the first windows of credit may arrive in addition.
    assert log.octets < high + 3 * 1000 * 2100
    assert rows(tmp_path).num_rows == 2000


def test_slow_disk_leaves_messages_with_the_router(url, tmp_path):
    """The size of a message is unknown when credit is granted, so messages with credit wait in the router, too."""
    gate, count, size, batch_octets = tmp_path / "gate", 64, 1 << 20, 1 << 20
    body = HEAD[:3] + b"\xb0" + size.to_bytes(4, "big") + bytes(size)
    command = (sys.executable, "-m", "tests.pipeline.slow_lander", str(gate))
    words = ("--id", "l", "--metrics", "0", "--land-bytes", str(batch_octets))
    with LanderProcess(url, tmp_path / "landing", *words, command=command).ready() as lander:
        metrics_url = lander.wait_line(r"metrics at (http://\S+)")[1]
        sending_thread = SendingThread(url, [body] * count)
        poll(lambda: _gauges(metrics_url)["credit"] == 0, "no credit")
        # Messages sent before the credit was taken back are in sockets.
        settled = poll(lambda: _unchanged(metrics_url), "no more octets arrive")
        assert 4 * batch_octets <= settled < count * size / 2
        gate.touch()
        sending_thread.done()
        lander.stop()
    assert rows(tmp_path / "landing").num_rows == count


def _gauges(metrics_url: str) -> dict[str, float]:
    with urllib.request.urlopen(metrics_url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    found = {}
    for line in lines:
        if line.startswith("sluice_lander_") and "{" in line:
            name, _, rest = line.removeprefix("sluice_lander_").partition("{")
            found[name] = float(rest.rpartition(" ")[2])
    return found


def _unchanged(metrics_url: str) -> float:
    """Return the octets in hand if they do not change for a while, otherwise 0."""
    samples = {_gauges(metrics_url)["in_hand_octets"] for _ in range(10)}
    return samples.pop() if len(samples) == 1 else 0.0


def _random(seed: int) -> bytes:
    import random

    return random.Random(seed).randbytes(2048)


def test_segment_numbers_continue_after_deletion(url, tmp_path):
    landing = Landing.create(str(tmp_path))
    landing.commit(Group("g", {LOG: 7}))
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        send_all(url, [message(1)])
        lander.stop()
    assert [each.number for each in segments(tmp_path, LOG)] == [7]


def test_metrics_and_status_show_landed_messages(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l", "--metrics", "0").ready() as lander:
        metrics_url = lander.wait_line(r"metrics at (http://\S+)")[1]
        send_all(url, map(message, range(100)))
        lander.wait_line(r"^100 landed, .*/s, staged .*, lag ")
        with urllib.request.urlopen(metrics_url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        lander.stop()
    assert 'sluice_lander_deliveries_total{address="balanced.a"} 100.0' in lines
    assert 'sluice_lander_attached{address="balanced.a"} 1.0' in lines


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--address", "unavailable.x"), "the router refuses address 'unavailable.x': amqp:not-found"),
        (("--id", "../x"), "lander id '../x'"),
        (("--path", "/proc/no"), "/proc/no: No such file or directory"),
        (("--path", "nosuch://x/y"), "nosuch"),
        (("--address", "balanced.a", "balanced.a"), "an address is given twice"),
        (("--user", "me"), "--user and --password-file must be given together"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(url, tmp_path, words, text):
    with LanderProcess(url, tmp_path, *words) as lander:
        assert lander.wait() == 1
        assert lander.lines[-1].startswith("sluice pipeline land: ")
        assert text in lander.lines[-1]
        assert "Traceback" not in "\n".join(lander.lines)


def test_missing_router_is_reported(tmp_path):
    with LanderProcess("amqp://127.0.0.1:1", tmp_path) as lander:
        assert lander.wait() == 1
        assert "no connection to the router: 127.0.0.1:1: " in lander.lines[-1]


def test_policy_refusing_the_lander_is_reported(tmp_path):
    """A lander is refused by its attach or with its whole connection. No message is consumed; they stay with the
    sender."""
    everything = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}
    router = RouterProcess(
        tmp_path,
        [
            listener(),
            listener("narrow", policyVhost="narrow"),
            listener("shut", policyVhost="shut"),
            ("policy", {"enableVhostPolicy": True}),
            ("vhost", {"hostname": "$default", "groups": {"all": everything}}),
            ("vhost", {"hostname": "narrow", "groups": {"all": {**everything, "sources": "other"}}}),
            ("vhost", {"hostname": "shut", "groups": {"all": {**everything, "remoteHosts": "10.9.9.9"}}}),
            *SETTINGS,
        ],
    )
    router.start()
    path = tmp_path / "landing"
    refused = {
        "narrow": "the router refuses address 'balanced.a': amqp:unauthorized-access: link disallowed by local policy",
        "shut": "amqp:resource-limit-exceeded: connection disallowed by local policy",
    }
    try:
        sending_thread = SendingThread(f"amqp://127.0.0.1:{router.port}", [message(1)])
        for name, text in refused.items():
            with LanderProcess(f"amqp://127.0.0.1:{router.ports[name]}", path, "--id", "l") as lander:
                assert lander.wait() == 1
                assert lander.lines[-1].startswith("sluice pipeline land: ")
                assert text in lander.lines[-1]
        assert sending_thread.is_alive()
        with LanderProcess(f"amqp://127.0.0.1:{router.port}", path, "--id", "l").ready() as lander:
            sending_thread.done()
            lander.stop()
        assert numbers(path) == [1]
    finally:
        router.stop()


def test_folder_of_another_format_is_refused(url, tmp_path):
    (tmp_path / "_sluice.json").write_text(json.dumps({"format": 99}))
    with LanderProcess(url, tmp_path) as lander:
        assert lander.wait() == 1
        assert "has format 99" in lander.lines[-1]


def test_truncated_segment_is_named(url, tmp_path):
    with LanderProcess(url, tmp_path, "--id", "l").ready() as lander:
        send_all(url, [message(1)])
        lander.stop()
    path: Path = tmp_path / segments(tmp_path, LOG)[0].path
    path.write_bytes(path.read_bytes()[:-10])
    with LanderProcess(url, tmp_path, "--id", "l", command=COMMAND) as lander:
        assert lander.wait() == 1
        assert f"{path.name} has " in lander.lines[-1]
        assert "it is damaged" in lander.lines[-1]


def test_landing_over_tls_needs_trust(tmp_path, tmp_path_factory):
    made = pki(tmp_path_factory.getbasetemp())
    certificate, key = made.server
    files = {"certFile": certificate, "privateKeyFile": key, "caCertFile": made.trusted}
    router = RouterProcess(
        tmp_path,
        [
            ("sslProfile", {"name": "p", **files}),
            listener(),
            listener("tls", sslProfile="p", requireSsl=True, saslMechanisms="EXTERNAL", authenticatePeer=True),
            *SETTINGS,
        ],
    )
    router.start()
    url = f"amqps://localhost:{router.ports['tls']}"
    path = tmp_path / "landing"
    own = ("--certificate", str(made.client.certificate), "--key", str(made.client.key))
    try:
        with LanderProcess(url, path, "--id", "l") as stranger:
            assert stranger.wait() == 1
            assert "TLS: the peer's certificate is not trusted" in stranger.lines[-1]
        with LanderProcess(url, path, "--id", "l", "--ca-file", str(made.trusted), *own).ready() as lander:
            send_all(f"amqp://127.0.0.1:{router.port}", map(message, range(100)))
            lander.stop()
        assert numbers(path) == list(range(100))
    finally:
        router.stop()
