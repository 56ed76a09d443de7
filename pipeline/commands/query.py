"""`sluice pipeline query`: write a landing folder to a table, as a stream of Spark."""

import argparse
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sluice.pipeline.errors import PipelineError
from sluice.pipeline.payloads import ERROR, RETRIES, RETRY_ERROR
from sluice.pipeline.payloads import FORMATS as PAYLOADS
from sluice.pipeline.prerequisites import find_java, require
from sluice.pipeline.query_progress import OBSERVED, REGISTRY_OBSERVED, QueryProgress, registry_retries, undecoded
from sluice.pipeline.tables import FORMATS
from sluice.pipeline.units import minutes, seconds
from sluice.router.cli.quantities import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.pipeline.tables.batch_writer import TableBatchWriter
    from sluice.pipeline.tables.table import TargetTable

HELP = "write landed messages to a table (Parquet, Delta, Iceberg), exactly once, or show them"
MIN_ROWS, MAX_DELAY = 50_000, 60.0  # of --min-rows and --max-delay
BAD_PAYLOADS = ("keep", "fail", "drop", "deadletter")  # values of --bad-payloads
SHOWN = 20  # rows of --show by default
LOOK = 0.5  # seconds between checks of a running query


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", required=True, metavar="DIR", help="landing folder, or its URL")
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument(
        "--table", "--out", metavar="TABLE",
        help="table to write: a folder, or CATALOG.NAMESPACE.TABLE for Iceberg; needs --checkpoint",
    )  # fmt: skip
    goal.add_argument("--show", nargs="?", type=count, const=SHOWN, metavar="N", help="print N rows, and end")
    parser.add_argument(
        "--format", choices=("parquet", *FORMATS), default="parquet", help="format of the table (%(default)s)"
    )
    parser.add_argument(
        "--catalog", type=catalog_uri, metavar="URI",
        help="Iceberg's catalog: https://… (REST), sqlite:///FILE, postgresql+psycopg2://… or thrift://… (Hive)",
    )  # fmt: skip
    parser.add_argument(
        "--catalog-option", action="append", default=[], metavar="NAME=VALUE",
        help="property of Iceberg's catalog (else those of .pyiceberg.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="folder for the progress of this query; not shared with others"
    )
    parser.add_argument("--address", nargs="+", default=[], help="addresses to read (all)")
    parser.add_argument(
        "--decode", choices=("raw", "body", "full", *PAYLOADS), default="full", help="set of columns (%(default)s)"
    )
    parser.add_argument(
        "--group", default="default", help="group of readers, a separate one for each query (%(default)s)"
    )
    parser.add_argument(
        "--partition-by", nargs="+", default=[], metavar="COLUMN", help="partition columns of the table"
    )
    parser.add_argument(
        "--dedup", type=count, metavar="SECONDS",
        help="drop messages whose address and message_id were seen within SECONDS; messages without an id stay",
    )  # fmt: skip
    parser.add_argument(
        "--unique", nargs="+", default=[], metavar="COLUMN",
        help="drop messages whose COLUMNs are in the table already, with --format delta or iceberg; nulls are unique",
    )  # fmt: skip
    parser.add_argument(
        "--unique-within", type=window, metavar="TIME",
        help="of --unique: copies land at most TIME apart (60m, 7d); later copies are rows (no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--bad-payloads", choices=BAD_PAYLOADS, default="keep",
        help="with --decode json, avro or protobuf, messages whose payload cannot be decoded stay "
        "rows, end the query, are left out, or go to --dead-letters (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--dead-letters", metavar="TABLE", help="table of the same format for --bad-payloads deadletter"
    )
    parser.add_argument(
        "--min-rows", type=count, default=MIN_ROWS, metavar="ROWS",
        help="write fewer messages only when the last batch is --max-delay old (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-delay", type=seconds, default=MAX_DELAY, metavar="SECONDS",
        help="time after which fewer than --min-rows are written (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--trigger", type=seconds, default=1.0, metavar="SECONDS", help="interval of batches (%(default)s)"
    )
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="serve /metrics on this port")
    parser.add_argument("--once", action="store_true", help="end when all present messages are written")
    add_spark_arguments(parser)


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the data source amqp"
    )
    parser.add_argument("--master", help="Spark master (this machine)")
    parser.add_argument("--memory", default="1g", help="memory of the driver (%(default)s)")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark property")


def catalog_uri(text: str) -> str:
    """Return the URI of a catalog. Raises ArgumentTypeError."""
    parts = urlsplit(text)
    if not parts.scheme:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URI: expected for example https://HOST")
    if parts.password is not None:
        raise argparse.ArgumentTypeError("a password here is seen by others: write the URI to .pyiceberg.yaml")
    return text


