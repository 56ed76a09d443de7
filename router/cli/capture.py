"""`sluice capture`: write messages of addresses, and their timing, to a file."""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from sluice.router.capture.capture_file import (
    MESSAGE_MOST,
    CapturedMessage,
    CaptureHeader,
    CaptureTrailer,
    CaptureWriter,
)
from sluice.router.capture.original import read_original
from sluice.router.cli.capture_tap import CaptureTaps
from sluice.router.cli.client import ManagementError
from sluice.router.cli.connection import ToolConnection
from sluice.router.cli.errors import ToolError
from sluice.router.cli.options import Parser, add_connection_options, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.quantities import count, size
from sluice.router.cli.tool import run_tool
from sluice.router.cli.trace_address import duration
from sluice.router.client.blocking import SyncReceiver
from sluice.router.client.errors import LinkDetachedError, StaleDeliveryError
from sluice.router.client.links import Delivery
from sluice.router.version import VERSION

GAPS: Final = 3  # exit code of a capture in which messages are missing
WINDOW: Final = 1000  # copies in flight
IDLE: Final = 60.0  # seconds after which a silent router is disconnected
SIGNAL_CHECK: Final = 0.25  # seconds between two checks for a signal
MALFORMED: Final = "malformed"  # reason for which a copy has no record
DECODE_ERROR: Final = "amqp:decode-error"


def main(words: Sequence[str] | None = None, program: str = "sluice capture") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(
        program,
        "Write the messages that clients of a router send to some addresses, and their timing, to a file, from a tap "
        "that is removed at the end. Consumers get their messages as ever. The exit code is 0, 1 if the router refused "
        "it or the file cannot be written, 3 if messages are missing, 4 if no router answers.",
    )
    origin = made.add_mutually_exclusive_group(required=True)
    origin.add_argument(
        "--address", action="append", metavar="ADDRESS", help="address, or pattern such as orders/#; repeatable"
    )
    origin.add_argument("--tap", metavar="NAME", help="receive the copies of a tap of the configuration")
    made.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to create; it must not exist")
    made.add_argument(
        "--max-messages", type=count, default=100_000, metavar="N", help="end after N messages; default 100000"
    )
    made.add_argument(
        "--max-bytes", type=size, default=1 << 28, metavar="SIZE", help="end when the file has this size; default 256m"
    )
    made.add_argument(
        "--for", dest="seconds", type=duration, default=60, metavar="TIME", help="end after this time; default 60s"
    )
    made.add_argument("--no-payload", action="store_true", help="keep the size of bodies and footers only")
    made.add_argument("--json", action="store_true", help="print the result as JSON")
    made.set_defaults(router=None, edge_router=None)
    add_connection_options(made)
    return made


