"""`sluice pipeline land`: write messages of addresses to a landing folder."""

import argparse
import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

from sluice.pipeline.errors import PipelineError
from sluice.pipeline.prerequisites import require
from sluice.pipeline.units import count_or_zero, octets_text, seconds
from sluice.router.cli.quantities import count, size_or_zero

HELP = "write messages of addresses to Parquet segments, then accept them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="amqp://127.0.0.1:5672", help="URL of the router (%(default)s)")
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--address", nargs="+", default=[], metavar="ADDRESS", help="addresses to receive from")
    origin.add_argument(
        "--tap", metavar="NAME|PATTERN", help="receive the copies of a tap; a tap is made for a pattern without one"
    )
    parser.add_argument(
        "--path", required=True, metavar="DIR", help="landing folder, or a URL: s3://…, hdfs://…, gs://…"
    )
    parser.add_argument("--id", default=default_id(), help="id of this lander, unique in the folder (the host's name)")
    parser.add_argument(
        "--land-rows",
        type=count,
        default=50_000,
        metavar="N",
        help="write a segment at this number of messages (50000)",
    )
    parser.add_argument(
        "--land-bytes", type=size_or_zero, default=32 << 20, metavar="SIZE", help="write a segment at this size (32m)"
    )
    parser.add_argument(
        "--land-interval-ms", type=count, default=200, metavar="MS", help="write a segment after this time (200)"
    )
    parser.add_argument(
        "--stage-high",
        type=size_or_zero,
        default=4 << 30,
        metavar="SIZE",
        help="withhold credit while more than this is unread (4g; 0: no limit)",
    )
    parser.add_argument(
        "--merge-rows",
        type=count_or_zero,
        default=20_000,
        metavar="N",
        help="merge small segments into files of this number of messages (20000; 0: merge nothing)",
    )
    parser.add_argument(
        "--max-message", type=size_or_zero, default=128 << 20, metavar="SIZE", help="reject longer messages (128m)"
    )
    parser.add_argument("--user", help="user for SASL (default: the user in the URL)")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file whose first line is the password")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with an OAuth 2.0 token, read for each connection"
    )
    parser.add_argument("--mechanism", action="append", metavar="NAME", help="permitted SASL mechanism; repeatable")
    parser.add_argument("--ca-file", metavar="FILE", help="authorities for the router's certificate (amqps URLs)")
    parser.add_argument("--certificate", metavar="FILE", help="certificate of this client")
    parser.add_argument("--key", metavar="FILE", help="key of --certificate")
    parser.add_argument("--key-password-file", type=Path, metavar="FILE", help="file with the password of --key")
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="serve /metrics on this port")
    parser.add_argument(
        "--status", type=seconds, default=5.0, metavar="SECONDS", help="interval of status lines (5; 0: none)"
    )


def default_id() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename).lstrip("._-")[:100] or "lander"


def run(options: argparse.Namespace) -> int:
    require("pyarrow")
    from sluice.pipeline.lander import Lander, LanderOptions

    if options.land_bytes < 1 or not 1 <= options.max_message <= 1 << 30:
        raise PipelineError("--land-bytes must be 1 or more, --max-message 1 to 1g")
    client = client_options(options)
    addresses = tuple(options.address)
    if options.tap is not None:
        from sluice.pipeline.taps import tap_address

        address, text = tap_address(options.url, client, options.tap, options.id)
        print(text, file=sys.stderr, flush=True)
        addresses = (address,)
    lander = Lander(
        LanderOptions(
            url=options.url,
            addresses=addresses,
            path=options.path,
            lander=options.id,
            land_rows=options.land_rows,
            land_octets=options.land_bytes,
            interval=options.land_interval_ms / 1000,
            stage_high=options.stage_high,
            merge_rows=options.merge_rows,
            max_message=options.max_message,
            client=client,
        )
    )
    asyncio.run(_run(lander, options))
    return 0


def client_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the connection beside its URL."""
    if (options.user is None) != (options.password_file is None):
        raise PipelineError("--user and --password-file must be given together")
    found: dict[str, Any] = {}
    if options.user is not None:
        found["login"] = (options.user, first_line(options.password_file))
    if options.token_file is not None:
        first_line(options.token_file)
        found["token"] = lambda: first_line(options.token_file)
    if options.mechanism:
        found["mechanisms"] = tuple(options.mechanism)
    if options.ca_file or options.certificate or options.key:
        from sluice.router.client import Tls

        password = first_line(options.key_password_file) if options.key_password_file is not None else None
        found["tls"] = Tls(options.ca_file, options.certificate, options.key, password)
    return found


def first_line(path: Path) -> str:
    """Return the first line of a file with a secret. Raises PipelineError."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: {error}") from error
    return lines[0] if lines else ""


async def _run(lander: Any, options: argparse.Namespace) -> None:
    from sluice.pipeline.metrics import LanderCollector, StatusLine
    from sluice.pipeline.metrics_server import serve

    lander.end_by_signals()
    if options.metrics:
        lander.say(f"metrics at {serve(LanderCollector(lander), options.metrics)}")

    def ready() -> None:
        where = ", ".join(lander.options.addresses)
        lander.say(f"landing {where} in {lander.options.path} as {lander.options.lander}")

    status = asyncio.create_task(_say_status(lander, StatusLine(lander), options.status))
    try:
        await lander.run(ready)
    finally:
        status.cancel()
    total = sum(link.counts.deliveries for link in lander.links)
    octets = sum(link.counts.octets for link in lander.links)
    lander.say(f"ended: {total:,} deliveries landed, {octets_text(octets)}")


async def _say_status(lander: Any, line: Any, seconds: float) -> None:
    while seconds > 0:
        await asyncio.sleep(seconds)
        if lander.links:
            lander.say(line.text())
