"""`sluice pipeline load`: write the messages of a capture to a landing folder."""

import argparse
import sys
from array import array
from pathlib import Path

from sluice.pipeline.errors import PipelineError
from sluice.pipeline.prerequisites import require
from sluice.pipeline.segments import Landing, LandingLog
from sluice.pipeline.writer import SegmentWriter
from sluice.router.capture.capture_file import CapturedMessage, CaptureError, CaptureReader

HELP = "write the messages of a file of `sluice capture` to a landing folder"

SEGMENT_ROWS = 50_000
SEGMENTS_OCTETS = 64 << 20  # of all messages that are not written yet
NS_A_MICROSECOND = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="file of `sluice capture`")
    parser.add_argument("--path", required=True, metavar="DIR", help="landing folder, or its URL")
    parser.add_argument("--id", default="capture", metavar="ID", help="id of the lander of the messages (capture)")


class CapturedBatch:
    """Messages of one address in the layout of a segment: octets, their offsets, arrival in µs."""

    def __init__(self) -> None:
        self.rows = 0
        self.messages = bytearray()
        self.offsets = array("i", [0])
        self.arrived = array("q")

    def add(self, message: CapturedMessage) -> None:
        self.messages += message.octets
        self.offsets.append(len(self.messages))
        self.arrived.append(message.arrived // NS_A_MICROSECOND)
        self.rows += 1


def run(options: argparse.Namespace) -> int:
    require("pyarrow")
    try:
        with CaptureReader(options.file) as reader:
            # A damaged file lands nothing: its messages would land again with the repaired file.
            unknown = sum(not message.address for message in reader)
            if unknown:
                raise PipelineError(f"{options.file}: {unknown} messages have no address")
        with CaptureReader(options.file) as reader:
            rows = _load(reader, Landing.create(options.path), options.id)
    except CaptureError as error:
        raise PipelineError(str(error)) from error
    print(f"{rows} messages of {options.file} landed in {options.path} as {options.id}", file=sys.stderr)
    return 0


def _load(reader: CaptureReader, landing: Landing, lander: str) -> int:
    """Write the messages as segments, by address in their order; return their number. Raises OSError, LandingError."""
    writers: dict[str, SegmentWriter] = {}
    batches: dict[str, CapturedBatch] = {}
    rows = waiting = 0
    for message in reader:
        batch = batches.setdefault(message.address, CapturedBatch())
        batch.add(message)
        rows += 1
        waiting += len(message.octets)
        if waiting >= SEGMENTS_OCTETS or batch.rows >= SEGMENT_ROWS:
            _write(batches, writers, landing, lander)
            waiting = 0
    _write(batches, writers, landing, lander)
    return rows


def _write(batches: dict[str, CapturedBatch], writers: dict[str, SegmentWriter], landing: Landing, lander: str) -> None:
    for address, batch in batches.items():
        if address not in writers:
            writers[address] = SegmentWriter(landing, LandingLog(lander, address), "capture")
        writers[address].write(batch)
    batches.clear()
