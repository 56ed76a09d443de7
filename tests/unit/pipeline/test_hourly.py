"""Hourly sums by Arrow, compared with the same sums in Python."""

from itertools import chain
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.pipeline.errors import FileError
from sluice.pipeline.jobs import sums
from sluice.pipeline.telemetry import hourly
from sluice.pipeline.telemetry.hourly import MicrosecondPeriod, RouterFiles, pack_by_date, sums_of_files, unpacked
from sluice.pipeline.telemetry.names import LINK_COUNTS, LINK_GAUGES
from sluice.router.telemetry.parquet import encode
from sluice.router.telemetry.schema import TABLES

HOUR = 3_600_000_000
ALL = MicrosecondPeriod(0, 1 << 60)

COUNTS = st.one_of(st.none(), st.integers(0, 1000))
NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "address/ü"]))
LINKS = st.fixed_dictionaries(
    {
        "interval_start": st.integers(0, 3 * HOUR),
        "interval_ms": st.one_of(st.none(), st.integers(0, 5)),
        "boot_id": st.sampled_from(["x" * 32, "y" * 32]),
        "connection_id": st.one_of(st.none(), st.integers(0, 2)),
        "address": NAMES,
        "dir": st.sampled_from(["in", "out", None]),
        "settle_hist": st.one_of(st.none(), st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=3)),
        **dict.fromkeys(("deliveries", "octets", "accepted", "zero_credit_ms", "capacity", "undelivered"), COUNTS),
    }
)


def write_files(folder, table, *files):
    """Write each of `files`, a list of rows, and return the paths."""
    paths = []
    for number, rows in enumerate(files):
        path = folder / f"{number}.parquet"
        path.write_bytes(encode(table, rows))
        paths.append(str(path))
    return paths


def sums_by_key(wanted, paths, period=ALL, router="R"):
    """Return the sums by key. `sums_of_files` may return a key several times; the values are combined."""
    result: dict[Any, Any] = {}
    keys = 2 + len(wanted.keys)
    for name, rows in sums_of_files({"wanted": wanted}, [RouterFiles(router, paths)], period):
        assert (name, rows.schema.names) == ("wanted", list(wanted.columns))
        columns = [column.cast(pa.int64()) if at == 0 else column for at, column in enumerate(rows.columns)]
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            for name, value in zip(list(wanted.columns)[keys:], row[keys:], strict=True):
                combine = max if name in wanted.peaks else sum
                values = [each for each in (result.setdefault(row[:keys], {}).get(name), value) if each is not None]
                result[row[:keys]][name] = combine(values) if values else None
    return result


def total(values):
    """Return the sum as SQL defines it: None if all values are null."""
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def largest(values):
    return max((value for value in values if value is not None), default=None)


def grouped(rows, *names):
    groups: dict[Any, Any] = {}
    for row in rows:
        key = (row["interval_start"] // HOUR * HOUR, "R", *(row.get(name) for name in names))
        groups.setdefault(key, []).append(row)
    return groups


@settings(max_examples=60, deadline=None)
@given(files=st.lists(st.lists(LINKS, min_size=1, max_size=12), min_size=1, max_size=4), at_once=st.integers(1, 9))
def test_link_sums_match_python(tmp_path_factory, files, at_once):
    folder = tmp_path_factory.mktemp("links")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hourly, "ROWS_AT_ONCE", at_once)
        made = sums_by_key(sums.LINKS, write_files(folder, "fact_link", *files))
    wanted: dict[Any, Any] = {}
    for key, rows in grouped(chain(*files), *sums.LINKS.keys).items():
        wanted[key] = {
            **{name: total([row.get(name) for row in rows]) for name in LINK_COUNTS},
            "link_ms": total([row["interval_ms"] for row in rows]),
            **{peak: largest([row.get(gauge) for row in rows]) for peak, gauge in LINK_GAUGES.items()},
        }
    assert made == wanted


