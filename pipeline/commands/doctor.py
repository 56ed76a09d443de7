"""`sluice pipeline doctor`: check prerequisites, a landing folder and a router."""

import argparse
import importlib.metadata
import sys
import time
from collections.abc import Callable

from sluice.pipeline.errors import LandingError, PipelineError, PipelineOptionError
from sluice.pipeline.prerequisites import (
    EXTRA,
    JAVA_OLDEST,
    SPARK_UNTESTED,
    find_java,
    java_version,
    require,
    spark_version,
)
from sluice.pipeline.segments import Landing, LandingLog, Listing, clip, consumed_end, now, octets_from
from sluice.pipeline.units import octets_text
from sluice.router.client.errors import ClientError

HELP = "check Java, the extra, a landing folder, a router"
CONNECT_PATIENCE = 10.0  # seconds
DAMAGED_SHOWN = 10  # damaged segments that are named
DISK_LEAST = 64 << 20  # free octets: two segments of the default size
PROBE = "_doctor"  # test file, written and deleted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", metavar="DIR", help="landing folder, or its URL")
    parser.add_argument(
        "--verify", action="store_true", help="read all segments of the folder, and compare their checksums"
    )
    parser.add_argument("--url", help="URL of a router")


def run(options: argparse.Namespace) -> int:
    if options.verify and not options.path:
        raise PipelineError("--verify needs --path")
    checks: list[tuple[str, Callable[[], list[str]]]] = [("python", _python), ("java", _java)]
    checks += [(name, lambda name=name: _module(name)) for name in EXTRA]  # type: ignore[misc]
    if options.path:
        checks += [("folder", lambda: _folder(options.path)), ("disk", lambda: _disk(options.path))]
        if options.verify:
            checks.append(("segments", lambda: _segments(options.path)))
    if options.url:
        checks.append(("router", lambda: _router(options.url)))
    wrong = 0
    for name, check in checks:
        try:
            lines = check()
            word = "ok"
        except (PipelineError, ClientError, OSError, ValueError) as error:
            lines = [str(error) or type(error).__name__]
            word = "wrong"
            wrong += 1
        for line in lines:
            print(f"{word:5}  {name:8}  {line}")
    print(f"{wrong} of {len(checks)} checks failed" if wrong else "all is well")
    return 1 if wrong else 0


def _python() -> list[str]:
    return [f"{sys.version.split()[0]}, {sys.executable}"]


def _java() -> list[str]:
    path = find_java()
    return [f"{java_version(path)} ({JAVA_OLDEST} or later), {path}"]


def _module(name: str) -> list[str]:
    require(name)
    lines = [importlib.metadata.version(name)]
    if name == "pyspark":
        if spark_version() >= SPARK_UNTESTED:
            lines.append(f"no version from {'.'.join(map(str, SPARK_UNTESTED))} on is tested with this release")
        try:
            from sluice.pipeline.spark_api import check_stream_reader
        except ImportError:  # pyarrow or pandas is missing, which another line says
            return lines
        try:
            check_stream_reader()
        except PipelineOptionError as error:
            lines.append(str(error))
    return lines


def _folder(path: str) -> list[str]:
    landing = Landing.open(path)
    began = time.monotonic()
    landing.store.publish(PROBE, b"x")
    seconds = time.monotonic() - began
    landing.store.delete(PROBE)
    groups = landing.groups()
    lines = [f"{path}: writable, a small file takes {seconds * 1000:.1f} ms"]
    lines += [f"group {group.name}: last commit {(now() - group.committed) / 1000:.0f} s ago" for group in groups]
    for log in landing.logs():
        listing = landing.listing(log.key)
        lines.append(_log(log, listing, consumed_end(log, groups)))
        if listing.foreign:
            lines.append(f"{log.key}: files that are not segments, ignored: {', '.join(listing.foreign[:5])}")
    holes = [text for log in landing.logs() if (text := _hole(landing.listing(log.key), consumed_end(log, groups)))]
    if holes:
        raise LandingError("; ".join(holes))
    return lines


def _disk(path: str) -> list[str]:
    """Check the room on the disk of a folder. Raises LandingError if there is hardly any."""
    from sluice.pipeline.metrics import free_octets

    free = free_octets(path)
    if free is None:
        return ["not checked: the folder is in an object store"]
    if free < DISK_LEAST:
        raise LandingError(f"only {octets_text(free)} are free: landers release messages when the disk is full")
    return [f"{octets_text(free)} are free"]


def _log(log: LandingLog, listing: Listing, read: int) -> str:
    rows = sum(segment.rows for segment in listing.segments)
    count = sum(segment.span for segment in listing.segments)
    files = sum(segment.file is not None for segment in listing.segments)
    into = f"{files} file{'s' if files > 1 else ''}"
    merged = f" ({count - len(listing.segments) + files} of them merged into {into})" if files else ""
    waiting = octets_text(octets_from(listing, read))
    return f"{log.key}: {count} segments{merged}, {rows} messages, not read: {waiting}"


def _segments(path: str) -> list[str]:
    """Verify all segments. Raises LandingError with the damaged ones."""
    require("pyarrow")
    from sluice.pipeline.reading import verify_segment

    landing = Landing.open(path)
    lines: list[str] = []
    damaged: list[str] = []
    for log in landing.logs():
        counts = {True: 0, False: 0}
        for segment in landing.listing(log.key).segments:
            try:
                counts[verify_segment(landing, segment)] += segment.span
            except FileNotFoundError:
                continue  # deleted since the listing
            except LandingError as error:
                damaged.append(str(error))
        line = f"{log.key}: {counts[True]} segments are whole"
        if counts[False]:
            line += f"; {counts[False]} of an earlier release are readable, but have no checksums to compare"
        lines.append(line)
    if damaged:
        more = f"; {len(damaged) - DAMAGED_SHOWN} more" if len(damaged) > DAMAGED_SHOWN else ""
        raise LandingError("; ".join(damaged[:DAMAGED_SHOWN]) + more)
    return lines


def _hole(listing: Listing, read: int) -> str:
    """Describe the hole at which readers stop; "" if there is none. Segments that all have read may be missing."""
    left = clip(listing.segments, read)
    missing = listing.range(read or left[0].number, listing.end)[1] if left else []
    return f"{listing.log}: segment {missing[0]} is missing, readers stop there" if missing else ""


def _router(url: str) -> list[str]:
    from sluice.router.client import connect

    try:
        with connect(url, timeout=CONNECT_PATIENCE) as connection:
            product = connection.remote.get("properties") or {}
            return [f"{url}: {connection.remote.get('container')}, {product.get('product', 'of unknown make')}"]
    except TimeoutError as error:
        raise PipelineError(f"{url}: no answer within {CONNECT_PATIENCE:.0f} s") from error
