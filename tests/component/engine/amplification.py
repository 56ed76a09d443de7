"""Cost of the frame types: memory, output and deliveries that one octet of input can cause.

Usage: `PYTHONMALLOC=malloc python -m tests.component.engine.amplification`. It prints one line of JSON. For each row of
`expensive_frames` it gives the frame type, the octets sent, the octets of memory that the router holds afterwards
while no peer reads, the octets that it writes to all peers while they read, and the number of deliveries or copies
that the frames make or release.
"""

import ctypes
import gc
import json
import sys
from dataclasses import asdict, dataclass

import sluice.router.testing.engine as engine
from tests.component.engine.expensive_frames import ROWS, FrameRow
from tests.component.engine.host import InProcessPeer, InProcessRouter


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


@dataclass
class FrameAmplification:
    """Measured cost of one row. frame: frame type; deliveries: a count; other fields: octets."""

    frame: str
    sent: int
    memory: int
    output: int
    deliveries: int


def allocated() -> int:
    """Return the octets that this process has allocated. With PYTHONMALLOC=malloc, Python objects are included."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def _prepared(row: FrameRow) -> tuple[InProcessRouter, InProcessPeer]:
    router = InProcessRouter(1, row.text)
    return router, row.prepare(router)


def _finish(router: InProcessRouter) -> None:
    for peer in list(router.peers):
        peer.blocked = False
        peer.lose()
    router.settle_with_faults()
    router.close()


def measure(row: FrameRow) -> FrameAmplification:
    """Play a row twice: once with peers that read, once with peers that do not."""
    router, peer = _prepared(row)
    peers = list(router.peers)
    peer.feed(row.octets)
    router.settle()
    output = sum(len(each.take()) for each in peers)
    _finish(router)
    del peer, peers, router
    engine.drop_pools()

    router, peer = _prepared(row)
    peers = list(router.peers)
    for each in peers:
        each.blocked = True
    router.settle()
    before = allocated()
    peer.put(row.octets)
    router.settle()
    held = allocated() - before
    sent = len(row.octets) - peer.transport.left
    _finish(router)
    return FrameAmplification(row.frame, sent, held, output, row.deliveries)


def main() -> int:
    print(json.dumps({name: asdict(measure(row)) for name, row in ROWS.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
