"""Arguments of queries that are refused before Spark starts, and sums over the batches of a query."""

from types import SimpleNamespace
from typing import Any

import pytest

from sluice.pipeline.cli import main
from sluice.pipeline.commands.query import QueryProgress, pairs
from sluice.pipeline.errors import PipelineError


def test_pairs_are_split_at_the_first_equals_sign():
    assert pairs(["a=b=c", "d="], "--conf") == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("word", ["a", "=b", ""])
def test_word_that_is_no_pair_is_refused(word):
    with pytest.raises(PipelineError, match=f"--conf '{word}': expected NAME=VALUE"):
        pairs([word], "--conf")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--out", "table"), "p query: --table needs --checkpoint DIR\n"),
        (("--table", "t", "--checkpoint", "c", "--unique", "message_id"), "p query: --unique needs --format delta or"),
        (("--show", "--catalog-option", "type=sql"), "p query: --catalog-option needs --format iceberg\n"),
        (("--show", "--dedup", "5", "--decode", "body"), "p query: --dedup needs --decode full, because"),
    ],
)
def test_incomplete_arguments_are_refused(words, text, tmp_path, capsys):
    assert main(["query", "--path", str(tmp_path), *words], "p") == 1
    assert capsys.readouterr().err.startswith(text)


@pytest.mark.parametrize("words", [("--out", "t", "--show"), (), ("--show", "0"), ("--show", "--trigger", "nan")])
def test_wrong_command_line_is_refused(words, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["query", "--path", str(tmp_path), *words], "p")
    assert ended.value.code == 2


def batch(number: int, second: int, rows: int, *, repeated: int = 0, late: int = 0, undecoded: int = 0) -> Any:
    """Return a batch as Spark reports it."""
    state = SimpleNamespace(numRowsDroppedByWatermark=late, customMetrics={"numDroppedDuplicateRows": repeated})
    return SimpleNamespace(
        batchId=number,
        timestamp=f"2026-01-02T03:04:{second:02}.000Z",
        numInputRows=rows,
        stateOperators=[state],
        observedMetrics={"payloads": {"payload_error": undecoded}} if undecoded else {},
    )


def test_progress_counts_each_batch_once():
    progress = QueryProgress()
    first, idle, second = batch(0, 0, 10, repeated=2), batch(1, 1, 0), batch(1, 2, 5, repeated=1, undecoded=3)
    assert progress.add([first]) == [first]
    assert progress.add([first, idle]) == []
    assert progress.add([idle, second]) == [second], "an idle trigger has the number of the next batch"
    assert (progress.read, progress.repeated, progress.undecoded) == (15, 3, 3)


def test_progress_with_late_messages_fails_with_their_number():
    with pytest.raises(PipelineError, match="^7 messages are missing in the table: they came after"):
        QueryProgress().add([batch(0, 0, 10, late=3), batch(1, 1, 10, late=4)])
