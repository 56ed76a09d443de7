"""Landing folders: their content and file names.

    _sluice.json                     {"format": 2, "id": …}
    _consumers/GROUP.json            offsets of a group of readers
    _resets/GROUP.json               position at which the group has to go on (resets.py)
    LANDER/.lock                     held by the lander of this id
    LANDER/ADDRESS/_log.json         {"id": …}
    LANDER/ADDRESS/THOUSANDS/NUMBER-LANDED-ROWS-BYTES.parquet
    LANDER/ADDRESS/merged/FIRST-LAST-LANDED-ROWS-BYTES.parquet

A *log* holds the segments that one lander wrote for one address: 0, 1, 2, …, each immutable. Its key is
"LANDER/ADDRESS", with the address quoted as in a URL. Offsets are {log: number of the next segment}. A segment's name
tells its landing time (ms, by the lander's clock, which may jump: only numbers are in order), its rows and its octets.
Planning therefore opens no segment, and the listing shows if a file is truncated. Names that begin with "." or "_" are
no segments, which holds for Spark's own sources as well. In format 1, all segments of a log were in LANDER/ADDRESS.
Such segments are still read; a lander writes new ones to folders, so that readers need not list what they have read.

A *merged file* has the rows of the segments FIRST to LAST, each row with its segment's number and landing time
(merging.py). LANDED is the landing time of the segment LAST, and no segment in the file landed later. While the
segments themselves still exist, they are *covered*: each number counts once, in its largest file. A reader that stands
at a number inside a merged file reads the part behind it.

Planning in a folder on a local disk needs neither Spark nor pyarrow, unless it begins at a time within a merged file.
"""

import heapq
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from sluice.pipeline.errors import LandingError
from sluice.pipeline.identity import new_identity, parse_identity
from sluice.pipeline.resets import delete_reset, read_reset
from sluice.pipeline.stores import LandingStore, open_store
from sluice.router import json_codec

FORMAT = 1  # of a segment's file
FOLDER_FORMAT = 2  # of a landing folder
FOLDER_FORMATS = (1, FOLDER_FORMAT)  # readable formats of a landing folder
SEGMENTS_OF_FOLDER = 1000  # numbers of one folder of a log: some minutes of a lander that writes every 200 ms
FORMAT_FILE = "_sluice.json"
LOG_FILE = "_log.json"
FORMAT_KEY = b"sluice.format"  # key in the metadata of each segment
IDENTITY_KEY = b"sluice.log"  # key in the metadata of segments: identity of the log (identity.py)
CHECKSUM_KEY = b"sluice.checksum"  # key in the metadata of segments whose pages have checksums
CONSUMERS = "_consumers"
LOCK = ".lock"
MERGED = "merged"  # folder of a log
NAME = re.compile(r"(\d{12})-(\d{13,})-(\d+)-(\d+)\.parquet")
MERGED_NAME = re.compile(r"(\d{12})-(\d{12})-(\d{13,})-(\d+)-(\d+)\.parquet")
THOUSANDS = re.compile(r"\d{9}")
LANDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FOLDER_MOST = 200  # octets of a quoted address
MOST = 1 << 62  # larger than each number of a segment

Offsets = dict[str, int]


def schema() -> Any:
    """Return the columns of a segment, a pyarrow.Schema. Columns from its name and folder are not included."""
    import pyarrow as pa

    return pa.schema(
        [
            ("message", pa.binary()),  # all sections, as received
            ("address", pa.string()),
            ("link", pa.string()),
            ("ingress_router", pa.string()),  # null where the router strips annotations
            ("arrived", pa.timestamp("us", tz="UTC")),
            ("ordinal", pa.int32()),  # within the segment, from 0
        ],
        metadata={FORMAT_KEY: str(FORMAT).encode()},
    )


def merged_schema() -> Any:
    """Return the columns of a merged file, a pyarrow.Schema: those of a segment, and each row's place."""
    import pyarrow as pa

    place = [pa.field("segment", pa.int64()), pa.field("landed_time", pa.timestamp("us", tz="UTC"))]
    return pa.schema([*schema(), *place], metadata=schema().metadata)


