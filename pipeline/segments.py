"""Landing folders: what is in them, and by which names.

    _sluice.json                     {"format": 1}
    _consumers/GROUP.json            how far a group of readers has come
    LANDER/.lock                     held by the lander of this id
    LANDER/ADDRESS/NUMBER-LANDED-ROWS-BYTES.parquet

A *log* is what one lander has landed from one address: segments 0, 1, 2, …, each immutable. Its key is
"LANDER/ADDRESS", with the address quoted as in a URL. Offsets are {log: number of the next segment}. A name says when
its segment landed (ms; never less than its predecessor's, whatever the clock does), its rows and its octets, so that
planning opens no file, and a file that is cut short is found from the listing. Names that begin with "." or "_" are no
segments, for Spark's own sources as well.

Neither Spark nor pyarrow is needed to plan in a folder on a local disk.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pipeline.errors import LandingError
from pipeline.stores import Store, open_store

FORMAT = 1
FORMAT_FILE = "_sluice.json"
FORMAT_KEY = b"sluice.format"  # in the metadata of each segment
CONSUMERS = "_consumers"
LOCK = ".lock"
NAME = re.compile(r"(\d{12})-(\d{13,})-(\d+)-(\d+)\.parquet")
LANDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FOLDER_MOST = 200  # octets of an address that is quoted

Offsets = dict[str, int]


def schema() -> Any:
    """Columns of a segment (a pyarrow.Schema). Those that its name and folder tell are not among them."""
    import pyarrow as pa

    return pa.schema(
        [
            ("message", pa.binary()),  # all sections, as they came
            ("address", pa.string()),
            ("link", pa.string()),
            ("ingress_router", pa.string()),  # null where the router strips annotations
            ("arrived", pa.timestamp("us", tz="UTC")),
            ("ordinal", pa.int32()),  # within the segment, from 0
        ],
        metadata={FORMAT_KEY: str(FORMAT).encode()},
    )


def check_metadata(metadata: Mapping[bytes, bytes] | None, path: str) -> None:
    """Of a segment's Parquet file. Raises LandingError for one that is none of ours, or of another format."""
    found = (metadata or {}).get(FORMAT_KEY)
    if found is None:
        raise LandingError(f"{path} was not written by a lander")
    if found != str(FORMAT).encode():
        raise LandingError(f"{path} has format {found.decode(errors='replace')}; this version reads {FORMAT}")


class Log(NamedTuple):
    """What one lander has landed from one address."""

    lander: str
    address: str

    @property
    def key(self) -> str:
        return f"{self.lander}/{quote_address(self.address)}"


def quote_address(address: str) -> str:
    """As the name of a folder. Raises LandingError for one that is too long."""
    quoted = quote(address, safe="$@+=,~")
    if quoted[:1] in ("_", "."):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if not quoted or len(quoted) > FOLDER_MOST:
        raise LandingError(f"address {address!r} is no name for a folder: 1 to {FOLDER_MOST} octets, quoted")
    return quoted


def log_of(key: str) -> Log:
    """Raises LandingError for what is no key of a log."""
    lander, slash, folder = key.partition("/")
    if not slash or not LANDER.fullmatch(lander) or not folder or "/" in folder:
        raise LandingError(f"{key!r} is no log: expected LANDER/ADDRESS, with the address quoted")
    return Log(lander, unquote(folder))


class Segment(NamedTuple):
    """One file of a log."""

    log: str  # key
    number: int
    landed: int  # ms since 1970
    rows: int
    octets: int  # of the file

    @property
    def name(self) -> str:
        return f"{self.number:012}-{self.landed:013}-{self.rows}-{self.octets}.parquet"

    @property
    def path(self) -> str:
        """In its store."""
        return f"{self.log}/{self.name}"


def read_name(log: str, name: str) -> Segment | None:
    """None: no segment has such a name."""
    match = NAME.fullmatch(name)
    return Segment(log, *(int(part) for part in match.groups())) if match else None


@dataclass(frozen=True)
class Listing:
    """What lies in the folder of a log."""

    log: str
    segments: list[Segment]  # by number
    foreign: list[str] = field(default_factory=list)  # names that are no segments

    def until_hole(self, first: int | None = None) -> list[Segment]:
        """Segments from number `first` (None: the oldest that is here) to the first hole. Empty when that one
        is missing."""
        found: list[Segment] = []
        for segment in self.segments:
            if first is None:
                first = segment.number
            if segment.number < first:
                continue
            if segment.number != first + len(found):
                break
            found.append(segment)
        return found

    def range(self, first: int, end: int) -> tuple[list[Segment], list[int]]:
        """Segments first … end - 1, and the numbers that are missing among them."""
        by_number = {segment.number: segment for segment in self.segments}
        wanted = range(first, end)
        return [by_number[n] for n in wanted if n in by_number], [n for n in wanted if n not in by_number]

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.segments[-1].number + 1 if self.segments else 0

    @property
    def octets(self) -> int:
        return sum(segment.octets for segment in self.segments)


@dataclass(frozen=True)
class Group:
    """How far readers that share a name have come. Without `subscribe` and `pattern` they read all addresses."""

    name: str
    offsets: Offsets
    subscribe: tuple[str, ...] = ()
    pattern: str = ""
    committed: int = 0  # ms since 1970

    def wants(self, address: str) -> bool:
        if self.subscribe or self.pattern:
            return address in self.subscribe or bool(self.pattern and re.fullmatch(self.pattern, address))
        return True


