"""Groups of readers on the command line: lag, resets that the next batch follows once, deletion."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.cli import main
from sluice.pipeline.retention import delete_consumed_segments
from sluice.pipeline.segments import Group, Landing, LandingLog
from tests.unit.pipeline.test_source import START, SparkDriver, land, numbers

LOG = LandingLog("one", "a")


def listed(landing: Landing, capsys, *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["groups", "--path", landing.url, "--json", *words], "p") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def reset(landing: Landing, to: str) -> None:
    assert main(["groups", "--path", landing.url, "--reset", "default", "--to", to], "p") == 0


@pytest.fixture
def landing(tmp_path) -> Landing:
    """Landing folder with four segments of five rows."""
    made = Landing.create(str(tmp_path))
    land(made, LOG, 0, 10, 20, 30)
    return made


@pytest.fixture
def driver(landing) -> SparkDriver:
    """Query that has read the first three segments."""
    made = SparkDriver(landing, 15, deleteOnCommit="false")
    assert numbers(made.batch()) == [0, 1, 2]
    made.reader.commit(made.offset)
    return made


def test_group_is_listed_with_its_lag(landing, driver, capsys):
    (found,) = listed(landing, capsys)
    assert (found["group"], found["segments"], found["rows"], found["bytes"]) == ("default", 1, 5, 1)
    assert found["seconds"] > 1e6, "the segment landed years ago"
    assert found["logs"][0]["log"] == LOG.key
    assert main(["groups", "--path", landing.url, "--logs"], "p") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("default: 5 rows behind, 1 B, ")
    assert printed[1].startswith("  one/a: at segment 3, 5 rows behind")


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", [0, 1, 2]),
        ("latest", []),
        (str(START + 10), [1, 2, 3]),
        ('{"one/a": 2}', [2, 3]),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_next_batch_after_a_reset_begins_at_its_position(landing, driver, capsys, to, expected, restarted):
    reset(landing, to)
    if restarted:
        driver.restart()
    found = [number for batch in (driver.batch(), driver.batch()) for number in numbers(batch)]
    assert found[: len(expected)] == expected
    driver.reader.commit(driver.offset)
    assert listed(landing, capsys)[0]["rows"] == 0, "the lag is that after the reset"
    driver.restart()
    assert driver.batch() == [], "a reset is followed once"


def test_batch_of_a_reset_is_the_same_when_it_runs_again(landing, driver, capsys):
    start = driver.offset
    reset(landing, "earliest")
    first = numbers(driver.batch())
    driver.restart()
    again = driver.reader.partitions(start, json.loads(json.dumps(driver.offset)))
    assert numbers(again) == first == [0, 1, 2]


def test_reset_keeps_segments_until_it_is_followed(landing, driver, capsys):
    reset(landing, '{"one/a": 1}')
    assert [each.number for each in delete_consumed_segments(landing, 0)] == [0]


def test_reset_before_the_first_batch_of_a_query_is_not_its_own(landing, driver, capsys):
    reset(landing, "latest")
    other = SparkDriver(landing, 100)
    assert numbers(other.batch()) == [0, 1, 2, 3]


def test_group_that_is_deleted_is_not_listed(landing, driver, capsys):
    reset(landing, "latest")
    assert main(["groups", "--path", landing.url, "--delete", "default"], "p") == 0
    assert listed(landing, capsys) == []
    assert landing.store.files("_resets") == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--reset", "default"], "give --reset GROUP and --to POSITION together"),
        (["--to", "latest"], "give --reset GROUP and --to POSITION together"),
        (["--reset", "nobody", "--to", "latest"], "has no group 'nobody' (it has: default)"),
        (["--delete", "nobody"], "has no group 'nobody' (it has: default)"),
        (["--reset", "default", "--to", "tomorrow"], "--to: 'tomorrow' is not a time"),
        (["--reset", "default", "--to", '{"one/b": 1}'], "--to: the group has no log one/b (it has one/a)"),
        (["--reset", "default", "--to", '{"one/a": -1}'], "--to: -1 is not a segment number"),
        (["--reset", "default", "--to", "{"], "--to: "),
    ],
)
def test_wrong_group_or_position_is_refused(landing, driver, capsys, words, text):
    assert main(["groups", "--path", landing.url, *words], "p") == 1
    assert text in capsys.readouterr().err


def test_segments_beyond_limits_are_deleted_unread(landing, capsys):
    landing.commit(Group("slow", {LOG.key: 0}))
    words = ["gc", "--path", landing.url, "--retain-bytes", "2"]
    assert main([*words, "--dry-run"], "p") == 0
    assert "would delete 2 segments" in capsys.readouterr().out
    assert main(words, "p") == 0
    assert [each.number for each in landing.listing(LOG.key).segments] == [2, 3]
    assert main(["gc", "--path", landing.url, "--retain-time", "7d"], "p") == 0
    assert [each.number for each in landing.listing(LOG.key).segments] == [3], "the last segment stays"