@settings(max_examples=60, deadline=None)
@given(files=st.lists(st.lists(LINKS, min_size=1, max_size=12), min_size=1, max_size=4), at_once=st.integers(1, 9))
def test_settlement_histograms_match_python(tmp_path_factory, files, at_once):
    folder = tmp_path_factory.mktemp("settles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hourly, "ROWS_AT_ONCE", at_once)
        made = sums_by_key(sums.SETTLES, write_files(folder, "fact_link", *files))
    wanted: dict[Any, Any] = {}
    for (hour, router, address), rows in grouped(chain(*files), "address").items():
        for row in rows:
            for bucket, count in (row["settle_hist"] or {}).items() if row["dir"] == "in" else ():
                sums_of = wanted.setdefault((hour, router, address, bucket), {"count": 0})
                sums_of["count"] += count
    assert made == wanted


def flow(start, deliveries, address="a", **others):
    return {"interval_start": start, "boot_id": "x", "worker_in": 0, "worker_out": 1, "deliveries": deliveries,
            "address": address, **others}  # fmt: skip


def test_sums_cover_intervals_that_begin_in_period(tmp_path):
    rows = [flow(at * HOUR // 2, 1 << at) for at in range(6)]
    paths = write_files(tmp_path, "fact_flow", rows[:3], rows[3:])
    made = sums_by_key(sums.FLOWS, paths, MicrosecondPeriod(HOUR // 2, 2 * HOUR))
    assert [(key[0], each["deliveries"]) for key, each in made.items()] == [(0, 2), (HOUR, 4 + 8)]
    assert not sums_by_key(sums.FLOWS, paths, MicrosecondPeriod(9 * HOUR, 10 * HOUR))


def test_worker_sums_include_cpu(tmp_path):
    rows = [
        {"interval_start": at, "interval_ms": 1000, "worker": 3, "cpu_user_us": cpu, "cpu_sys_us": 1, "links": at}
        for at, cpu in ((1, 199_999), (2, 499_999))
    ]
    ((key, made),) = sums_by_key(sums.WORKERS, write_files(tmp_path, "fact_worker", rows)).items()
    assert key == (0, "R", 3)
    assert (made["cpu_us"], made["busiest"], made["links"], made["ingress"]) == (700_000, 0.5, 2, None)


def test_file_of_older_router_is_read(tmp_path):
    """The file lacks columns and has another type for one."""
    paths = write_files(tmp_path, "fact_link", [{"interval_start": 0, "dir": "in", "address": "a", "deliveries": 7}])
    table = pq.read_table(paths[0]).drop_columns(["octets", "capacity", "boot_id"])
    at = table.schema.get_field_index("deliveries")
    pq.write_table(table.set_column(at, "deliveries", table.column(at).cast(pa.int32())), paths[0])
    ((key, made),) = sums_by_key(sums.LINKS, paths).items()
    assert key == (0, "R", None, None, "a", "in")
    assert (made["deliveries"], made["octets"], made["capacity"]) == (7, None, None)


def test_unreadable_files_are_named(tmp_path):
    (path,) = write_files(tmp_path, "fact_flow", [flow(0, 1)])
    with pytest.raises(FileError, match=r"1\.parquet was deleted or merged"):
        sums_by_key(sums.FLOWS, [path, str(tmp_path / "1.parquet")])
    (tmp_path / "0.parquet").write_bytes((tmp_path / "0.parquet").read_bytes()[:-20])
    with pytest.raises(FileError, match=r"0\.parquet cannot be read"):
        sums_by_key(sums.FLOWS, [path])


def test_summed_columns_exist_in_table():
    for each in (sums.FLOWS, sums.LINKS, sums.SETTLES, sums.WORKERS):
        assert set(each.reads) <= set(TABLES[each.table])


def test_several_sums_share_one_read(tmp_path):
    """Each file is read once, and each sum is the same as if it were computed alone."""
    rows = [
        {"interval_start": at * HOUR, "interval_ms": 1, "dir": "in", "address": "a", "deliveries": at,
         "settle_hist": {3: at}} for at in range(1, 4)
    ]  # fmt: skip
    paths = write_files(tmp_path, "fact_link", rows[:2], rows[2:])
    wanted = {"links": sums.LINKS, "settles": sums.SETTLES}
    made = list(sums_of_files(wanted, [RouterFiles("R", paths)], ALL))
    assert [name for name, _ in made] == ["links", "settles"]
    for name, together in made:
        ((_, alone),) = sums_of_files({name: wanted[name]}, [RouterFiles("R", paths)], ALL)
        assert together.equals(alone)


def test_packed_table_per_date(tmp_path):
    """Hours of three dates, one of them before 1970, become one packed table per date."""
    starts = [-HOUR, 23 * HOUR, 24 * HOUR, 0]
    paths = write_files(tmp_path, "fact_flow", [flow(at, 1 << n) for n, at in enumerate(starts)])
    ((_, rows),) = sums_of_files(
        {"flows": sums.FLOWS}, [RouterFiles("R", paths)], MicrosecondPeriod(-(1 << 60), 1 << 60)
    )
    dates = {batch["date"][0].as_py(): unpacked(batch["data"][0].as_py()) for batch in pack_by_date("flows", rows)}
    assert {f"{day}": sorted(each["deliveries"].to_pylist()) for day, each in dates.items()} == {
        "1969-12-31": [1], "1970-01-01": [2, 8], "1970-01-02": [4],
    }  # fmt: skip