def check_metadata(metadata: Mapping[bytes, bytes] | None, path: str) -> None:
    """Check the metadata of a segment's Parquet file.

    Raises LandingError if no lander wrote it, or if it has another format.
    """
    found = (metadata or {}).get(FORMAT_KEY)
    if found is None:
        raise LandingError(f"{path} was not written by a lander")
    if found != str(FORMAT).encode():
        raise LandingError(f"{path} has format {found.decode(errors='replace')}; this version reads {FORMAT}")


class LandingLog(NamedTuple):
    """Identity of a landing log: one lander and one address."""

    lander: str
    address: str

    @property
    def key(self) -> str:
        return f"{self.lander}/{quote_address(self.address)}"


def quote_address(address: str) -> str:
    """Quote an address for use as a folder name. Raises LandingError if the result is too long."""
    quoted = quote(address, safe="$@+=,~")
    if quoted[:1] in ("_", "."):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if not quoted or len(quoted) > FOLDER_MOST:
        raise LandingError(
            f"address {address!r} cannot be a folder name: expected 1 to {FOLDER_MOST} octets when quoted"
        )
    return quoted


def parse_log_key(key: str) -> LandingLog:
    """Parse the key of a log. Raises LandingError if it is malformed."""
    lander, slash, folder = key.partition("/")
    if not slash or not LANDER.fullmatch(lander) or not folder or "/" in folder:
        raise LandingError(f"{key!r} is not a log: expected LANDER/ADDRESS, with the address quoted")
    return LandingLog(lander, unquote(folder))


