"""Arguments of queries that are refused before Spark starts, and sums over the batches of a query."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sluice.pipeline.cli import main
from sluice.pipeline.commands.query import pairs
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.metrics_server import serve
from sluice.pipeline.query_metrics import QueryCollector
from sluice.pipeline.query_progress import QueryProgress


def test_pairs_are_split_at_the_first_equals_sign():
    assert pairs(["a=b=c", "d="], "--conf") == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("word", ["a", "=b", ""])
def test_word_that_is_no_pair_is_refused(word):
    with pytest.raises(PipelineError, match=f"--conf '{word}': expected NAME=VALUE"):
        pairs([word], "--conf")


TABLE = ("--table", "t", "--checkpoint", "c")
JSON = ("--decode", "json")
DEAD = ("--bad-payloads", "deadletter", "--dead-letters")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--out", "table"), "p query: --table needs --checkpoint DIR\n"),
        (("--table", "t", "--checkpoint", "c", "--unique", "message_id"), "p query: --unique needs --format delta or"),
        ((*TABLE, "--format", "delta", "--unique-within", "5m"), "p query: --unique-within needs --unique\n"),
        (("--show", "--catalog", "sqlite:///c"), "p query: --catalog needs --format iceberg\n"),
        (("--show", "--catalog-option", "type=sql"), "p query: --catalog-option needs --format iceberg\n"),
        (("--show", *JSON, "--bad-payloads", "drop"), "p query: --bad-payloads needs --table, and --decode json"),
        ((*TABLE, "--bad-payloads", "fail"), "p query: --bad-payloads needs --table, and --decode json or avro or"),
        ((*TABLE, *JSON, *DEAD[:2]), "p query: --bad-payloads deadletter and --dead-letters TABLE need each"),
        ((*TABLE, *JSON, "--dead-letters", "d"), "p query: --bad-payloads deadletter and --dead-letters TABLE need"),
        ((*TABLE, *JSON, *DEAD, "d"), "p query: --dead-letters needs --format delta or iceberg\n"),
        ((*TABLE, *JSON, *DEAD, "t", "--format", "delta"), "p query: --dead-letters: the table of --table cannot"),
        (("--show", "--dedup", "5", "--decode", "body"), "p query: --dedup needs --decode full, because"),
    ],
)
def test_incomplete_arguments_are_refused(words, text, tmp_path, capsys):
    assert main(["query", "--path", str(tmp_path), *words], "p") == 1
    assert capsys.readouterr().err.startswith(text)


@pytest.mark.starts
def test_table_is_refused_by_a_spark_without_streams(tmp_path, capsys, monkeypatch):
    spark_api = pytest.importorskip("sluice.pipeline.spark_api", exc_type=ImportError)
    monkeypatch.setattr("sluice.pipeline.commands.query.find_java", lambda: "java")
    monkeypatch.setattr(spark_api, "HAS_STREAM_READER", False)
    assert main(["query", "--path", str(tmp_path), *TABLE], "p") == 1
    assert re.fullmatch(
        r"p query: --table needs Spark 4.2 or later; this is Spark \S+: --show shows what has landed\n",
        capsys.readouterr().err,
    )
    assert main(["query", "--path", str(tmp_path), "--show"], "p") == 1
    assert "is not a landing folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--out", "t", "--show"),
        (),
        ("--show", "0"),
        ("--show", "--trigger", "nan"),
        ("--show", "--unique-within", f"{'9' * 30}d"),
    ],
)
def test_wrong_command_line_is_refused(words, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["query", "--path", str(tmp_path), *words], "p")
    assert ended.value.code == 2


@pytest.mark.parametrize("uri", ["catalog.db", "postgresql://u:secret@host/db"])
def test_catalog_without_a_scheme_or_with_a_password_is_refused(uri, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["query", "--path", str(tmp_path), *TABLE, "--format", "iceberg", "--catalog", uri], "p")
    assert "secret" not in capsys.readouterr().err


def batch(
    number: int, second: int, rows: int, *, repeated: int = 0, late: int = 0, undecoded: int = 0, **observed: Any
) -> Any:
    """Return a batch as Spark reports it."""
    state = SimpleNamespace(numRowsDroppedByWatermark=late, customMetrics={"numDroppedDuplicateRows": repeated})
    return SimpleNamespace(
        batchId=number,
        timestamp=f"2026-01-02T03:04:{second:02}.000Z",
        numInputRows=rows,
        stateOperators=[state],
        observedMetrics={**({"payloads": {"payload_error": undecoded}} if undecoded else {}), **observed},
    )


def test_progress_counts_each_batch_once():
    progress = QueryProgress()
    first, idle, second = batch(0, 0, 10, repeated=2), batch(1, 1, 0), batch(1, 2, 5, repeated=1, undecoded=3)
    assert progress.add([first]) == [first]
    assert progress.add([first, idle]) == []
    assert progress.add([idle, second]) == [second], "an idle trigger has the number of the next batch"
    assert (progress.batches, progress.read, progress.repeated, progress.undecoded) == (2, 15, 3, 3)


def test_progress_sums_repeated_requests_to_the_schema_registry_and_keeps_the_last_error():
    progress = QueryProgress()
    batches = [(2, "2026-01-02 /a: status 503"), (None, None), (1, "2026-01-01 /b: x")]
    for number, (retries, error) in enumerate(batches):
        progress.add([batch(number, number, 1, schemaRegistry={"registry_retries": retries, "registry_error": error})])
    assert (progress.registry_retries, progress.registry_error) == (3, "2026-01-02 /a: status 503")


def test_metrics_show_the_sums_of_a_query():
    pytest.importorskip("pyarrow")
    progress = QueryProgress(SimpleNamespace(repeated=4))
    retries = {"registry_retries": 5, "registry_error": "x"}
    progress.add([batch(0, 0, 10, repeated=2, undecoded=3, schemaRegistry=retries)])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(QueryCollector(progress))
    names = ("batches", "messages", "repeated", "undecoded", "registry_retries")
    assert [registry.get_sample_value(f"sluice_query_{name}_total") for name in names] == [1, 10, 6, 3, 5]


@pytest.mark.parametrize("where", ["", "x", "127.0.0.1:", "127.0.0.1:70000", "no-such-host.invalid:0"])
def test_metrics_at_a_place_that_cannot_be_served_are_refused(where):
    with pytest.raises(PipelineError, match=f"^--metrics {where}: "):
        serve(QueryCollector(QueryProgress()), where)


def test_progress_with_late_messages_fails_with_their_number():
    with pytest.raises(PipelineError, match="^7 messages are missing in the table: they came after"):
        QueryProgress().add([batch(0, 0, 10, late=3), batch(1, 1, 10, late=4)])
