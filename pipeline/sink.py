"""Writer of data source "amqp": rows to messages, sent by each task on a connection of its own.

`write` returns when every message is settled. A task that Spark repeats sends its messages again with the same ids:
those of the data, or QUERY/BATCH/PARTITION/ORDINAL. The latter are equal if the plan splits a batch in the same way and
keeps the order of its rows.

A failure that would be the same each time (a rejected message, a row that is no message) ends no task, because Spark
would repeat the task and send its messages again. The task reports it, and `commit` raises it in the driver.
"""

import logging
import os
import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.columns import TYPES
from sluice.pipeline.encode import DUPLICATE_IDS, encode, encoded_messages
from sluice.pipeline.errors import PermanentPublishError, PipelineOptionError
from sluice.pipeline.options import OptionReader, choice, number, text
from sluice.pipeline.publisher import Publisher, PublisherOptions
from sluice.pipeline.spark_api import DataSourceStreamArrowWriter
from sluice.pipeline.transactional_publisher import TransactionalPublisher
from sluice.router.client.message import Message
from sluice.router.client.url import parse

OPTIONS = (
    "path", "checkpointLocation", "queryName", "address", "idColumn", "duplicateIds", "orderBy", "transactions",
    "transactionRows", "settlement",
    "maxInFlight", "sendTimeoutMs", "onReject", "onBadRow", "deadLetterAddress", "amqp.url", "amqp.sasl.username",
    "amqp.sasl.passwordFile", "amqp.sasl.passwordEnv", "amqp.container.id", "amqp.idle.timeout.ms",
)  # fmt: skip
INTEGERS = ("tinyint", "smallint", "int", "bigint")
TEXTS = (
    "address", "message_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "group_id", "reply_to_group_id",
)  # fmt: skip
MAPS = tuple(f"map<string,{kind}>" for kind in ("string", "boolean", "double", *INTEGERS))
#: Columns with their permitted types.
COLUMNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TEXTS, ("string",)),
    "body": ("binary", "string"),
    "message": ("binary",),
    "user_id": ("binary",),
    **dict.fromkeys(("creation_time", "absolute_expiry_time"), ("timestamp",)),
    **dict.fromkeys(("group_sequence", "priority", "ttl_ms"), INTEGERS),
    "durable": ("boolean",),
    **dict.fromkeys(("application_properties", "message_annotations"), MAPS),
}
KEYS = ("string", "binary", *INTEGERS)  # types of the column of orderBy
TIMES = ("creation_time", "absolute_expiry_time")
#: Application property of a dead letter: why its row is no message.
REASON = "sluice.reason"
#: Row of a batch, and why it is no message.
BadRow = tuple[int, str]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkOptions:
    """Options of a writer."""

    publisher: PublisherOptions
    id_column: str
    password_file: str
    password_env: str
    user: str
    on_bad_row: str
    order_by: str  # column with the keys of ordered messages, or ""
    duplicate_ids: str  # broker that recognizes copies: key of DUPLICATE_IDS, or ""


def amqp_url(value: str) -> str:
    parse(value)
    return value


def sink_options(given: Mapping[str, str], overwrite: bool) -> SinkOptions:
    """Parse the options of a writer. Raises PipelineOptionError."""
    if overwrite:
        raise PipelineOptionError("mode overwrite is not supported: sent messages cannot be withdrawn; use append")
    options = OptionReader(given, OPTIONS)
    url = options.get("amqp.url", amqp_url, "")
    if not url:
        raise PipelineOptionError("option amqp.url is required: URL of the router to send to")
    on_reject = options.get("onReject", choice("fail", "drop", "deadletter"), "fail")
    dead_letters = options.get("deadLetterAddress", text, "")
    on_bad_row = options.get("onBadRow", choice("fail", "drop", "deadletter"), "fail")
    if ("deadletter" in (on_reject, on_bad_row)) != bool(dead_letters):
        raise PipelineOptionError(
            "options onReject=deadletter or onBadRow=deadletter and deadLetterAddress must be given together"
        )
    settled = options.get("settlement", choice("unsettled", "settled"), "unsettled") == "settled"
    if settled and options.given("onReject"):
        raise PipelineOptionError("option onReject has no effect with settlement=settled: rejections are not reported")
    options.one_of("amqp.sasl.passwordFile", "amqp.sasl.passwordEnv")
    user = options.get("amqp.sasl.username", text, "")
    password_file = options.get("amqp.sasl.passwordFile", text, "")
    password_env = options.get("amqp.sasl.passwordEnv", text, "")
    if bool(user) != bool(password_file or password_env):
        raise PipelineOptionError(
            "option amqp.sasl.username and amqp.sasl.passwordFile or amqp.sasl.passwordEnv must be given together"
        )
    order_by = options.get("orderBy", text, "")
    if order_by and settled:
        raise PipelineOptionError(
            "option orderBy needs settlement=unsettled: the next message of a key waits for outcomes"
        )
    transactions = options.get("transactions", choice("none", "task"), "none") == "task"
    if transactions and settled:
        raise PipelineOptionError("option transactions needs settlement=unsettled: a transaction needs outcomes")
    if options.given("transactionRows") and not transactions:
        raise PipelineOptionError("option transactionRows needs transactions=task")
    duplicate_ids = options.get("duplicateIds", choice("none", *DUPLICATE_IDS), "none")
    client: dict[str, Any] = {"idle": options.get("amqp.idle.timeout.ms", number(0), 60_000) / 1000}
    if container := options.get("amqp.container.id", text, ""):
        client["container"] = container
    return SinkOptions(
        publisher=PublisherOptions(
            url=url,
            address=options.get("address", text, "") or None,
            settled=settled,
            ordered=bool(order_by),
            most=options.get("maxInFlight", number(), 10_000),
            timeout=options.get("sendTimeoutMs", number(), 60_000) / 1000,
            on_reject=on_reject,
            dead_letters=dead_letters or None,
            transactions=transactions,
            transaction_rows=options.get("transactionRows", number(0), 0),
            duplicate_ids=duplicate_ids != "none",
            client=tuple(client.items()),
        ),
        id_column=options.get("idColumn", text, ""),
        password_file=password_file,
        password_env=password_env,
        user=user,
        on_bad_row=on_bad_row,
        order_by=order_by,
        duplicate_ids="" if duplicate_ids == "none" else duplicate_ids,
    )


