"""Tables in an object store, with an S3 server on loopback: batches, two writers at once, keys, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
from moto.server import ThreadedMotoServer
from pyarrow import fs

from sluice.pipeline.tables import FORMATS
from sluice.pipeline.tables.table import TargetTable, open_table
from tests.unit.pipeline.tables.test_tables import FIELDS, rows, schema, write

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]

BATCHES = 4


class StoredTable:
    """Table in the bucket of an S3 server that the environment names, under the name of the test's folder.

    The server keeps its buckets for the life of the process.
    """

    def __init__(self, kind: str, endpoint: str, folder: Path) -> None:
        self._kind = kind
        self._name = f"s3://tables/{folder.name}" if kind == "delta" else "test.sensors.readings"
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://tables/{folder.name}"}
        # pyiceberg looks for the region of a bucket at Amazon, unless it is given.
        self._catalog = {**catalog, "s3.endpoint": endpoint, "s3.region": "us-east-1"}

    def open(self) -> TargetTable:
        return open_table(self._kind, self._name, schema(**FIELDS), (), self._catalog)

    def segments(self) -> list[int]:
        """Return the column `segment` of all rows, sorted."""
        found = self.open().keys(["segment"], {"segment": (0, 1000)})
        return sorted(value for batch in found for value in batch.column("segment").to_pylist())


@pytest.fixture(params=FORMATS)
def stored(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredTable]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",  # of delta-rs
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = fs.S3FileSystem(
            access_key="a", secret_key="b", endpoint_override=f"{host}:{port}", scheme="http",
            allow_bucket_creation=True,
        )  # fmt: skip
        store.create_dir("tables")
        yield StoredTable(request.param, environment["AWS_ENDPOINT_URL"], tmp_path)
    finally:
        moto.stop()


def test_batches_in_an_object_store_are_in_the_table_once(stored: StoredTable) -> None:
    one, two = stored.open(), stored.open()
    assert one.append("q", 0, write(one, "q/0/0", rows(1, 2)))
    assert not two.append("q", 0, write(two, "q/0/0-again", rows(1, 2)))
    assert two.append("p", 0, write(two, "p/0/0", rows(3)))
    assert one.append("q", 1, write(one, "q/0/1", rows(4)))
    assert stored.open().last_batch("q") == 1
    assert stored.segments() == [1, 2, 3, 4]
    assert one.compact() == 3
    assert stored.segments() == [1, 2, 3, 4]


def test_batches_of_two_writers_at_once_are_in_the_table_once(stored: StoredTable) -> None:
    stored.open()

    def write_all(name: str) -> list[int]:
        """Return the batches that were not in the table yet."""
        won = []
        for batch in range(BATCHES):
            table = stored.open()
            if table.append("q", batch, write(table, f"q/{name}/{batch}", rows(batch))):
                won.append(batch)
        return won

    with ThreadPoolExecutor(2) as pool:
        won = [batch for found in pool.map(write_all, ("one", "two")) for batch in found]
    assert sorted(won) == stored.segments() == list(range(BATCHES))
