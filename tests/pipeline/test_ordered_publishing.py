"""`sluice pipeline publish --order-by`: rows of a table in files without order arrive in order of their keys."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.commands import publish
from sluice.pipeline.errors import PipelineError
from tests.pipeline.landers import COMMAND
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.test_killed_queries import SLOW_START, TRIES, QueryProcess
from tests.pipeline.test_sink import KEYS, check_order

ROWS = 2000
FILES = 4
ADDRESS = "balanced/ordered"


def write_shuffled(folder: Path) -> None:
    """Write rows in random order, with a time that gives their order."""
    folder.mkdir()
    numbers = random.sample(range(ROWS), ROWS)
    for file in range(FILES):
        part = numbers[file::FILES]
        columns = {"body": [str(each) for each in part], "time": part, "device": [each % KEYS for each in part]}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("follow", [False, True], ids=["table", "stream"])
def test_published_rows_arrive_in_the_order_of_their_key(java_runs: None, url: str, tmp_path: Path, follow: bool):
    write_shuffled(tmp_path / "table")
    words = [*COMMAND, "publish", "--table", str(tmp_path / "table"), "--url", url, "--address", ADDRESS]
    words += ["--select", "body", "--order-by", "device", "time", "--memory", "768m"]
    words += ["--follow", "--once", "--checkpoint", str(tmp_path / "checkpoint")] if follow else []
    with ReceivingThread(url, ADDRESS) as receiver:
        for _ in range(TRIES):
            running = QueryProcess(words, tmp_path / "checkpoint")
            if SLOW_START not in running.finish():
                break
        assert running.process.returncode == 0
        messages = receiver.wait(ROWS)
    assert len(messages) == ROWS
    check_order(messages, ROWS)
    if follow:  # the ids name the stream, so that a repeated batch has them again
        assert {str(each.message_id).split("/")[1] for each in messages} == {"0"}
        metadata = (tmp_path / "checkpoint" / "metadata").read_text()
        assert all(str(each.message_id).split("/")[0] in metadata for each in messages)


def test_order_without_columns_is_refused():
    parser = argparse.ArgumentParser()
    publish.add_arguments(parser)
    with pytest.raises(PipelineError, match="--order-by device: name the columns with the order, too"):
        publish.run(parser.parse_args(["--table", "t", "--order-by", "device"]))