class MergedFile(NamedTuple):
    """File with the rows of consecutive segments of a log."""

    log: str  # key of the log
    first: int  # number of the first segment
    last: int  # number of the last segment
    landed: int  # landing time of the last segment, ms since 1970
    rows: int
    octets: int  # size of the file

    @property
    def name(self) -> str:
        return f"{self.first:012}-{self.last:012}-{self.landed:013}-{self.rows}-{self.octets}.parquet"

    @property
    def path(self) -> str:
        """Path in the store."""
        return f"{self.log}/{MERGED}/{self.name}"

    def part(self, first: int, end: int) -> "Segment":
        """Return the part with the numbers `first` to `end` - 1. Rows and octets of a part are estimates."""
        count, whole = end - first, self.last + 1 - self.first
        rows, octets = (max(total * count // whole, 1) for total in (self.rows, self.octets))
        return Segment(self.log, first, self.landed, rows, octets, file=self, span=count)

    def whole(self) -> "Segment":
        """Return the part with all numbers."""
        return self.part(self.first, self.last + 1)


class Segment(NamedTuple):
    """File of a log, or a part of a merged file."""

    log: str  # key of the log
    number: int
    landed: int  # ms since 1970
    rows: int
    octets: int  # size of the file
    flat: bool = False  # in the folder of its log, as in format 1
    file: MergedFile | None = None  # the merged file that has the rows
    span: int = 1  # number of segments in this part of a merged file

    @property
    def end(self) -> int:
        """Number after the last segment."""
        return self.number + self.span

    @property
    def name(self) -> str:
        if self.file is not None:
            return self.file.name
        return f"{self.number:012}-{self.landed:013}-{self.rows}-{self.octets}.parquet"

    @property
    def path(self) -> str:
        """Path in the store."""
        return f"{self.folder}/{self.name}"

    @property
    def folder(self) -> str:
        if self.file is not None:
            return f"{self.log}/{MERGED}"
        return self.log if self.flat else f"{self.log}/{folder_name(self.number)}"

    def part(self, first: int, end: int) -> "Segment":
        """Return the part of a merged file with the numbers from `first` to `end` - 1, as far as this part has them."""
        first, end = max(first, self.number), min(end, self.end)
        return self if self.file is None or (first, end) == (self.number, self.end) else self.file.part(first, end)


def clip(segments: Iterable[Segment], first: int, end: int = MOST) -> list[Segment]:
    """Return the segments with the numbers `first` to `end` - 1, and such parts of merged files."""
    return [each.part(first, end) for each in segments if each.end > first and each.number < end]


def arrange(files: Iterable[MergedFile]) -> tuple[list[Segment], list[Segment]]:
    """Return the parts of a log's merged files that count, by number and without overlap, and the files without any.

    Of two files with one number, the file that begins earlier counts, or the longer one of equal beginnings.
    """
    parts: list[Segment] = []
    covered: list[Segment] = []
    at = 0
    for file in sorted(files, key=lambda file: (file.first, -file.last)):
        if file.last < at:
            covered.append(file.whole())
        else:
            parts.append(file.part(max(file.first, at), file.last + 1))
            at = file.last + 1
    return parts, covered


def is_covered(segment: Segment, parts: Sequence[Segment]) -> bool:
    """Return True if one of `parts`, as `arrange` returns them, has the number of a segment."""
    index = bisect_right(parts, segment.number, key=lambda part: part.number) - 1
    return index >= 0 and segment.number < parts[index].end


def folder_name(number: int) -> str:
    """Return the name of the folder, within its log, of the segment with this number."""
    return f"{number // SEGMENTS_OF_FOLDER:09}"


def folder_end(number: int) -> int:
    """Return the number after the last one in the folder of the segment with this number."""
    return (number // SEGMENTS_OF_FOLDER + 1) * SEGMENTS_OF_FOLDER


def parse_segment_name(log: str, name: str, *, flat: bool = False) -> Segment | None:
    """Parse the file name of a segment. None: no such name. flat: it is in the log's own folder."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    number, landed, rows, octets = map(int, match.groups())
    return Segment(log, number, landed, rows, octets, flat)


def parse_merged_name(log: str, name: str) -> MergedFile | None:
    """Parse the name of a merged file. None: no such name."""
    match = MERGED_NAME.fullmatch(name)
    if match is None:
        return None
    file = MergedFile(log, *map(int, match.groups()))
    return file if file.first <= file.last else None


@dataclass(frozen=True)
class Listing:
    """Content of a log's folder."""

    log: str
    segments: list[Segment]  # by number
    foreign: list[str] = field(default_factory=list)  # names that are no segments
    covered: list[Segment] = field(default_factory=list)  # files whose rows are in larger merged files

    def range(self, first: int, end: int) -> tuple[list[Segment], list[int]]:
        """Return the segments with numbers `first` to `end` - 1, and the numbers missing among them."""
        found = clip(self.segments, first, end)
        missing: list[int] = []
        at = first
        for segment in found:
            missing += range(at, segment.number)
            at = segment.end
        return found, missing + list(range(at, end))

    @property
    def end(self) -> int:
        """Number after that of the last segment."""
        return self.segments[-1].end if self.segments else 0

    @property
    def octets(self) -> int:
        return sum(segment.octets for segment in self.segments)


@dataclass(frozen=True)
class Group:
    """Progress of the readers that share a group name. Without `subscribe` and `pattern` they read all addresses."""

    name: str
    offsets: Offsets
    subscribe: tuple[str, ...] = ()
    pattern: str = ""
    committed: int = 0  # ms since 1970
    reset: str = ""  # identity of the last reset that the readers have followed (resets.py)

    def wants(self, address: str) -> bool:
        if self.subscribe or self.pattern:
            return address in self.subscribe or bool(self.pattern and re.fullmatch(self.pattern, address))
        return True


class Landing:
    """Landing folder. Cheap to create: Spark executors need only its `url`."""

    def __init__(self, store: LandingStore) -> None:
        self.store = store
        self.url = store.url
        self.identity: str | None = None  # None: an earlier release made the folder

    @classmethod
    def open(cls, url: str) -> "Landing":
        """Open an existing landing folder. Raises LandingError if there is none, or if it has another format."""
        landing = cls(open_store(url))
        octets = landing.store.read(FORMAT_FILE)
        if octets is None:
            raise LandingError(
                f"{url} is not a landing folder: it has no {FORMAT_FILE}, which the first lander creates"
            )
        landing._check_format(octets)
        return landing

    @classmethod
    def create(cls, url: str) -> "Landing":
        """Open a landing folder; create it if it does not exist. Raises LandingError for another format; OSError."""
        landing = cls(open_store(url))
        octets = landing.store.read(FORMAT_FILE)
        if octets is None:
            landing.store.make_folder("")
            made = json_codec.encode({"format": FOLDER_FORMAT, "id": new_identity()})
            landing._check_format(landing.store.publish_first(FORMAT_FILE, made))
        elif landing._check_format(octets) != FOLDER_FORMAT:
            # From now on it has segments that readers of the older format would not find.
            landing.store.publish(
                FORMAT_FILE, json_codec.encode({**json_codec.decode(octets), "format": FOLDER_FORMAT})
            )
        return landing

    def _check_format(self, octets: bytes) -> int:
        try:
            found = json_codec.decode(octets)["format"]
        except (ValueError, KeyError, TypeError):
            raise LandingError(f"{self.url}: {FORMAT_FILE} is damaged: {octets[:80]!r}") from None
        if found not in FOLDER_FORMATS:
            readable = " and ".join(map(str, FOLDER_FORMATS))
            raise LandingError(f"{self.url} has format {found}; this version of the pipeline reads {readable}")
        self.identity = parse_identity(octets, f"{self.url}/{FORMAT_FILE}")
        return int(found)

    # -- logs ----------------------------------------------------------------------------------------------------------

    def landers(self) -> list[str]:
        return [name for name in self.store.folders("") if LANDER.fullmatch(name)]

    def logs(self) -> list[LandingLog]:
        """Return all logs, sorted by key."""
        return sorted(
            (
                LandingLog(lander, unquote(folder))
                for lander in self.landers()
                for folder in self.store.folders(lander)
                if not folder.startswith((".", "_"))
            ),
            key=lambda log: log.key,
        )

    def listing(self, log: str, first: int = 0, end: int | None = None, *, merged: bool = True) -> Listing:
        """List the segments of a log with numbers from `first` on, and before `end`.

        Folders of other numbers are not listed. merged: list the merged files as well, which costs an object store
        one request more if there are any. They are listed last: a segment that is not in its folder was merged before.
        Raises LandingError for a truncated file and for two files with one number.
        """
        segments: list[Segment] = []
        foreign: list[str] = []
        least = f"{first:012}"
        files, folders = self.store.entries(log, folder_name(first))
        named = [("", name, size) for name, size in files if name >= least]
        for folder in filter(THOUSANDS.fullmatch, folders):
            if end is None or folder <= folder_name(end):
                named += [(folder, *file) for file in self.store.entries(f"{log}/{folder}", least)[0]]
        self._add_files(log, named, segments, foreign)
        parts, covered = self.merged_parts(log, foreign) if merged and MERGED in folders else ([], [])
        covered += [each for each in segments if is_covered(each, parts)]
        segments = [each for each in segments if not is_covered(each, parts)]
        return self._made_listing(log, clip([*parts, *segments], first), foreign, covered)

    def merged_parts(self, log: str, foreign: list[str] | None = None) -> tuple[list[Segment], list[Segment]]:
        """Return the parts of a log's merged files, and the files that are covered by others, as `arrange` does.

        foreign: gets names that are no merged files. Raises LandingError for a truncated file.
        """
        files = []
        for name, size in self.store.files(f"{log}/{MERGED}"):
            file = parse_merged_name(log, name)
            if file is not None:
                self._check_size(file.path, size, file.octets)
                files.append(file)
            elif foreign is not None and not name.startswith((".", "_")):
                foreign.append(f"{MERGED}/{name}")
        return arrange(files)

    def _add_files(
        self, log: str, files: Iterable[tuple[str, str, int]], segments: list[Segment], foreign: list[str]
    ) -> None:
        """Append the files of a log, as (folder, name, octets), to `segments` or, if they are none, to `foreign`."""
        for folder, name, size in files:
            segment = self._segment(log, folder, name, size)
            if segment is not None:
                segments.append(segment)
            elif not name.startswith((".", "_")):
                foreign.append(f"{folder}/{name}" if folder else name)

    def _made_listing(
        self, log: str, segments: list[Segment], foreign: list[str], covered: list[Segment] | None = None
    ) -> Listing:
        """Return a listing. Raises LandingError for two segments with one number."""
        segments.sort(key=lambda segment: segment.number)
        for one, other in pairwise(segments):
            if one.number == other.number:
                names = f"{one.name}, {other.name}"
                raise LandingError(f"{self.url}/{log} has two segments with number {one.number}: {names}")
        return Listing(log, segments, sorted(foreign), covered or [])

    def following(self, last: Segment) -> Listing:
        """List the segments of a log from `last` on, which is not flat, in its folder and in the next while it is full.

        Segments behind a folder that is not full are missing, so a caller that finds nothing calls `listing`. A call
        costs one request to an object store for each folder. Raises LandingError as `listing` does.
        """
        segments: list[Segment] = []
        foreign: list[str] = []
        number = last.number
        while True:
            folder = folder_name(number)
            files = self.store.entries(f"{last.log}/{folder}", f"{number:012}")[0]
            self._add_files(last.log, [(folder, *file) for file in files], segments, foreign)
            number = folder_end(number)
            if not segments or max(segments).number != number - 1:
                return self._made_listing(last.log, segments, foreign)

    def log_identity(self, log: str) -> str | None:
        """Return the identity of a log; None if it has none: an earlier release wrote it. Raises LandingError."""
        path = f"{log}/{LOG_FILE}"
        octets = self.store.read(path)
        return None if octets is None else parse_identity(octets, f"{self.url}/{path}")

    def identify_log(self, log: str) -> str:
        """Return the identity of a log; give it one if it has none. Only the log's lander may call this."""
        found = self.log_identity(log)
        if found is None:
            found = new_identity()
            self.store.publish(f"{log}/{LOG_FILE}", json_codec.encode({"id": found}))
        return found

    def _segment(self, log: str, folder: str, name: str, size: int | None) -> Segment | None:
        """Return the segment of a file, None if it is none. folder: "" for the log's own one. size: None if not known.

        Raises LandingError for a truncated file.
        """
        segment = parse_segment_name(log, name, flat=not folder)
        if segment is None or (folder and folder_name(segment.number) != folder):
            return None
        self._check_size(segment.path, size, segment.octets)
        return segment

    def _check_size(self, path: str, size: int | None, expected: int) -> None:
        if size not in (expected, None):
            raise LandingError(f"{self.url}/{path} has {size} octets instead of {expected}: it is damaged")

    def by_number(self, log: str, *, descending: bool = False) -> Iterator[Segment]:
        """Yield the segments of a log by number. Each folder is listed when it is reached; sizes are not checked."""
        step = -1 if descending else 1
        names = self.store.names(log)
        parts = self.merged_parts(log)[0] if MERGED in names else []
        landed = (each for each in self._landed_by_number(log, names, step) if not is_covered(each, parts))
        yield from heapq.merge(parts[::step], landed, key=lambda each: each.number, reverse=descending)

    def _landed_by_number(self, log: str, names: list[str], step: int) -> Iterator[Segment]:
        """Yield the files of single segments. names: of the log's folder. step: -1 for descending numbers."""
        for folder in ["", *filter(THOUSANDS.fullmatch, names)][::step]:
            for name in (self.store.names(f"{log}/{folder}") if folder else names)[::step]:
                segment = self._segment(log, folder, name, None)
                if segment is not None:
                    yield segment

    def end(self, log: str) -> int:
        """Return the number after the last segment of a log; 0 if it has none."""
        return next((segment.end for segment in self.by_number(log, descending=True)), 0)

    def delete(self, segments: Iterable[Segment]) -> None:
        """Delete segments, and the folders that are empty then. Files that a merged file covers are deleted first."""
        found = list(segments)
        merged = [each for each in found if each.file is not None]
        for log in sorted({each.log for each in merged}):
            self._delete_files(self._covered(log, [each for each in merged if each.log == log]))
        self._delete_files(found)

    def _covered(self, log: str, parts: Sequence[Segment]) -> list[Segment]:
        """Return the files of a log whose numbers are within those of one of `parts`, which has more."""
        first, last = parts[0].number, max(each.end for each in parts) - 1
        names = self.store.names(log)
        folders = [
            each for each in names if THOUSANDS.fullmatch(each) and folder_name(first) <= each <= folder_name(last)
        ]
        found = list(self._landed_by_number(log, folders, 1))
        merged = [parse_merged_name(log, name) for name in self.store.names(f"{log}/{MERGED}")]
        found += [each.whole() for each in merged if each is not None]
        return [
            each
            for each in found
            if any(each.span < part.span and clip([each], part.number, part.end) == [each] for part in parts)
        ]

    def _delete_files(self, segments: Iterable[Segment]) -> None:
        folders = set()
        for segment in segments:
            self.store.delete(segment.path)
            if not segment.flat and segment.file is None:
                folders.add(segment.folder)
        for folder in sorted(folders):
            self.store.delete_folder(folder)

    # -- groups --------------------------------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Store the offsets of a group."""
        if not GROUP.fullmatch(group.name):
            raise LandingError(f"group {group.name!r}: expected letters, digits, '.', '_' and '-', 100 at most")
        state = {
            "offsets": dict(sorted(group.offsets.items())),
            "subscribe": list(group.subscribe),
            "pattern": group.pattern,
            "committed": group.committed or now(),
            "reset": group.reset,
        }
        self.store.make_folder(CONSUMERS)
        self.store.publish(f"{CONSUMERS}/{group.name}.json", json_codec.encode(state))

    def groups(self, *, with_resets: bool = True) -> list[Group]:
        """Return all groups, by name. Raises LandingError for a damaged file.

        with_resets: a group whose query has not followed its reset is at the lower of both positions, from which on it
        needs segments.
        """
        found = []
        for file, _ in sorted(self.store.files(CONSUMERS)):
            name, dot, suffix = file.rpartition(".")
            octets = (
                self.store.read(f"{CONSUMERS}/{file}") if dot and suffix == "json" and GROUP.fullmatch(name) else None
            )
            if octets is None:  # not a group's file, or deleted meanwhile
                continue
            try:
                state = json_codec.decode(octets)
                offsets = {str(log): int(number) for log, number in state["offsets"].items()}
                subscribe, pattern, committed = tuple(state["subscribe"]), state["pattern"], int(state["committed"])
                group = Group(name, offsets, subscribe, pattern, committed, str(state.get("reset", "")))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise LandingError(f"{self.url}/{CONSUMERS}/{file} is damaged") from None
            found.append(self._with_reset(group) if with_resets else group)
        return found

    def _with_reset(self, group: Group) -> Group:
        reset = read_reset(self.store, group.name)
        if reset is None or reset.identity == group.reset:
            return group
        lower = {log: min(number, group.offsets.get(log, 0)) for log, number in reset.offsets.items()}
        return replace(group, offsets={**group.offsets, **lower})

    def forget_group(self, name: str) -> None:
        self.store.delete(f"{CONSUMERS}/{name}.json")
        delete_reset(self.store, name)


def first_since(landing: Landing, key: str, at: int) -> int:
    """Return the number of the first segment of a log that landed at `at` (ms) or later; the log's end if none did.

    A merged file is opened if the time may be within it. Raises FileNotFoundError, and LandingError for a merged file
    that cannot be read.
    """
    found = next((each for each in landing.by_number(key) if each.landed >= at), None)
    if found is None:
        return landing.end(key)
    if found.file is None or at <= 0:
        return found.number
    from sluice.pipeline.reading import merged_segments

    return next((each.number for each in merged_segments(landing, found) if each.landed >= at), found.end)


def consumed_end(log: LandingLog, groups: Iterable[Group]) -> int:
    """Return the end of the range that every interested group has read; 0 if no group wants the log."""
    return min((group.offsets.get(log.key, 0) for group in groups if group_wants_log(group, log)), default=0)


def group_wants_log(group: Group, log: LandingLog) -> bool:
    return log.key in group.offsets or group.wants(log.address)


def octets_from(listing: Listing, first: int) -> int:
    """Return the octets of the segments from number `first` on."""
    return sum(segment.octets for segment in clip(listing.segments, first))


def now() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000
