"""Landing in an object store, with an S3 server on loopback."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from moto.server import ThreadedMotoServer

from loadtests.object_store import RecordingObjectStore
from sluice.pipeline import stores
from sluice.pipeline.commands.bench import deliveries
from sluice.pipeline.errors import LandingError, LockedError
from sluice.pipeline.identified_reader import IdentifiedPartition, IdentifiedReader
from sluice.pipeline.merging import LogMerger
from sluice.pipeline.options import source_options
from sluice.pipeline.reading import read_segment
from sluice.pipeline.retention import delete_consumed_segments
from sluice.pipeline.segments import Group, Landing, LandingLog, Segment, now
from sluice.pipeline.source import SegmentBin, StreamReader
from sluice.pipeline.stores import ArrowStore, open_store
from sluice.pipeline.writer import SegmentWriter
from tests.pipeline.landers import COMMAND, LanderProcess, message, numbers, send_all
from tests.system.router import SETTINGS, RouterProcess, listener

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Host and port of the S3 server."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"{host}:{port}"
    moto.stop()


@pytest.fixture
def bucket(server: str, request: pytest.FixtureRequest) -> str:
    """URL of a folder in a new bucket."""
    from pyarrow import fs

    name = f"bucket-{abs(hash(request.node.nodeid)) % 10**9}"
    store = fs.S3FileSystem(
        access_key="a", secret_key="b", endpoint_override=server, scheme="http", allow_bucket_creation=True
    )
    store.create_dir(name)
    return f"s3://a:b@{name}/landing?endpoint_override={server}&scheme=http"


def test_messages_are_landed_in_an_object_store(bucket, tmp_path):
    router = RouterProcess(tmp_path, [listener(linkCapacity=5000), *SETTINGS])
    router.start()
    url = f"amqp://127.0.0.1:{router.port}"
    try:
        with LanderProcess(url, bucket, "--id", "l").ready() as lander:
            send_all(url, map(message, range(2000)))
            lander.stop()
        assert sorted(numbers(bucket)) == list(range(2000))
        with LanderProcess(url, bucket, "--id", "l").ready() as lander:  # the lock was released
            send_all(url, [message(2000)])
            with LanderProcess(url, bucket, "--id", "l", command=COMMAND) as second:
                assert second.wait() == 1
                assert "lander 'l' is already running" in second.lines[-1]
            lander.stop()
        landing = Landing.open(bucket)
        listing = landing.listing("l/balanced.a")
        assert [each.number for each in listing.segments] == list(range(listing.end))
        landing.commit(Group("g", {"l/balanced.a": listing.end}))
        assert delete_consumed_segments(landing, 0) == listing.segments[:-1]
        assert landing.listing("l/balanced.a").segments == listing.segments[-1:]
    finally:
        router.stop()


def test_failing_store_releases_messages_until_it_returns(bucket, server, tmp_path):
    """A relay between lander and store can refuse connections."""
    router = RouterProcess(tmp_path, [listener(linkCapacity=5000), *SETTINGS])
    router.start()
    url = f"amqp://127.0.0.1:{router.port}"
    relay = RefusingRelay(server)
    relayed = bucket.replace(server, f"127.0.0.1:{relay.port}")
    try:
        with LanderProcess(url, relayed, "--id", "l").ready() as lander:
            send_all(url, [message(0)])
            relay.refuse()
            done = threading.Thread(target=send_all, args=(url, [message(1)]), daemon=True)
            done.start()
            lander.wait_line("cannot be written: .* 1 messages are released")
            assert numbers(bucket) == [0]
            relay.forward_again()
            done.join(90)
            assert not done.is_alive()
            lander.stop()
        assert set(numbers(bucket)) == {0, 1}
    finally:
        relay.close()
        router.stop()


def test_trigger_takes_few_requests(tmp_path):
    """A trigger takes one request for each address, and a constant number."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    addresses = 12
    with RecordingObjectStore() as server:
        url = server.bucket("counted")
        landing = Landing.create(url)
        logs = [LandingLog("l", str(number)) for number in range(addresses)]
        for log in logs:
            landing.identify_log(log.key)

        def land(number: int, count: int) -> None:
            for log in logs[:count]:
                landing.store.publish(Segment(log.key, number, now(), 10, 1).path, b"x")

        reader = IdentifiedReader(
            StreamReader(source_options({"path": url, "decode": "raw"}, stream=True), ["message"])
        )
        land(0, addresses)
        at = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10**6))
        for number, count in ((1, addresses), (2, addresses), (3, 4)):
            land(number, count)
            server.requests.clear()
            end = reader.latestOffset(at, ReadMaxRows(10**6))
            bins = reader.partitions(at, end)
            reader.commit(end)
            parts = [each.partition for each in bins if isinstance(each, IdentifiedPartition)]
            assert sum(len(part.segments) for part in parts if isinstance(part, SegmentBin)) == count
            # Constant: the folder's identity and the reset, two listings to find the logs, and the group's position.
            assert len(server.requests) <= 10 + addresses, server.requests
            at = end


