"""Folders of telemetry, and the division of their files into tasks, without Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from hypothesis import given
from hypothesis import strategies as st

from sluice.pipeline.telemetry.hourly import RouterFiles
from sluice.pipeline.telemetry.reader import (
    HourFiles,
    TelemetryError,
    TelemetryTables,
    collected_to_utc,
    ddl,
    divide_into_tasks,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEIGHTS = st.dictionaries(st.sampled_from(["fact_link", "fact_flow"]), st.lists(st.integers(1, 100), max_size=12))


def files_of(weights: dict[str, list[int]]) -> dict[str, list[HourFiles]]:
    return {
        table: [HourFiles(weight, RouterFiles("R", [f"{table}/{at}"])) for at, weight in enumerate(each)]
        for table, each in weights.items()
    }


def test_folder_without_worker_table_is_refused_by_name(tmp_path):
    spark: Any = None  # not used before the check
    with pytest.raises(TelemetryError, match=f"{tmp_path}: there is no telemetry .no folder v1/fact_worker"):
        TelemetryTables(spark, str(tmp_path), NOON, NOON)
    (tmp_path / "v1" / "fact_worker").mkdir(parents=True)
    found = TelemetryTables(spark, str(tmp_path), NOON, NOON + timedelta(hours=2))
    assert found.seconds == 7200


def test_collected_time_is_read_in_the_local_zone():
    local = NOON.astimezone().replace(tzinfo=None)
    assert collected_to_utc(local) == NOON


def test_columns_become_a_schema_in_their_order():
    assert ddl({"b": "long", "a": "map<int,long>"}) == "b long, a map<int,long>"


@given(WEIGHTS, st.integers(1, 5))
def test_file_of_table_is_in_exactly_one_task(weights, most):
    files = files_of(weights)
    tasks = divide_into_tasks(files, most)
    assert len(tasks) <= most
    assert all(tasks), "an empty task"
    for table, each in files.items():
        found = [part for task in tasks for part in task.get(table, [])]
        assert sorted(found) == sorted(hour.part for hour in each)


@given(WEIGHTS, st.integers(1, 5))
def test_heaviest_task_has_little_more_than_its_share(weights, most):
    files = files_of(weights)
    weight = {hour.part.paths[0]: hour.weight for each in files.values() for hour in each}
    loads = [
        sum(weight[part.paths[0]] for parts in task.values() for part in parts)
        for task in divide_into_tasks(files, most)
    ]
    if loads:
        assert max(loads) <= sum(loads) / len(loads) + max(weight.values())