class Capture:
    """Capture under way: received copies become records of the file. Owner: the command.

    stopped: reason of a signal. malformed: copies that were rejected, because they are no messages.
    """

    def __init__(self, options: argparse.Namespace, receiver: SyncReceiver, writer: CaptureWriter) -> None:
        self.writer = writer
        self.stopped = ""
        self.malformed = 0
        self._options = options
        self._receiver = receiver
        self._granted = 0  # credit of the receiver, and copies that have arrived
        # Clock of arrivals: the wall clock at the beginning, which does not go back afterwards.
        self._offset = time.time_ns() - time.monotonic_ns()

    @property
    def now(self) -> int:
        """Time in ns since the epoch."""
        return self._offset + time.monotonic_ns()

    def grant(self) -> None:
        """Grant credit for as many copies as may follow, so that no more arrive than are kept."""
        left = self._options.max_messages - self.writer.messages
        waiting = len(self._receiver.state.arrived)
        wanted = min(WINDOW, left) - waiting
        if wanted - self._receiver.state.link.credit >= min(WINDOW // 4, max(left - waiting, 1)):
            self._receiver.flow(wanted)

    def run(self, connection: ToolConnection) -> str:
        """Write records until a limit or a signal; return the reason of the end. Raises ToolError, OSError."""
        deadline = time.monotonic() + self._options.seconds
        self.grant()
        while not (reason := self._limit() or self.stopped):
            left = deadline - time.monotonic()
            if left <= 0:
                reason = "time"
                break
            with contextlib.suppress(TimeoutError):
                connection.client.wait(self._has_news, min(left, SIGNAL_CHECK))
            self.take()
            if not self._limit():
                self.grant()
        if not self._limit():
            self._receiver.drain(IDLE)  # copies that the router has sent, or can send within the credit
            self.take()
        return reason

    def _limit(self) -> str:
        if self.writer.messages >= self._options.max_messages:
            return "max-messages"
        return "max-bytes" if self.writer.octets >= self._options.max_bytes else ""

    def _has_news(self) -> bool:
        self._receiver.state.check()
        return bool(self._receiver.state.arrived) or bool(self.stopped)

    def take(self) -> None:
        """Write the copies that have arrived, then accept them: an accepted copy is in the file.

        Copies that are no messages are rejected. Their senders must not be able to end the capture.
        """
        taken: list[tuple[Delivery, str]] = []  # with the reason of a rejection
        now = self.now
        while self._receiver.state.arrived and not self._limit():
            delivery = self._receiver.state.arrived.popleft()
            try:
                self.writer.write(self._record(delivery, now))
            except ValueError as error:  # CaptureError among them, for an address that no file can have
                self.malformed += 1
                taken.append((delivery, str(error)))
                continue
            taken.append((delivery, ""))
        self.writer.flush()
        with contextlib.suppress(StaleDeliveryError):  # the next wait reports why the link has ended
            for delivery, reason in taken:
                if reason:
                    delivery.reject(DECODE_ERROR, reason)
                else:
                    delivery.accept()

    def _record(self, delivery: Delivery, now: int) -> CapturedMessage:
        """Return the record of a copy. Raises ValueError if the copy is no message."""
        original = read_original(delivery.octets, payload=not self._options.no_payload)
        return CapturedMessage(
            arrived=now,
            address=original.address,
            octets=original.octets,
            settled=delivery.settled,
            message_format=delivery.received.message_format,
            omitted=original.omitted,
        )


def _run(options: argparse.Namespace) -> int:
    where = target(options)
    taps = CaptureTaps(where, options.address or [], options.tap)
    connection = ToolConnection(where, idle=IDLE)
    try:
        with connection.translated("Receiving"):
            try:
                # The router then sends no longer copies, which this process would collect in memory.
                receiver = connection.client.receiver(
                    taps.address, window=0, max_message_size=MESSAGE_MOST, timeout=where.timeout
                )
                trailer = _capture(options, taps, connection, receiver)
            except LinkDetachedError as error:
                raise ToolError(f"the router has detached the link from {taps.address}: {error}") from error
    finally:
        connection.close()
    _show(options, taps, trailer)
    return 0 if trailer.complete else GAPS


def _capture(
    options: argparse.Namespace, taps: CaptureTaps, connection: ToolConnection, receiver: SyncReceiver
) -> CaptureTrailer:
    """Make the taps, capture, remove the taps; return the trailer, which is in the file then."""
    header = CaptureHeader(
        began=time.time_ns(),
        router=taps.router,
        patterns=taps.patterns,
        payload=not options.no_payload,
        version=VERSION,
    )
    writer = CaptureWriter(options.out, header)
    capture = Capture(options, receiver, writer)
    with _signals(capture):
        try:
            capture.grant()
            for name in taps.make():
                print(f"removed tap {one_line(name)} of a capture that was killed", file=sys.stderr)
        except BaseException:
            _remove(taps)
            writer.discard()
            raise
        print(_begun(options, taps), file=sys.stderr, flush=True)
        reason = "failure"
        try:
            reason = capture.run(connection)
        finally:
            trailer = _end(taps, writer, reason, capture.malformed)
    return trailer


def _end(taps: CaptureTaps, writer: CaptureWriter, reason: str, malformed: int) -> CaptureTrailer:
    """Read the counters, remove the taps and finish the file, also after a failure. Raises OSError for the file.

    malformed: copies that are no messages.
    """
    selected: int | None = None
    missed: dict[str, int] = {}
    try:
        selected, missed = taps.counters(malformed)
    except (ToolError, ManagementError, OSError) as error:
        print(f"cannot read what the taps missed: {one_line(str(error))}", file=sys.stderr)
    _remove(taps)
    missed = {**missed, MALFORMED: malformed}
    trailer = CaptureTrailer(
        ended=time.time_ns(), messages=writer.messages, reason=reason, selected=selected, missed=missed
    )
    writer.finish(trailer)
    return trailer


def _remove(taps: CaptureTaps) -> None:
    """Remove the taps, or print which are left."""
    try:
        taps.remove()
    except (ToolError, ManagementError, OSError) as error:
        left = one_line(f"cannot remove the taps {' '.join(taps.left)}: {error}.")
        print(f"{left} The next `sluice capture` at this router removes them", file=sys.stderr)


@contextlib.contextmanager
def _signals(capture: Capture) -> Iterator[None]:
    """End the capture at SIGINT, SIGTERM and SIGHUP. The second signal of a kind has its usual effect."""

    def stop(number: int, frame: FrameType | None) -> None:
        capture.stopped = signal.Signals(number).name
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _begun(options: argparse.Namespace, taps: CaptureTaps) -> str:
    patterns = ", ".join(taps.patterns)
    return one_line(f"capturing {patterns} at {taps.router} in {options.out}; Ctrl-C ends it")


def _show(options: argparse.Namespace, taps: CaptureTaps, trailer: CaptureTrailer) -> None:
    if options.json:
        found = {
            "file": str(options.out), "router": taps.router, "patterns": taps.patterns, "messages": trailer.messages,
            "reason": trailer.reason, "selected": trailer.selected, "missed": trailer.missed,
            "complete": trailer.complete,
        }  # fmt: skip
        print(to_json(found, 2))
        return
    print(one_line(f"{trailer.messages} messages in {options.out}; ended by {trailer.reason}"))
    print(one_line(gaps_text(trailer)))


def gaps_text(trailer: CaptureTrailer) -> str:
    """Return a line about the messages that are missing."""
    if trailer.selected is None:
        return "unknown whether messages are missing: the counters of the tap could not be read"
    missing = [f"{number} {reason}" for reason, number in trailer.missed.items() if number]
    return f"messages missing: {', '.join(missing)}" if missing else "no messages missing"


if __name__ == "__main__":
    sys.exit(main())
