"""User-space instructions of a client, a figure that is independent of other load.

    python -m loadtests.client_instructions                 # all rows; a few minutes
    python -m loadtests.client_instructions connect

The real worker and the real core of the supervisor run in one process, without sockets
(tests/component/engine/host.py), under callgrind. Figures cover both, the interpreter and the harness, whose share is
small. Lines at level info are written, as by default, and the use by user is counted. Rows:

    connect   connect with SASL ANONYMOUS, open, begin, attach a receiver, attach a sender, close
    attach    attach a link and detach it, on a standing connection
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.instructions import MARKER, ROOT, mark
from sluice.router.log import LogSettings, ModuleSettings
from sluice.supervisor.telemetry.usage import Usage
from tests.component.engine.host import LISTENER, InProcessPeer, InProcessRouter
from tests.peer.frames import AMQP_HEADER, Performative, source, target
from tests.peer.talk import MANY, begin, flow, say

CROWD: Final = 20  # clients at a time, each step after the answer to the one before
WARM_ROUNDS: Final = 2
ROUNDS: Final = 3
LINKS: Final = 4096  # link slots of the worker
LOG: Final = LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)})
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
SASL_FRAME: Final = b"\x02\x01\x00\x00"  # data offset, type and ignored octets
RECEIVER: Final = 1  # handle of the receiver; that of the sender is 0
DETACH: Final = say("detach", handle=0, closed=True)


def sasl_init() -> bytes:
    """Return the SASL frame that chooses ANONYMOUS."""
    body = Performative("sasl-init", mechanism="ANONYMOUS").encode()
    return (len(body) + 8).to_bytes(4, "big") + SASL_FRAME + body


def receiver(client: int, handle: int) -> bytes:
    return say(
        "attach", name=f"{client}-1", handle=handle, role=True, snd_settle_mode=2, rcv_settle_mode=0,
        source=source(f"bench.{client}"), target=target(),
    )  # fmt: skip


def sender(client: int) -> bytes:
    return say(
        "attach", name=f"{client}-0", handle=0, role=False, snd_settle_mode=0, rcv_settle_mode=0, source=source(),
        target=target(f"bench.{client}"), initial_delivery_count=0,
    )  # fmt: skip


def opening(client: int) -> list[bytes]:
    """Return the steps of a client up to its session."""
    fields = say("open", container_id=f"client-{client}", hostname="127.0.0.1", max_frame_size=65536, channel_max=255)
    return [SASL_HEADER, sasl_init(), AMQP_HEADER + fields, begin(0, MANY, 0)]


def steps(client: int) -> list[bytes]:
    """Return all steps of a client that connects."""
    credit = flow(RECEIVER, 100)
    return [*opening(client), receiver(client, RECEIVER), credit + sender(client), say("close")]


def play(router: InProcessRouter, peers: Sequence[InProcessPeer], scripts: Sequence[Sequence[bytes]]) -> None:
    """Let clients take the steps of their scripts together."""
    for each in zip(*scripts, strict=True):
        for peer, octets in zip(peers, each, strict=True):
            peer.put(octets)
        router.settle()
        for peer in peers:
            peer.take()


def connect(router: InProcessRouter) -> Callable[[], int]:
    """Return a function that lets a crowd connect and returns the number of operations."""
    scripts = [steps(client) for client in range(CROWD)]

    def go() -> int:
        play(router, [router.connect() for _ in scripts], scripts)
        return CROWD

    return go


def attach(router: InProcessRouter) -> Callable[[], int]:
    """Return a function that lets standing clients attach and detach, and returns the number of operations."""
    peers = [router.connect() for _ in range(CROWD)]
    play(router, peers, [opening(client) for client in range(CROWD)])
    scripts = [[receiver(client, 0), DETACH, sender(client), DETACH] for client in range(CROWD)]

    def go() -> int:
        play(router, peers, scripts)
        return 2 * CROWD

    return go


ROWS: Final[dict[str, Callable[[InProcessRouter], Callable[[], int]]]] = {"connect": connect, "attach": attach}


def run(name: str) -> None:
    """Run a row in the process under callgrind, with two marks around the counted rounds."""
    text = configuration_text(router_section(), listener(LISTENER))
    router = InProcessRouter(text=text, log=LOG, links=LINKS, addresses=LINKS)
    router.core.events.add(Usage(router.configuration, router.region, router.core.policy.vhost_of))
    go = ROWS[name](router)
    for _ in range(WARM_ROUNDS):
        go()
    mark()
    done = sum(go() for _ in range(ROUNDS))
    mark()
    print(done)
    router.close()


def count(name: str) -> float:
    """Return the instructions of one operation. Raises CalledProcessError, ValueError."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind", "--tool=callgrind", f"--dump-before={MARKER}", f"--callgrind-out-file={folder}/out", "--quiet",
            sys.executable, "-m", "loadtests.client_instructions", "--counted", name,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONHASHSEED": "0"}  # a fixed seed makes the order of sets equal in each run
        ran = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for line in Path(folder, "out.2").read_text().splitlines():
            if line.startswith("totals:"):
                return int(line.split()[1]) / int(ran.stdout)
        raise ValueError(f"callgrind has counted nothing in row {name}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.client_instructions", description="Count instructions.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which rows (all): {', '.join(ROWS)}")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    names: list[str] = options.rows or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)} (there are {', '.join(ROWS)})")
    for name in names:
        if options.counted:
            run(name)
        else:
            print(f"{name}: {count(name):,.0f} instructions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
