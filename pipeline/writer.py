"""Writer of the segments of one log: Parquet encoding, numbering, and recovery of a number after a failed write.

Owner: the lander of the log. It calls `write` from one thread at a time, `staged` and `oldest` from another one.
"""

from threading import Lock
from typing import Any, Protocol

from sluice.pipeline.lag import ReaderLag, lag_of
from sluice.pipeline.output import OutputMemory
from sluice.pipeline.segments import (
    CHECKSUM_KEY,
    FORMAT,
    FORMAT_KEY,
    IDENTITY_KEY,
    Landing,
    LandingLog,
    Segment,
    clip,
    consumed_end,
    group_wants_log,
    now,
    schema,
)

COMPRESSION = "zstd"
CHECKSUM = "crc32"  # of each page, after compression
LEVEL = 1
WRITE_BATCH = 16384  # rows that Parquet encodes together; the default of 1,024 takes 8 % more time
SAMPLES = 4  # places of a batch that are compressed for an estimate
SAMPLE_OCTETS = 4096  # octets of each of them
#: Fraction of its size to which a sample must shrink. Compressing octets that hardly shrink takes most of a lander's
#: time, and a merge of small segments compresses again.
SHRINKS = 0.8
#: Upper bounds of octets that Parquet adds to those of the messages.
ROW_OCTETS_MOST = 32  # of a row: its length, time, ordinal and levels
FILE_OCTETS_MOST = 1 << 16  # of a file beside its rows: headers of pages and the footer, without its texts
TEXT_COPIES_MOST = 8  # of address and link, in dictionaries and statistics
GROWTH = 64  # a compressed page is longer by less than one GROWTH-th of its octets
#: Groups, by name, whose lag is a metric: readers choose their names.
GROUPS_MOST = 100


class SegmentBatch(Protocol):
    """Messages of a segment, as buffers in the layout of Arrow: octets of all messages, their offsets (int32, one more
    than messages), and times of arrival (int64, µs since 1970)."""

    @property
    def rows(self) -> int: ...
    @property
    def messages(self) -> Any: ...
    @property
    def offsets(self) -> Any: ...
    @property
    def arrived(self) -> Any: ...


_MEMORY = OutputMemory()