def window(text: str) -> timedelta:
    """Parse a time such as "60" (minutes), "12h" or "7d". Raises ArgumentTypeError."""
    try:
        return timedelta(seconds=minutes(text))
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is too long") from None


def pairs(words: list[str], name: str) -> dict[str, str]:
    """Parse NAME=VALUE arguments. Raises PipelineError."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise PipelineError(f"{name} {word!r}: expected NAME=VALUE")
        found[key] = value
    return found


def check_options(options: argparse.Namespace) -> None:
    """Raise PipelineError for options that do not go together."""
    if options.table and not options.checkpoint:
        raise PipelineError("--table needs --checkpoint DIR")
    if options.dedup and options.decode in ("raw", "body"):
        raise PipelineError("--dedup needs --decode full, because it compares message ids")
    if options.unique and options.format not in FORMATS:
        raise PipelineError(f"--unique needs --format {' or '.join(FORMATS)}, whose tables the query can read")
    if options.unique_within is not None and not options.unique:
        raise PipelineError("--unique-within needs --unique")
    for name in ("catalog", "catalog_option"):
        if getattr(options, name) and options.format != "iceberg":
            raise PipelineError(f"--{name.replace('_', '-')} needs --format iceberg")
    if options.bad_payloads != "keep" and not (options.table and options.decode in PAYLOADS):
        raise PipelineError(f"--bad-payloads needs --table, and --decode {' or '.join(PAYLOADS)}")
    if (options.bad_payloads == "deadletter") != bool(options.dead_letters):
        raise PipelineError("--bad-payloads deadletter and --dead-letters TABLE need each other")
    if options.dead_letters and options.format not in FORMATS:
        raise PipelineError(f"--dead-letters needs --format {' or '.join(FORMATS)}")
    if options.dead_letters and options.dead_letters == options.table:
        raise PipelineError("--dead-letters: the table of --table cannot have them as well")


def run(options: argparse.Namespace) -> int:
    check_options(options)
    require("pyspark", "pandas", "pyarrow")
    if options.format in FORMATS:
        require({"delta": "deltalake", "iceberg": "pyiceberg"}[options.format], extra="tables")
    find_java()
    from sluice.pipeline.segments import Landing
    from sluice.pipeline.spark_api import check_stream_reader

    if not options.show:
        check_stream_reader("--table", "--show shows what has landed")
    Landing.open(options.path)
    from sluice.pipeline.env import convert_spark_errors, spark_session

    source = data_source_options(options)
    spark = spark_session(
        "sluice pipeline query", master=options.master, memory=options.memory, conf=pairs(options.conf, "--conf")
    )
    try:
        if options.show:
            with convert_spark_errors():
                table = spark.read.format("amqp").options(**source).load(options.path)
                with_text_bodies(table).limit(options.show).show(options.show, truncate=60)
            return 0
        frame = spark.readStream.format("amqp").options(**source).load(options.path)
        return write_stream(frame, options)
    finally:
        spark.stop()


def data_source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of the data source. Raises PipelineError."""
    source = {"decode": options.decode, "group": options.group, **pairs(options.option, "--option")}
    if not source.keys() & {"minOffsetsPerTrigger", "minRecordsPerTrigger", "maxTriggerDelay"}:
        source |= {"minOffsetsPerTrigger": str(options.min_rows), "maxTriggerDelay": f"{int(options.max_delay)}s"}
    if options.decode not in ("raw", "body"):
        source.setdefault("includeHeaders", "true")
    if not options.show and any(name.lower() == "schemaregistry" for name in source):
        source.setdefault("schemaRegistryRetries", "true")
    if options.bad_payloads == "fail":
        source["onBadPayload"] = "fail"
    if options.address:
        source["subscribe"] = ",".join(options.address)
    return source


def write_stream(frame: "DataFrame", options: argparse.Namespace) -> int:
    """Write a stream of the data source to the tables that the options name, until the query ends."""
    rows = count_errors(drop_repetitions(count_retries(frame), options.dedup).drop("batch_time"))
    if options.bad_payloads == "drop":
        rows = rows.filter(f"{ERROR} is null")
    if options.format in FORMATS:
        batches = batch_writer(rows, options)
        progress = QueryProgress(batches)
        if options.dedup:  # its shuffle would make a file for each of its partitions
            rows = rows.repartition(1)
        folder, writer = None, rows.writeStream.foreachBatch(batches)
    else:
        progress = QueryProgress()
        folder, writer = options.table, rows.writeStream.format("parquet").outputMode("append")
        if options.partition_by:
            writer = writer.partitionBy(*options.partition_by)
    if options.metrics:
        from sluice.pipeline.metrics_server import serve
        from sluice.pipeline.query_metrics import QueryCollector

        print(f"metrics at {serve(QueryCollector(progress), options.metrics)}", file=sys.stderr)
    writer = set_trigger(writer, options).option("checkpointLocation", options.checkpoint)
    return run_query(writer, folder, progress)


