"""Landing folders: their content and file names.

    _sluice.json                     {"format": 2, "id": …}
    _consumers/GROUP.json            offsets of a group of readers
    _resets/GROUP.json               position at which the group has to go on (resets.py)
    LANDER/.lock                     held by the lander of this id
    LANDER/ADDRESS/_log.json         {"id": …}
    LANDER/ADDRESS/THOUSANDS/NUMBER-LANDED-ROWS-BYTES.parquet

A *log* holds the segments that one lander wrote for one address: 0, 1, 2, …, each immutable. Its key is
"LANDER/ADDRESS", with the address quoted as in a URL. Offsets are {log: number of the next segment}. A segment's name
tells its landing time (ms, by the lander's clock, which may jump: only numbers are in order), its rows and its octets.
Planning therefore opens no segment, and the listing shows if a file is truncated. Names that begin with "." or "_" are
no segments, which holds for Spark's own sources as well. In format 1, all segments of a log were in LANDER/ADDRESS.
Such segments are still read; a lander writes new ones to folders, so that readers need not list what they have read.

Planning in a folder on a local disk needs neither Spark nor pyarrow.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
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
NAME = re.compile(r"(\d{12})-(\d{13,})-(\d+)-(\d+)\.parquet")
THOUSANDS = re.compile(r"\d{9}")
LANDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FOLDER_MOST = 200  # octets of a quoted address

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


class Segment(NamedTuple):
    """File of a log."""

    log: str  # key of the log
    number: int
    landed: int  # ms since 1970
    rows: int
    octets: int  # size of the file
    flat: bool = False  # in the folder of its log, as in format 1

    @property
    def name(self) -> str:
        return f"{self.number:012}-{self.landed:013}-{self.rows}-{self.octets}.parquet"

    @property
    def path(self) -> str:
        """Path in the store."""
        return f"{self.folder}/{self.name}"

    @property
    def folder(self) -> str:
        return self.log if self.flat else f"{self.log}/{folder_name(self.number)}"


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


@dataclass(frozen=True)
class Listing:
    """Content of a log's folder."""

    log: str
    segments: list[Segment]  # by number
    foreign: list[str] = field(default_factory=list)  # names that are no segments

    def range(self, first: int, end: int) -> tuple[list[Segment], list[int]]:
        """Return the segments with numbers `first` to `end` - 1, and the numbers missing among them."""
        by_number = {segment.number: segment for segment in self.segments}
        wanted = range(first, end)
        return [by_number[n] for n in wanted if n in by_number], [n for n in wanted if n not in by_number]

    @property
    def end(self) -> int:
        """Number after that of the last segment."""
        return self.segments[-1].number + 1 if self.segments else 0

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

    def listing(self, log: str, first: int = 0, end: int | None = None) -> Listing:
        """List the segments of a log with numbers from `first` on, and before `end`.

        Folders of other numbers are not listed. Raises LandingError for a truncated file and for two files with one
        number.
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
        return self._made_listing(log, segments, foreign)

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

    def _made_listing(self, log: str, segments: list[Segment], foreign: list[str]) -> Listing:
        """Return a listing. Raises LandingError for two segments with one number."""
        segments.sort()
        for one, other in pairwise(segments):
            if one.number == other.number:
                names = f"{one.name}, {other.name}"
                raise LandingError(f"{self.url}/{log} has two segments with number {one.number}: {names}")
        return Listing(log, segments, sorted(foreign))

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
        if size not in (segment.octets, None):
            raise LandingError(
                f"{self.url}/{segment.path} has {size} octets instead of {segment.octets}: it is damaged"
            )
        return segment

    def by_number(self, log: str, *, descending: bool = False) -> Iterator[Segment]:
        """Yield the segments of a log by number. Each folder is listed when it is reached; sizes are not checked."""
        step = -1 if descending else 1
        names = self.store.names(log)
        for folder in ["", *filter(THOUSANDS.fullmatch, names)][::step]:
            for name in (self.store.names(f"{log}/{folder}") if folder else names)[::step]:
                segment = self._segment(log, folder, name, None)
                if segment is not None:
                    yield segment

    def end(self, log: str) -> int:
        """Return the number after the last segment of a log; 0 if it has none."""
        return next((segment.number + 1 for segment in self.by_number(log, descending=True)), 0)

    def delete(self, segments: Iterable[Segment]) -> None:
        """Delete segments, and the folders that are empty then."""
        folders = set()
        for segment in segments:
            self.store.delete(segment.path)
            if not segment.flat:
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
    """Return the number of the first segment of a log that landed at `at` (ms) or later; the log's end if none did."""
    return next((each.number for each in landing.by_number(key) if each.landed >= at), landing.end(key))


def consumed_end(log: LandingLog, groups: Iterable[Group]) -> int:
    """Return the end of the range that every interested group has read; 0 if no group wants the log."""
    return min((group.offsets.get(log.key, 0) for group in groups if group_wants_log(group, log)), default=0)


def group_wants_log(group: Group, log: LandingLog) -> bool:
    return log.key in group.offsets or group.wants(log.address)


def octets_from(listing: Listing, first: int) -> int:
    """Return the octets of the segments from number `first` on."""
    return sum(segment.octets for segment in listing.segments if segment.number >= first)


def now() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000