class Landing:
    """A landing folder. Cheap to make; what executors need of it is `url`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url

    @classmethod
    def open(cls, url: str) -> "Landing":
        """An existing one. Raises LandingError when there is none, or one of another format."""
        landing = cls(open_store(url))
        octets = landing.store.read(FORMAT_FILE)
        if octets is None:
            raise LandingError(f"{url} is no landing folder: it has no {FORMAT_FILE} (has a lander ever run with it?)")
        landing._check_format(octets)
        return landing

    @classmethod
    def create(cls, url: str) -> "Landing":
        """An existing one, or a new one. Raises LandingError for one of another format; OSError."""
        landing = cls(open_store(url))
        octets = landing.store.read(FORMAT_FILE)
        if octets is None:
            landing.store.make_folder("")
            landing.store.publish(FORMAT_FILE, json.dumps({"format": FORMAT}).encode())
        else:
            landing._check_format(octets)
        return landing

    def _check_format(self, octets: bytes) -> None:
        try:
            found = json.loads(octets)["format"]
        except (ValueError, KeyError, TypeError):
            raise LandingError(f"{self.url}: {FORMAT_FILE} is damaged: {octets[:80]!r}") from None
        if found != FORMAT:
            raise LandingError(f"{self.url} has format {found}; this version of the pipeline reads {FORMAT}")

    # -- logs ----------------------------------------------------------------------------------------------------------

    def landers(self) -> list[str]:
        return [name for name in self.store.folders("") if LANDER.fullmatch(name)]

    def logs(self) -> list[Log]:
        """In the order of their keys."""
        return sorted(
            (
                Log(lander, unquote(folder))
                for lander in self.landers()
                for folder in self.store.folders(lander)
                if not folder.startswith((".", "_"))
            ),
            key=lambda log: log.key,
        )

    def listing(self, log: str, known: Mapping[str, Segment] | None = None) -> Listing:
        """What is in a log now. known: segments of an earlier listing by name; they are not looked at again. Raises
        LandingError for a file that is cut short, and for two with one number."""
        segments: list[Segment] = []
        foreign: list[str] = []
        for name, size in self.store.files(log):
            segment = known.get(name) if known else None
            if segment is None:
                if name.startswith((".", "_")):
                    continue
                segment = read_name(log, name)
                if segment is None:
                    foreign.append(name)
                    continue
                if size != segment.octets:
                    raise LandingError(
                        f"{self.url}/{segment.path} has {size} octets in place of {segment.octets}: it is damaged"
                    )
            segments.append(segment)
        segments.sort()
        for one, other in pairwise(segments):
            if one.number == other.number:
                raise LandingError(f"{self.url}/{log} has two segments {one.number}: {one.name}, {other.name}")
        return Listing(log, segments, sorted(foreign))

    # -- groups --------------------------------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Write down how far a group has come."""
        if not GROUP.fullmatch(group.name):
            raise LandingError(f"group {group.name!r}: expected letters, digits, '.', '_' and '-', 100 at most")
        state = {
            "offsets": dict(sorted(group.offsets.items())),
            "subscribe": list(group.subscribe),
            "pattern": group.pattern,
            "committed": group.committed or now(),
        }
        self.store.make_folder(CONSUMERS)
        self.store.publish(f"{CONSUMERS}/{group.name}.json", json.dumps(state).encode())

    def groups(self) -> list[Group]:
        """All of them, by name. Raises LandingError for a damaged file."""
        found = []
        for file, _ in sorted(self.store.files(CONSUMERS)):
            name, dot, suffix = file.rpartition(".")
            octets = (
                self.store.read(f"{CONSUMERS}/{file}") if dot and suffix == "json" and GROUP.fullmatch(name) else None
            )
            if octets is None:  # not ours, or deleted meanwhile
                continue
            try:
                state = json.loads(octets)
                offsets = {str(log): int(number) for log, number in state["offsets"].items()}
                group = Group(name, offsets, tuple(state["subscribe"]), state["pattern"], int(state["committed"]))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise LandingError(f"{self.url}/{CONSUMERS}/{file} is damaged") from None
            found.append(group)
        return found

    def forget_group(self, name: str) -> None:
        self.store.delete(f"{CONSUMERS}/{name}.json")


def consumed(log: Log, groups: Iterable[Group]) -> int:
    """The number before which every group that wants a log has read it; 0 when none does."""
    return min((group.offsets.get(log.key, 0) for group in groups if wants(group, log)), default=0)


def wants(group: Group, log: Log) -> bool:
    return log.key in group.offsets or group.wants(log.address)


def staged(listing: Listing, first: int) -> int:
    """Octets of the segments from a number on."""
    return sum(segment.octets for segment in listing.segments if segment.number >= first)


def collect(landing: Landing, retention: float, *, at: int | None = None, dry: bool = False) -> list[Segment]:
    """Delete what all groups have read and what landed more than `retention` seconds ago; returns that. The last
    segment of a log stays: numbers go on from it."""
    groups = landing.groups()
    before = (now() if at is None else at) - int(retention * 1000)
    deleted = []
    for log in landing.logs():
        end = consumed(log, groups)
        for segment in landing.listing(log.key).segments[:-1]:
            if segment.number < end and segment.landed <= before:
                if not dry:
                    landing.store.delete(segment.path)
                deleted.append(segment)
    return deleted


def now() -> int:
    """ms since 1970."""
    return time.time_ns() // 1_000_000