def test_merge_of_a_log_takes_few_requests():
    """A segment takes two requests to be read, and three to be deleted: a store has no others in pyarrow."""
    count = 12
    with RecordingObjectStore() as server:
        landing = Landing.create(server.bucket("merged"))
        writer = SegmentWriter(landing, LandingLog("l", "a"), "l-0")
        for _ in range(count):
            writer.write(deliveries(3, 40))
        merger = LogMerger(landing, "l/a", writer.identity, 3 * (count - 1), grace=0)
        server.requests.clear()
        while merger.work(print):
            continue
        assert len(server.requests) <= 5 * (count - 1) + 10, server.requests
        (part, last) = landing.listing("l/a").segments
        assert ((part.number, part.end, part.rows), last.number) == ((0, count - 1, 3 * (count - 1)), count - 1)
        assert landing.listing("l/a").covered == []
        found = [each for batch in read_segment(landing, part, ["segment"]) for each in batch["segment"].to_pylist()]
        assert found == [number for number in range(count - 1) for _ in range(3)]
        server.requests.clear()
        landing.following(last)
        assert len(server.requests) == 1, "a stream at the end of the log does not list merged files"


class RefusingRelay:
    """Relay that forwards connections, or closes them at once."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._refusing = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                ours.close()
                continue
            theirs = socket.create_connection(self._target)
            self._open += [ours, theirs]
            for one, other in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while octets := one.recv(65536):
                other.sendall(octets)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return  # refused meanwhile

    def refuse(self) -> None:
        self._refusing = True
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the connection had ended
        self._open.clear()

    def forward_again(self) -> None:
        self._refusing = False

    def close(self) -> None:
        self.refuse()
        self._listener.close()


def test_arrow_store_behaves_like_a_disk(bucket):
    landing = Landing.create(bucket)
    assert isinstance(landing.store, ArrowStore)
    assert Landing.create(bucket).logs() == []
    one = Segment("l/a", 0, 1, 1, 3)
    landing.store.publish(one.path, b"abc")
    landing.store.publish("l/a/foreign.txt", b"?")
    listing = landing.listing("l/a")
    assert (listing.segments, listing.foreign) == ([one], ["foreign.txt"])
    assert [log.key for log in landing.logs()] == ["l/a"]
    with landing.store.open(one.path) as file:
        assert file.read() == b"abc"
    landing.store.delete(one.path)
    landing.store.delete(one.path)
    assert landing.listing("l/a").segments == []
    assert landing.store.read(one.path) is None
    with pytest.raises(FileNotFoundError):
        landing.store.open(one.path)


def test_lease_expires_without_renewal(bucket, monkeypatch):
    monkeypatch.setattr(stores, "SETTLE", 0.0)
    store: Any = open_store(bucket)
    first = store.lock("l/.lock")
    with pytest.raises(LockedError, match=r"is locked by process \d+ on "):
        store.lock("l/.lock")
    first.renew()
    monkeypatch.setattr(stores, "LEASE", -1.0)
    first.renew()
    second = store.lock("l/.lock")
    with pytest.raises(LockedError, match="the lock .* was taken over by"):
        first.renew()
    first.release()  # the second lock is not released by the first
    second.release()
    assert store.read("l/.lock") is None


def test_missing_bucket_is_reported(server):
    with pytest.raises((LandingError, OSError), match="no-such-bucket|bucket"):
        Landing.create(f"s3://a:b@no-such-bucket/x?endpoint_override={server}&scheme=http")
