"""`sluice replay`: send the messages of a capture again, with their timing."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sluice.router.capture.capture_file import CaptureReader
from sluice.router.cli.capture import IDLE, gaps_text
from sluice.router.cli.connection import ToolConnection
from sluice.router.cli.options import Parser, add_connection_options, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.quantities import count, speed
from sluice.router.cli.replay_sender import ACCEPTED, SETTLED, Replay, ReplayOptions
from sluice.router.cli.times import time_text
from sluice.router.cli.tool import run_tool
from sluice.router.cli.trace_address import duration

NOT_ALL: Final = 3  # exit code if a message was not accepted
_NS_A_SECOND: Final = 1_000_000_000
_ADDRESSES_SHOWN: Final = 20


def main(words: Sequence[str] | None = None, program: str = "sluice replay") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(
        program,
        "Send the messages of a file of `sluice capture`, with their timing and in their order, to the addresses that "
        "they were sent to. The exit code is 0, 1 if the file cannot be used, 3 if not all messages were accepted, "
        "4 if no router answers or the connection is lost.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="file of `sluice capture`")
    made.add_argument("--info", action="store_true", help="print what is in the file, and send nothing")
    made.add_argument(
        "--speed", type=speed, default=1.0, metavar="FACTOR", help="factor of the speed, or max: no pauses; default 1"
    )
    made.add_argument("--to", metavar="ADDRESS", help="send all messages to this address")
    made.add_argument("--settled", action="store_true", help="send all messages settled")
    made.add_argument("--fill", action="store_true", help="send bodies of zeros for those that the file does not have")
    made.add_argument(
        "--in-flight", type=count, default=1000, metavar="N", help="most messages without an outcome; default 1000"
    )
    made.add_argument(
        "--wait", type=duration, default=10, metavar="TIME", help="longest wait for credit or an outcome; default 10s"
    )
    made.add_argument("--json", action="store_true", help="print the result as JSON")
    made.set_defaults(router=None, edge_router=None)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    with CaptureReader(options.file) as reader:
        if options.info:
            _show_info(reader, as_json=options.json)
            return 0
        connection = ToolConnection(target(options), idle=IDLE)
        replay = Replay(
            connection.client,
            ReplayOptions(options.speed, options.to, options.settled, options.fill, options.in_flight, options.wait),
        )
        try:
            with connection.translated("Sending"):
                try:
                    replay.run(reader)
                    replay.finish()
                finally:
                    replay.drop()
                    _show(options, reader, replay)
        except KeyboardInterrupt:
            return NOT_ALL
        finally:
            connection.close()
    return NOT_ALL if set(+replay.outcomes) - {ACCEPTED, SETTLED} else 0


def _show(options: argparse.Namespace, reader: CaptureReader, replay: Replay) -> None:
    if options.json:
        found = {
            "messages": replay.messages, "outcomes": dict(+replay.outcomes), "refusals": replay.refusals,
            "reconnections": replay.reconnections, "latenessSeconds": round(replay.lateness, 3),
            "whole": reader.trailer is not None,
        }  # fmt: skip
        print(to_json(found, 2))
        return
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in (+replay.outcomes).items())
    print(one_line(f"{replay.messages} messages: {outcomes or 'none'}"))
    for address, reason in replay.refusals.items():
        print(one_line(f"refused: {address}: {reason}"))
    print(f"{replay.reconnections} reconnections; at most {replay.lateness:.3f} s later than in the capture")


def _show_info(reader: CaptureReader, *, as_json: bool) -> None:
    messages = octets = omitted = first = last = 0
    addresses: Counter[str] = Counter()
    for message in reader:
        first = first or message.arrived
        last = message.arrived
        messages += 1
        octets += message.size
        omitted += message.omitted > 0
        addresses[message.address] += 1
    header, trailer = reader.header, reader.trailer
    if as_json:
        found: dict[str, Any] = {
            "router": header.router, "version": header.version, "patterns": header.patterns, "began": header.began,
            "messages": messages, "octets": octets, "withoutPayload": omitted, "first": first, "last": last,
            "addresses": dict(addresses), "whole": trailer is not None, "cutOctets": reader.cut,
            "reason": trailer and trailer.reason, "selected": trailer and trailer.selected,
            "missed": trailer and trailer.missed,
        }  # fmt: skip
        print(to_json(found, 2))
        return
    print(one_line(f"{', '.join(header.patterns)} at {header.router}, since {time_text(header.began / _NS_A_SECOND)}"))
    seconds = (last - first) / _NS_A_SECOND
    print(f"{messages} messages in {seconds:.3f} s, {octets} octets; {omitted} without payload")
    for address, number in addresses.most_common(_ADDRESSES_SHOWN):
        print(one_line(f"{number:>10} {address or '(unknown address)'}"))
    if len(addresses) > _ADDRESSES_SHOWN:
        print(f"           … and {len(addresses) - _ADDRESSES_SHOWN} addresses")
    if trailer is None:
        print(f"the capture was killed: it has no trailer, and {reader.cut} octets of an incomplete record")
    else:
        print(one_line(f"ended by {trailer.reason}; {gaps_text(trailer)}"))


if __name__ == "__main__":
    sys.exit(main())
