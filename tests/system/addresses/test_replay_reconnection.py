"""Replay of a capture while the router is killed and started again (docs/user/capture.md)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.peer import message as messages
from tests.peer.peer import AmqpPeer
from tests.system.addresses.capture_process import CaptureProcess
from tests.system.fixtures import Start, bodies
from tests.system.router import free_port, listener
from tests.system.tools import TIMEOUT, command, environment

WORKER_COUNTS = (1, 3)
NOT_ALL = 3  # exit code: not all messages were accepted
COUNT = 20
IN_FLIGHT = 8
ACCEPTED = 3  # messages accepted before the router is killed


def test_replay_after_killed_router_sends_the_rest_and_counts_the_lost(
    start: Start, workers: int, peers: list[AmqpPeer], tmp_path: Path
) -> None:
    """Each message that arrives beyond the limit in flight proves that the replay knows an outcome."""
    router = start([listener(port=free_port())], workers)
    path = tmp_path / "capture"
    peers += [AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)]
    consumer, sender = peers[0].receiver("a", 100), peers[1].sender("a")
    with CaptureProcess(router, path, "--address", "a", "--max-messages", str(COUNT)) as capture:
        for number in range(COUNT):
            sender.send(messages.message(number), settled=True)
        assert bodies(consumer.receive(COUNT)) == list(range(COUNT))
        assert capture.wait()[0] == 0
    words = ("--json", "--speed", "max", "--in-flight", str(IN_FLIGHT), "--wait", "60s")
    replay = subprocess.Popen(
        [*command("replay"), "-b", f"127.0.0.1:{router.port}", str(path), *words],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with replay:
        first = consumer.receive(IN_FLIGHT)
        for delivery in first[:ACCEPTED]:
            delivery.settle()
        first += consumer.receive(ACCEPTED)
        assert bodies(first) == list(range(IN_FLIGHT + ACCEPTED))
        router.kill()
        router.start()
        peers.append(AmqpPeer.opened(router.port))
        rest = []
        again = peers[-1].receiver("a", 100)
        for _ in range(COUNT - len(first)):
            rest.append(again.next(TIMEOUT))
            rest[-1].settle()
        assert bodies(rest) == list(range(len(first), COUNT))
        found = json.loads(replay.communicate(timeout=TIMEOUT)[0])
    assert replay.returncode == NOT_ALL
    assert found["outcomes"] == {"accepted": COUNT - IN_FLIGHT, "lost with the connection": IN_FLIGHT}
    assert (found["messages"], found["reconnections"]) == (COUNT, 1)