class SegmentWriter:
    """Writer of one log's segments. It creates the log's folder."""

    def __init__(self, landing: Landing, log: LandingLog, link: str) -> None:
        """Create the folder and find the next number. link: name of the link. Raises OSError, LandingError."""
        self.landing = landing
        self.log = log
        self.link = link
        self.schema = schema()
        self._zeros: Any = None  # int32 arrays for at least as many rows as the longest batch
        self._ordinals: Any = None
        self._uncertain = False  # the last write failed, so its number may be in use
        self._lock = Lock()  # protects `_unread`
        #: Lag of each group, as of the last call of `staged`; one object, which is replaced.
        self.lags: dict[str, ReaderLag] = {}
        landing.store.make_folder(log.key)
        landing.store.clear(log.key)
        self._find_next()

    def _find_next(self) -> None:
        self.identity = self.landing.identify_log(self.log.key)
        listing = self.landing.listing(self.log.key)
        with self._lock:
            self._unread: list[Segment] = listing.segments
        # Readers may be further than the listing if somebody deleted segments that they had read.
        read = [group.offsets.get(self.log.key, 0) for group in self.landing.groups(with_resets=False)]
        self.number = max([listing.end, *read])

    def write(self, batch: "SegmentBatch") -> Segment:
        """Land a batch; its segment is visible and durable when this returns.

        Raises OSError, and LandingError if the log has become unusable.
        """
        if self._uncertain:
            # The failed segment may exist all the same, and use its number.
            self._find_next()
            self._uncertain = False
        octets = self.encode(batch)
        segment = Segment(self.log.key, self.number, now(), batch.rows, len(octets))
        try:
            self.landing.store.publish(segment.path, octets, cached=False)
        except OSError:
            self._uncertain = True
            raise
        self.number += 1
        with self._lock:
            self._unread.append(segment)
        return segment

    def staged(self) -> int:
        """Return the octets of segments that some group has not read, or that no group wants.

        Raises OSError, LandingError.
        """
        groups = [each for each in self.landing.groups() if group_wants_log(each, self.log)]
        end = consumed_end(self.log, groups)
        with self._lock:
            self._unread = clip(self._unread, end)
            self.lags = {
                each.name: lag_of(self._unread, each.offsets.get(self.log.key, 0)) for each in groups[:GROUPS_MOST]
            }
            return sum(segment.octets for segment in self._unread)

    def oldest(self) -> int | None:
        """Return the landing time in ms of the oldest unread segment. None: all are read."""
        with self._lock:
            return self._unread[0].landed if self._unread else None

    def _constants(self, rows: int) -> tuple[Any, Any]:
        """Return int32 arrays of zeros and of 0, 1, 2, …, which batches share."""
        import pyarrow as pa

        if self._ordinals is None or len(self._ordinals) < rows:
            # Batches vary in length: arrays that grow by a few rows each time would be made for most batches.
            most = 2 * rows
            self._ordinals = pa.array(range(most), pa.int32())
            self._zeros = pa.Array.from_buffers(pa.int32(), most, [None, pa.py_buffer(bytes(4 * most))])
        return self._zeros[:rows], self._ordinals[:rows]

    def _room(self, messages: int, rows: int) -> int:
        """Return an upper bound of the octets of a segment with messages of this length."""
        texts = len(self.log.address.encode()) + len(self.link.encode())
        content = messages + rows * ROW_OCTETS_MOST + texts * TEXT_COPIES_MOST
        return content + content // GROWTH + FILE_OCTETS_MOST

    def encode(self, batch: "SegmentBatch") -> memoryview:
        """Encode a batch as Parquet. The result is valid until the next call in the same thread."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = batch.rows
        messages = memoryview(batch.messages)
        compression = COMPRESSION if compressible(messages) else "none"
        memory = _MEMORY.take(self._room(len(messages), rows))
        zeros, ordinals = self._constants(rows)
        columns = [
            pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.messages)]),
            pa.DictionaryArray.from_arrays(zeros, pa.array([self.log.address]), safe=False),
            pa.DictionaryArray.from_arrays(zeros, pa.array([self.link]), safe=False),
            pa.nulls(rows, pa.string()),
            pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, pa.py_buffer(batch.arrived)]),
            ordinals,
        ]
        table = pa.Table.from_arrays(columns, names=self.schema.names)
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
        # Without the Arrow schema: dictionary encoding is a detail of the file, readers see strings.
        with pq.ParquetWriter(
            sink,
            table.schema,
            compression=compression,
            compression_level=LEVEL if compression == COMPRESSION else None,
            use_dictionary=["address", "link", "ingress_router"],
            column_encoding={"arrived": "DELTA_BINARY_PACKED", "ordinal": "DELTA_BINARY_PACKED"},
            write_statistics=["arrived"],
            store_schema=False,
            write_page_checksum=True,
            write_batch_size=WRITE_BATCH,
        ) as writer:
            metadata = {FORMAT_KEY: str(FORMAT), CHECKSUM_KEY: CHECKSUM, IDENTITY_KEY: self.identity}
            writer.add_key_value_metadata({key.decode(): value for key, value in metadata.items()})
            writer.write_table(table)
        return memoryview(memory)[: sink.tell()]


def compressible(octets: memoryview) -> bool:
    """Return True if samples of `octets` shrink by LZ4, which finds repetitions at a small cost."""
    import pyarrow as pa

    step = max(len(octets) // SAMPLES, SAMPLE_OCTETS)
    sample = b"".join(octets[at : at + SAMPLE_OCTETS] for at in range(0, len(octets), step))
    return len(pa.compress(sample, codec="lz4", asbytes=True)) < SHRINKS * len(sample)