def batch_writer(rows: "DataFrame", options: argparse.Namespace) -> "TableBatchWriter":
    """Return a writer of the batches to the tables that the options name."""
    from sluice.pipeline.tables.batch_writer import TableBatchWriter
    from sluice.pipeline.tables.table import open_table

    properties = pairs(options.catalog_option, "--catalog-option")
    if options.catalog:
        properties["uri"] = options.catalog

    def opened(name: str) -> "TargetTable":
        return open_table(options.format, name, rows.schema, options.partition_by, properties)

    dead_letters = opened(options.dead_letters) if options.dead_letters else None
    return TableBatchWriter(opened(options.table), options.unique, rows.columns, dead_letters, options.unique_within)


def set_trigger(writer: Any, options: argparse.Namespace) -> Any:
    """Set the trigger that the options request."""
    if options.once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{int(options.trigger * 1000)} milliseconds")


def with_text_bodies(frame: "DataFrame") -> "DataFrame":
    """Return the frame with text bodies as strings."""
    if "body" not in frame.columns:
        return frame
    from pyspark.sql import functions

    return frame.withColumn("body", functions.col("body").cast("string"))


def drop_repetitions(frame: "DataFrame", seconds: int | None) -> "DataFrame":
    """Drop repetitions of (address, message_id) within so many seconds.

    The watermark is on the batch time. On the landing time it would drop messages of a log that is behind others. A
    message without an id is never a repetition: its place in the landing folder is its key.
    """
    if seconds is None:
        return frame
    from pyspark.sql import functions as f

    place = f.concat_ws("/", f.lit("place:"), "lander", f.col("segment"), f.col("ordinal"))
    return (
        frame.withWatermark("batch_time", f"{seconds} seconds")
        .withColumn("_key", f.coalesce(f.concat(f.lit("id:"), "message_id"), place))
        .dropDuplicatesWithinWatermark(["address", "_key"])
        .drop("_key")
    )


def count_errors(frame: "DataFrame") -> "DataFrame":
    """Let the progress of a query have the number of its payloads that cannot be decoded."""
    if ERROR not in frame.columns:
        return frame
    from pyspark.sql import functions as f

    return frame.observe(OBSERVED, f.count(ERROR).alias(ERROR))


def count_retries(frame: "DataFrame") -> "DataFrame":
    """Let the progress of a query have the repeated requests to the schema registry; drop their columns."""
    if not {RETRIES, RETRY_ERROR} <= set(frame.columns):
        return frame
    from pyspark.sql import functions as f

    sums = (f.sum(RETRIES).alias(RETRIES), f.max(RETRY_ERROR).alias(RETRY_ERROR))
    return frame.observe(REGISTRY_OBSERVED, *sums).drop(RETRIES, RETRY_ERROR)


def run_query(writer: Any, out: str | None, progress: QueryProgress | None = None) -> int:
    """Start a query and print its progress until it ends. Raises PipelineError if it fails or loses messages."""
    from sluice.pipeline.env import convert_spark_errors

    progress = progress or QueryProgress()
    began = time.monotonic()
    with convert_spark_errors():
        query = writer.start(out) if out else writer.start()
        try:
            ended = False
            while not ended:
                ended = query.awaitTermination(LOOK)
                for each in progress.add(query.recentProgress):
                    bad = undecoded(each)
                    retries, error = registry_retries(each)
                    print(
                        f"batch {each.batchId}: {each.numInputRows} messages, "
                        f"{f'{bad} of them not decoded, ' if bad else ''}"
                        f"{each.processedRowsPerSecond:.0f}/s; {progress.read} in all",
                        file=sys.stderr,
                    )
                    if retries:
                        print(f"schema registry: {retries} requests repeated, the last: {error}", file=sys.stderr)
        finally:
            query.stop()
    repeated = f", {progress.repeated} of them repeated" if progress.repeated else ""
    if progress.undecoded:
        print(f"{progress.undecoded} payloads could not be decoded", file=sys.stderr)
    print(f"{progress.read} messages{repeated} in {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0
