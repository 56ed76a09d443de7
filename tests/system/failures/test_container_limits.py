"""Router in a control group of version 2 with half a core and 256 MiB: numbers that it chooses, and its memory.

The limits are files in place of those of the kernel, in a mount namespace: the router reads them, and nothing enforces
them. So the test checks that the router stays within the memory, and is not killed by a kernel.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.http import WEB, scrape
from tests.system.router import RouterProcess, command, listener, render

pytestmark = pytest.mark.adversarial

MEMORY = 256 << 20
#: MiB for messages: half of what remains after 128 MiB and 32 MiB for the only worker.
MESSAGES_MEGABYTES = 48
#: Share by which a worker may exceed its limit.
EXCESS = 1.25
#: Octets of a message, and number of producers that send one each; together more than the container may have.
ENDLESS = 40_000_000
PRODUCERS = 8
#: Seconds without progress after which a sender counts as blocked.
BLOCKED_SECONDS = 1.0


@pytest.fixture
def contained(tmp_path: Path) -> list[str]:
    """Return the words that start a program in the control group."""
    group = tmp_path / "cgroup"
    group.mkdir()
    (group / "cpu.max").write_text("50000 100000\n")
    (group / "memory.max").write_text(f"{MEMORY}\n")
    point = "/sys/fs/cgroup"
    mounts = f"umount -R {point} && mount -t cgroup2 none {point} && mount --bind {shlex.quote(str(group))} {point}"
    unshare = ["unshare", "--mount", "sh", "-c"]
    probe = subprocess.run([*unshare, mounts], capture_output=True, text=True, timeout=60, check=False)
    if probe.returncode:
        pytest.skip(f"control groups cannot be mounted here: {probe.stderr.strip()}")
    return [*unshare, f'{mounts} && exec "$@"', "sh", *command()]


@pytest.fixture
def router(start: Start, contained: list[str]) -> RouterProcess:
    text = render([("router", {"id": "QDR"}), listener(), WEB])
    return start(workers=1, text=text, program=contained)


def test_workers_and_memory_follow_limits_of_version_2(router: RouterProcess) -> None:
    found = router.wait_log("May use .*")
    group = "/sys/fs/cgroup"
    expected = f"0.5 of them at a time ({group}/cpu.max), {MEMORY >> 20} MiB of memory ({group}/memory.max)"
    assert f"{expected}: 1 worker with {MESSAGES_MEGABYTES} MiB for messages" in found[0]
    assert len(router.worker_pids()) == 1
    page = scrape(router.ports["web"])
    assert page.sum("sluice_worker_buffered_limit_bytes") == MESSAGES_MEGABYTES << 20


def memory(router: RouterProcess) -> int:
    """Return the octets of all processes, with shared memory counted once."""
    return sum(psutil.Process(each.pid).memory_full_info().pss for each in router.family())


def test_senders_are_held_back_before_memory_of_container_is_used_up(
    router: RouterProcess, peers: list[AmqpPeer]
) -> None:
    def connect() -> AmqpPeer:
        peers.append(AmqpPeer.opened(next(iter(router.ports.values()))))
        return peers[-1]

    worker = router.worker_pids()
    deaf = connect().begin(incoming_window=0)
    deaf.receiver("stuck", credit=PRODUCERS)
    for _ in range(PRODUCERS):
        assert not connect().sender("stuck").send_some(message.data(bytes(ENDLESS)), BLOCKED_SECONDS)
        assert memory(router) < MEMORY
        held = scrape(router.ports["web"]).sum("sluice_worker_buffered_bytes")
        assert held <= EXCESS * (MESSAGES_MEGABYTES << 20)
    receiver, sender = connect().receiver("taken", 5), connect().sender("taken")
    number = sender.send(message.message("goes on"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert router.worker_pids() == worker
