"""Options of the data source, as Spark passes them: texts by case-insensitive name. Each error names its option."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from sluice.pipeline.errors import LandingError, PipelineOptionError
from sluice.pipeline.payloads import FORMATS as PAYLOADS
from sluice.pipeline.segments import GROUP, Offsets, parse_log_key
from sluice.router import json_codec

T = TypeVar("T")
EARLIEST, LATEST = "earliest", "latest"
MODES = ("raw", "body", "full", *PAYLOADS)
PATHS = "paths"  # option in which Spark gives the argument of `load`, if it is a list
SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SOURCE = (
    "path", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "maxRecordsPerTrigger", "maxOffsetsPerTrigger",
    "minRecordsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "minPartitions",
    "failOnDataLoss", "group", "decode", "columns", "payloadSchema", "payloadMessage", "payloadContentType",
    "onBadPayload", "payloadSubject", "schemaRegistry", "schemaRegistryUser", "schemaRegistryPasswordFile",
    "schemaRegistryPasswordEnv", "schemaRegistryCaFile", "schemaRegistryRetries",
    "includeHeaders", "deleteOnCommit", "retentionMinutes", "holeTimeoutMs",
)  # fmt: skip

#: Properties that Spark adds to the options of a table in its catalog.
TABLE = frozenset(
    ("owner", "provider", "location", "external", "is_managed_location", "comment", "collation", "table_type")
)
#: Prefix under which Spark repeats the options of a table.
TABLE_PREFIX = "option."


class OptionReader:
    """Reader and checker of the options of one source or sink.

    An unknown option is an error. Options of a table in Spark's catalog also have the properties of that table, so
    only names like those of options are errors there.
    """

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        table = not TABLE.isdisjoint(self._given)
        for name in sorted(self._given.keys() - TABLE):
            if name in names or name == PATHS or name.startswith(TABLE_PREFIX):
                continue
            near = get_close_matches(name, names, 1)
            if table and not near:
                continue
            hint = f" (is it {names[near[0]]}?)" if near else ""
            raise PipelineOptionError(f"option {name!r}: there is no such option{hint}")
        self._take_path(names)

    def _take_path(self, names: Mapping[str, str]) -> None:
        """Take the path from the option in which Spark gives that of `load([path])`."""
        if "path" not in names or PATHS not in self._given:
            return
        try:
            found = json_codec.decode(self._given[PATHS])
        except ValueError:
            found = None
        if not isinstance(found, list) or len(found) != 1:
            raise PipelineOptionError("option path: one landing folder is expected, and not a list of several")
        self._given["path"] = str(found[0])

    def get(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Return the value of an option. A ValueError of `parse` becomes a PipelineOptionError with its name."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text.strip())
        except (ValueError, LandingError) as error:
            raise PipelineOptionError(f"option {name}: {error}") from None

    def given(self, *names: str) -> list[str]:
        return [name for name in names if name.lower() in self._given]

    def one_of(self, *names: str) -> None:
        """Raise PipelineOptionError if more than one of these options is given."""
        found = self.given(*names)
        if len(found) > 1:
            raise PipelineOptionError(f"options {' and '.join(found)}: only one of them can be given")


def text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.lower() == "true"


def number(least: int = 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,18}", value) or int(value) < least:
            raise ValueError(f"{value!r} is not a whole number of {least} or more")
        return int(value)

    return parse


def parse_real(value: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
        raise ValueError(f"{value!r} is not a number of 0 or more")
    return float(value)


def octets(value: str) -> int:
    match = re.fullmatch(r"(\d{1,15})([kmg]?)b?", value.lower())
    if match is None or not int(match[1]):
        raise ValueError(f"{value!r} is not a size: expected for example 512m")
    return int(match[1]) * SIZES[match[2]]


def choice(*values: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"{value!r} is not one of {', '.join(values)}")
        return value.lower()

    return parse


def names(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(","))
    if not all(found):
        raise ValueError(f"{value!r} has an empty name")
    return found


def distinct_names(value: str) -> tuple[str, ...]:
    found = names(value)
    if len(set(found)) < len(found):
        raise ValueError(f"{value!r} has a name twice")
    return found


def lower_names(value: str) -> tuple[str, ...]:
    return names(value.lower())


def pattern(value: str) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from None
    return value


def group(value: str) -> str:
    if not GROUP.fullmatch(value):
        raise ValueError(f"{value!r}: expected letters, digits, '.', '_' and '-', 100 at most")
    return value


def offsets(value: str) -> str | Offsets:
    if value.lower() in (EARLIEST, LATEST):
        return value.lower()
    try:
        found = json_codec.decode(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"""{value!r}: expected earliest, latest or JSON like {{"LANDER/ADDRESS": 12}}""")
    return check_offsets(found)


def check_offsets(found: Mapping[str, Any]) -> Offsets:
    """Return the offsets of this source, sorted by log. Raises ValueError, LandingError."""
    for log, at in found.items():
        parse_log_key(log)
        if not isinstance(at, int) or isinstance(at, bool) or at < 0:
            raise ValueError(f"{at!r} is not a segment number (log {log})")
    return dict(sorted(found.items()))


def parse_time(value: str | int) -> int:
    """Parse ms since 1970, or an ISO 8601 time with its offset from UTC; return ms since 1970. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a time")
    if isinstance(value, int) or re.fullmatch(r"\d{1,18}", value):
        if int(value) < 0:
            raise ValueError(f"{value!r} is before 1970")
        return int(value)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.year < 1970:
        raise ValueError(f"{value!r} is not a time: expected ms since 1970, or for example 2026-01-31T08:00:00Z")
    return max(int(found.timestamp() * 1000), 0)