def check_schema(options: SinkOptions, schema: StructType) -> None:
    """Check the schema of the rows to write. Raises PipelineOptionError."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    identity = options.id_column
    if identity:
        if identity not in kinds:
            raise PipelineOptionError(f"option idColumn: there is no column {identity!r}")
        if kinds[identity] not in ("string", *INTEGERS):
            raise PipelineOptionError(
                f"option idColumn: column {identity!r} is {kinds[identity]}, not a string or integer"
            )
        if "message_id" in kinds and identity != "message_id":
            raise PipelineOptionError("option idColumn: there is a column message_id, too, so give only one of them")
    order_by = options.order_by
    if order_by:
        if order_by not in kinds:
            raise PipelineOptionError(f"option orderBy: there is no column {order_by!r}")
        if kinds[order_by] not in KEYS:
            raise PipelineOptionError(
                f"option orderBy: column {order_by!r} is {kinds[order_by]}, not a string, binary or integer"
            )
    for name, kind in kinds.items():
        if name == identity or (name == order_by and name not in COLUMNS):
            continue
        if name not in COLUMNS:
            raise PipelineOptionError(f"column {name!r}: a message has no such field; there are {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise PipelineOptionError(f"column {name!r} is {kind}; it must be {' or '.join(COLUMNS[name])}")
    if ("address" in kinds) == (options.publisher.address is not None):
        raise PipelineOptionError("option address: give either the option or a column address")
    if "address" in kinds and "to" in kinds:
        raise PipelineOptionError("column to: column address already sets this field, so give only one of them")
    if "message" in kinds and (identity or kinds.keys() - {"message", order_by}):
        raise PipelineOptionError("column message is the whole message, so no other column may be given")
    if "message" in kinds and options.duplicate_ids:
        raise PipelineOptionError("option duplicateIds: column message is sent unchanged, so it gets no id")
    if not {"message", "body"} & set(kinds):
        raise PipelineOptionError("no column body or message: one of them is required")


@dataclass
class TaskCounts(WriterCommitMessage):
    """Counts that a task reports to the driver."""

    accepted: int = 0
    rejected: int = 0
    dropped: int = 0  # rows that are no messages
    failure: str = ""  # "": none


class _SinkWriter:
    """Base class of the batch writer and the stream writer."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self.options = options
        self.query = uuid.uuid4().hex  # query id of a batch, for which Spark has none

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        prefix = self.prefix()
        rows = 0
        counts = TaskCounts()
        options = self.publisher_options()
        publisher = TransactionalPublisher(options) if options.transactions else Publisher(options)
        try:
            with publisher:
                for batch in iterator:
                    bad: list[BadRow] = []
                    messages = self.messages(batch, prefix, rows, bad)
                    if bad:
                        counts.dropped += self.handle_bad_rows(publisher, batch, f"{prefix}/", rows, bad)
                    publisher.send(messages, self.keys(batch, bad))
                    rows += batch.num_rows
                publisher.finish()
        except PermanentPublishError as error:
            counts.failure = str(error)
        counts.accepted, counts.rejected = publisher.accepted, publisher.rejected
        return counts

    def keys(self, batch: pa.RecordBatch, bad: list[BadRow]) -> list[Hashable]:
        """Return the keys of a batch's messages, without `bad` rows; none without option orderBy."""
        if not self.options.order_by:
            return []
        skipped = {row for row, _ in bad}
        keys = batch.column(self.options.order_by).to_pylist()
        return [key for row, key in enumerate(keys) if row not in skipped] if skipped else keys

    def handle_bad_rows(
        self, publisher: Publisher, batch: pa.RecordBatch, prefix: str, first: int, bad: list[BadRow]
    ) -> int:
        """Treat rows that are no messages as the option onBadRow says. Return the number of dropped rows.

        prefix, first: start of the id of a row without message_id, and the ordinal of the first row. Raises
        PermanentPublishError.
        """
        identity = next((name for name in (self.options.id_column, "message_id") if name in batch.schema.names), None)
        keys = [batch.column(identity)[row].as_py() if identity else None for row, _ in bad]
        names = [f"{prefix}{first + row}" if key is None else str(key) for key, (row, _) in zip(keys, bad, strict=True)]
        if self.options.on_bad_row == "fail":
            raise PermanentPublishError(
                f"the row with message_id {names[0]!r} is no message: {bad[0][1]} (onBadRow=drop goes on without it)"
            )
        if self.options.on_bad_row == "drop":
            return len(bad)
        letters = []
        for name, (row, reason) in zip(names, bad, strict=True):
            body = batch.column("body")[row].as_py() if "body" in batch.schema.names else None
            letters.append(Message(body, message_id=name, properties={REASON: reason}).encode())
        publisher.send_dead_letters(MessageBatch.of(letters))
        return 0

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report, in the driver, what the tasks of a batch could not send. Raises PermanentPublishError."""
        tasks = [each for each in messages if isinstance(each, TaskCounts)]
        failures = [each.failure for each in tasks if each.failure]
        if failures:
            more = f" ({len(failures)} tasks failed)" if len(failures) > 1 else ""
            raise PermanentPublishError(failures[0] + more)
        if dropped := sum(each.dropped for each in tasks):
            log.warning("%d rows are no messages and were dropped (onBadRow=drop)", dropped)

    def publisher_options(self) -> PublisherOptions:
        """Return the publisher's options with the password. Raises PipelineOptionError.

        The password is read in the task, so that it is in no query plan.
        """
        options = self.options.publisher
        if not self.options.user:
            return options
        if self.options.password_env:
            password = os.environ.get(self.options.password_env)
            if password is None:
                raise PipelineOptionError(f"option amqp.sasl.passwordEnv: {self.options.password_env} is not set here")
        else:
            try:
                password = Path(self.options.password_file).read_text(encoding="utf-8").partition("\n")[0]
            except OSError as error:
                raise PipelineOptionError(f"option amqp.sasl.passwordFile: {error}") from None
        return PublisherOptions(
            **{**options.__dict__, "client": (*options.client, ("login", (self.options.user, password)))}
        )

    def prefix(self) -> str:
        """Return the prefix of this task's message ids. It is equal for each attempt at the task."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query = context.getLocalProperty("sql.streaming.queryId") or self.query
        batch = context.getLocalProperty("streaming.sql.batchId") or "0"
        return f"{query}/{batch}/{context.partitionId()}"

    def messages(self, batch: pa.RecordBatch, prefix: str, first: int, bad: list[BadRow]) -> MessageBatch:
        """Encode a batch. first: number of rows before it. bad: list for the rows that are no messages.

        Raises PermanentPublishError for columns that cannot be encoded.
        """
        rows = batch.num_rows
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "message" in columns:
            return encoded_messages(columns["message"].cast(pa.binary()), rows, bad)
        values = {name: _values(name, column) for name, column in columns.items()}
        if self.options.id_column:
            values["message_id"] = columns[self.options.id_column].cast(pa.string())
            if self.options.id_column != "message_id":
                del values[self.options.id_column]
        if self.options.order_by not in COLUMNS:
            values.pop(self.options.order_by, None)
        if "message_id" not in values:
            values["message_id"] = pa.nulls(rows, pa.string())
        if "address" in values:
            values["to"] = values.pop("address")
        try:
            return encode(
                values, rows, prefix, first,
                addressed="address" in columns, duplicate_ids=self.options.duplicate_ids, bad=bad,
            )  # fmt: skip
        except (ValueError, pa.ArrowInvalid) as error:
            raise PermanentPublishError(str(error)) from None


def _values(name: str, column: pa.Array) -> pa.Array:
    """Cast a column to a type that `encode` accepts."""
    if name in TIMES:
        return column.cast(TYPES["timestamp"]).cast(pa.int64())
    kind = column.type
    if pa.types.is_map(kind):
        values = _simple(kind.item_type)
        return column.cast(pa.map_(pa.string(), values))
    return column.cast(_simple(kind))


def _simple(kind: pa.DataType) -> pa.DataType:
    """Return the type in which `encode` takes values of `kind`."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


class BatchWriter(_SinkWriter, DataSourceArrowWriter):
    """Writer of `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log.warning("a write to %s failed; messages that were accepted stay sent", self.options.publisher.url)


class StreamWriter(_SinkWriter, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("batch %d to %s failed; messages that were accepted stay sent", batchId, self.options.publisher.url)
