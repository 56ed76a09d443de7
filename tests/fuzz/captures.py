"""Files of captures, and messages in copies of taps, damaged."""

import contextlib
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from sluice.router.capture.capture_file import (
    CapturedMessage,
    CaptureError,
    CaptureHeader,
    CaptureReader,
    CaptureTrailer,
    CaptureWriter,
)
from sluice.router.capture.original import ADDRESS, read_original
from sluice.router.client.message import Message
from tests.peer.damage import spoil

Case = dict[str, Any]


def capture(rng: Random) -> Case:
    """Return a file with some messages; most are damaged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        writer = CaptureWriter(path, CaptureHeader(began=1, router="R", patterns=["#"], payload=True, version="1"))
        for _ in range(rng.randrange(4)):
            writer.write(
                CapturedMessage(rng.getrandbits(64), "a" * rng.randrange(20), rng.randbytes(rng.randrange(60)))
            )
        writer.finish(CaptureTrailer(ended=2, messages=0, reason="time"))
        return {"octets": spoil(rng, path.read_bytes()).hex()}


def run_capture(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        path.write_bytes(bytes.fromhex(case["octets"]))
        with contextlib.suppress(CaptureError), CaptureReader(path) as reader:
            list(reader)


def copy(rng: Random) -> Case:
    """Return the copy of a message, mostly damaged."""
    annotations = {"a": rng.getrandbits(20), ADDRESS: "orders"}
    message = Message(rng.randbytes(rng.randrange(300)), subject="s", annotations=annotations, properties={"k": 1})
    return {"octets": spoil(rng, message.encode()).hex()}


def run_copy(case: Case) -> None:
    octets = bytes.fromhex(case["octets"])
    for payload in (True, False):
        try:
            original = read_original(octets, payload=payload)
        except ValueError:
            continue
        assert len(original.octets) + original.omitted <= len(octets) + 8