def times(value: str) -> dict[str, int]:
    """Parse JSON like {"ADDRESS": TIME}. Raises ValueError."""
    try:
        found = json_codec.decode(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str | int) for each in found.values()):
        raise ValueError(f"""{value!r}: expected JSON like {{"ADDRESS": "2026-01-31T08:00:00Z"}}""")
    return {address: parse_time(each) for address, each in found.items()}


def parse_duration(value: str) -> float:
    """Parse a time such as "500ms", "30s", "15m" or "1h"; return seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|h)", value.lower())
    if match is None:
        raise ValueError(f"{value!r} is not a time: expected for example 30s or 15m")
    return int(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


@dataclass(frozen=True)
class TimeBounds:
    """Landing times in ms since 1970 at which logs begin or end to be read."""

    all: int | None = None  # of addresses that are not named
    by_address: Mapping[str, int] = field(default_factory=dict)

    def of(self, address: str) -> int | None:
        return self.by_address.get(address, self.all)


@dataclass(frozen=True)
class RegistryOptions:
    """Options of a schema registry; "" for what is not given."""

    url: str
    user: str
    password_file: str
    password_env: str
    ca_file: str


@dataclass(frozen=True)
class SourceOptions:
    """Options of a reader."""

    path: str
    subscribe: tuple[str, ...]
    pattern: str
    starting: str | Offsets
    ending: str | Offsets
    starting_times: TimeBounds
    ending_times: TimeBounds
    most_rows: int
    least_rows: int  # of a batch, unless the last one began `delay` ago
    delay: float  # seconds
    most_octets: int
    partitions: int | None  # None: chosen from the amount of data
    fail_on_loss: bool
    group: str
    decode: str
    payload_schema: str  # path of a file, "" without one
    payload_message: str  # full name of a Protobuf message
    payload_types: tuple[str, ...]  # content types of the messages with payloads; none: all
    payload_fails: bool  # True: a body that cannot be decoded ends the query
    payload_subject: str  # subject of the registry with the schema of the column, "" without one
    registry: RegistryOptions
    registry_retries: bool  # True: columns with the repeated requests to the registry
    headers: bool
    columns: tuple[str, ...]  # names of the columns to decode, in their order; none: all of `decode`
    delete: bool
    retention: float  # seconds
    patience: float  # seconds to wait at a hole

    def wants(self, address: str) -> bool:
        if self.subscribe:
            return address in self.subscribe
        return not self.pattern or re.fullmatch(self.pattern, address) is not None


def registry_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected http://HOST… or https://HOST…")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user and password here, because others see it: use schemaRegistryUser")
    return value


def registry_options(options: OptionReader) -> RegistryOptions:
    """Parse the options of a schema registry. Raises PipelineOptionError."""
    options.one_of("schemaRegistryPasswordFile", "schemaRegistryPasswordEnv")
    found = RegistryOptions(
        options.get("schemaRegistry", registry_url, ""),
        options.get("schemaRegistryUser", text, ""),
        options.get("schemaRegistryPasswordFile", text, ""),
        options.get("schemaRegistryPasswordEnv", text, ""),
        options.get("schemaRegistryCaFile", text, ""),
    )
    if bool(found.user) != bool(found.password_file or found.password_env):
        raise PipelineOptionError(
            "option schemaRegistryUser and schemaRegistryPasswordFile or schemaRegistryPasswordEnv must be given "
            "together"
        )
    for name in options.given("payloadSubject", "schemaRegistryUser", "schemaRegistryCaFile", "schemaRegistryRetries"):
        if not found.url:
            raise PipelineOptionError(f"option {name} needs schemaRegistry")
    return found


def source_options(given: Mapping[str, str], *, stream: bool | None = None) -> SourceOptions:
    """Parse the options of a reader. stream: None if not known yet. Raises PipelineOptionError."""
    options = OptionReader(given, SOURCE)
    path = options.get("path", text, "")
    if not path:
        raise PipelineOptionError(
            "option path is required: the landing folder (Spark does not pass the options of a table in its catalog to "
            "a source in Python: use SELECT … FROM table WITH (path '…'), or a temporary view)"
        )
    options.one_of("subscribe", "subscribePattern")
    options.one_of("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    options.one_of("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    options.one_of("minRecordsPerTrigger", "minOffsetsPerTrigger")
    options.one_of("maxRecordsPerTrigger", "maxOffsetsPerTrigger")
    mode = options.get("decode", choice(*MODES), "body")
    headers = options.get("includeHeaders", flag, False)
    if headers and mode in ("raw", "body"):
        raise PipelineOptionError("option includeHeaders needs decode=full")
    options.one_of("payloadSchema", "payloadSubject")
    for name in options.given(
        "payloadSchema", "payloadMessage", "payloadContentType", "onBadPayload", "schemaRegistry"
    ):
        if mode not in PAYLOADS:
            raise PipelineOptionError(f"option {name} needs decode={' or '.join(PAYLOADS)}")
    starting = options.get("startingOffsets", offsets, cast("str | dict[str, int]", EARLIEST))
    ending = options.get("endingOffsets", offsets, cast("str | dict[str, int]", LATEST))
    if ending == EARLIEST:
        raise PipelineOptionError("option endingOffsets cannot be earliest")
    ends = options.given("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    if stream and ends:
        raise PipelineOptionError(f"option {ends[0]} is for spark.read only: a stream has no end")
    if stream is False and starting == LATEST:
        raise PipelineOptionError("option startingOffsets=latest is for spark.readStream only: a batch would be empty")
    rows = options.get("maxOffsetsPerTrigger", number(), 1_000_000)
    least = options.get("minOffsetsPerTrigger", number(), 1)
    return SourceOptions(
        path=path if "://" in path else os.path.abspath(path.removeprefix("file:")),  # Spark writes file:/folder
        subscribe=options.get("subscribe", names, ()),
        pattern=options.get("subscribePattern", pattern, ""),
        starting=starting,
        ending=ending,
        starting_times=TimeBounds(
            options.get("startingTimestamp", parse_time, None), options.get("startingOffsetsByTimestamp", times, {})
        ),
        ending_times=TimeBounds(
            options.get("endingTimestamp", parse_time, None), options.get("endingOffsetsByTimestamp", times, {})
        ),
        most_rows=options.get("maxRecordsPerTrigger", number(), rows),
        least_rows=options.get("minRecordsPerTrigger", number(), least),
        delay=options.get("maxTriggerDelay", parse_duration, 15 * 60.0),
        most_octets=options.get("maxBytesPerTrigger", octets, 512 << 20),
        partitions=options.get("minPartitions", number(), 8) if options.given("minPartitions") else None,
        fail_on_loss=options.get("failOnDataLoss", flag, True),
        group=options.get("group", group, "default"),
        decode=mode,
        payload_schema=options.get("payloadSchema", text, ""),
        payload_message=options.get("payloadMessage", text, ""),
        payload_types=options.get("payloadContentType", lower_names, ()),
        payload_fails=options.get("onBadPayload", choice("keep", "fail"), "keep") == "fail",
        payload_subject=options.get("payloadSubject", text, ""),
        registry=registry_options(options),
        registry_retries=options.get("schemaRegistryRetries", flag, False),
        headers=headers,
        columns=options.get("columns", distinct_names, ()),
        delete=options.get("deleteOnCommit", flag, False),
        retention=options.get("retentionMinutes", parse_real, 60.0) * 60,
        patience=options.get("holeTimeoutMs", number(0), 30_000) / 1000,
    )
