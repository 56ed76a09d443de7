"""`sluice pipeline publish`: send the rows of a table, and optionally rows added later, to an address."""

import argparse
from typing import TYPE_CHECKING

from sluice.pipeline.commands.query import add_spark_arguments, pairs, run_query, set_trigger
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.prerequisites import find_java, require
from sluice.pipeline.units import seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELP = "send the rows of a table, and optionally rows added later, to an address"
FORMATS = ("parquet", "json", "csv", "orc", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", required=True, metavar="DIR", help="folder with the files of the table")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="format of the files (%(default)s)")
    parser.add_argument("--url", default="amqp://127.0.0.1:5672", help="URL of the router (%(default)s)")
    parser.add_argument("--address", help="address to send to (default: the column `address`)")
    parser.add_argument(
        "--select", nargs="+", default=[], metavar="EXPRESSION",
        help="SQL expressions to send, e.g. 'to_json(struct(*)) as body' (default: all columns, as message fields)",
    )  # fmt: skip
    parser.add_argument(
        "--order-by", nargs="+", default=[], metavar="COLUMN",
        help="send rows with the same value of the first COLUMN in the order of the others, which are required",
    )  # fmt: skip
    parser.add_argument("--follow", action="store_true", help="also send rows added later; needs --checkpoint")
    parser.add_argument("--checkpoint", metavar="DIR", help="folder for the progress of --follow")
    parser.add_argument("--once", action="store_true", help="with --follow: end when all present rows are sent")
    parser.add_argument(
        "--trigger", type=seconds, default=1.0, metavar="SECONDS", help="interval of batches (%(default)s)"
    )
    parser.add_argument(
        "--on-reject",
        choices=("fail", "drop", "deadletter"),
        default="fail",
        help="action on a rejected message (%(default)s)",
    )
    parser.add_argument("--dead-letter-address", metavar="ADDRESS", help="address for rows refused with deadletter")
    add_spark_arguments(parser)


def run(options: argparse.Namespace) -> int:
    if options.follow != bool(options.checkpoint):
        raise PipelineError("--follow and --checkpoint must be given together")
    if len(options.order_by) == 1:
        raise PipelineError(f"--order-by {options.order_by[0]}: name the columns with the order, too: a table has none")
    require("pyspark", "pandas", "pyarrow")
    find_java()
    sink = {"amqp.url": options.url, "onReject": options.on_reject}
    if options.address:
        sink["address"] = options.address
    if options.dead_letter_address:
        sink["deadLetterAddress"] = options.dead_letter_address
    if options.order_by:
        sink["orderBy"] = options.order_by[0]
    sink |= pairs(options.option, "--option")
    from sluice.pipeline.env import convert_spark_errors, spark_session

    spark = spark_session(
        "sluice pipeline publish", master=options.master, memory=options.memory, conf=pairs(options.conf, "--conf")
    )
    try:
        with convert_spark_errors():
            table = spark.read.format(options.format).load(options.table)
            if not options.follow:
                write_rows(table, options, sink)
                return 0
            stream = spark.readStream.schema(table.schema).format(options.format).load(options.table)
            if options.order_by:  # Spark sorts tables, but no streams
                writer = stream.writeStream.foreachBatch(lambda batch, _: write_rows(batch, options, sink))
            else:
                writer = select_expressions(stream, options).writeStream.format("amqp").options(**sink)
            return run_query(set_trigger(writer.option("checkpointLocation", options.checkpoint), options), None)
    finally:
        spark.stop()


def write_rows(table: "DataFrame", options: argparse.Namespace, sink: dict[str, str]) -> None:
    """Send the rows of a table. sink: options of the sink."""
    selected = select_expressions(order_rows(table, options), options)
    selected.write.format("amqp").mode("append").options(**sink).save()


def order_rows(table: "DataFrame", options: argparse.Namespace) -> "DataFrame":
    """Return the rows with those of a key in one task, in their order, as --order-by says.

    The number of tasks is fixed, because Spark chooses another for a repeated batch otherwise. Keys take turns in a
    task as far as the order allows, because the sink sends one message of a key at a time.
    """
    if not options.order_by:
        return table
    key, *order = options.order_by
    tasks = table.sparkSession.sparkContext.defaultParallelism
    return table.repartition(tasks, key).sortWithinPartitions(*order, key)


def select_expressions(frame: "DataFrame", options: argparse.Namespace) -> "DataFrame":
    """Return the columns to send, with the key of --order-by."""
    if not options.select:
        return frame
    selected = frame.selectExpr(*options.select)
    if options.order_by and options.order_by[0] not in selected.columns:
        return frame.selectExpr(*options.select, options.order_by[0])
    return selected
