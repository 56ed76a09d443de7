"""Rights of the router's processes, and protection of their memory (docs/internals/threat-model.md)."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.router.process import BACKGROUND_NICE, CAP_DAC_OVERRIDE, KEPT_CAPABILITIES, SHORT_SLICE_NS
from tests.other_user import program_for
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki, pki
from tests.system.fixtures import Start
from tests.system.router import FILES, ROOT, RouterProcess, Section, listener, poll

#: Program that runs as the same user with no more rights than a worker, and prints for each process whether its memory
#: can be opened.
OPEN_MEMORY = """
import sys
from sluice.router.process import drop_capabilities

drop_capabilities()
for pid in sys.argv[1:]:
    try:
        open(f"/proc/{pid}/mem", "rb").close()
        print("open")
    except PermissionError:
        print("closed")
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


def status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status."""
    return dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))


def try_memory(pids: list[int]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_MEMORY, *map(str, pids)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def users(directory: Path) -> list[Section]:
    """Return the sections of a listener that needs the authentication process."""
    file = directory / "users"
    command = [str(ROOT / ".venv" / "bin" / "sluice"), "passwd", str(file), "alice"]
    subprocess.run(command, input="secret\n", text=True, capture_output=True, timeout=60, check=True)
    return [("saslUsers", {"name": "people", "file": file}), listener("named", saslUsers="people")]


def processes_by_kind(router: RouterProcess) -> dict[str, list[int]]:
    """Return the process ids by the kind that the process titles name."""
    found: dict[str, list[int]] = {"supervisor": [router.pid]}
    for process in router.family():
        title = " ".join(process.cmdline())
        if title.startswith("sluice: "):
            found.setdefault(title.split()[1], []).append(process.pid)
    return found


@pytest.mark.parametrize("options", [(), ("--user", "nobody")], ids=["as it is", "another user"])
def test_processes_keep_only_needed_rights(start: Start, tmp_path: Path, options: tuple[str, ...]) -> None:
    if options and os.getuid() != 0:
        pytest.skip("only root can switch users")
    program = program_for("nobody") if options else ()
    router = start([*users(tmp_path), listener()], 2, options=options, program=program)
    wanted = {"supervisor": 1, "zygote": 1, "worker": 2, "authentication": 1}
    poll(
        lambda: {kind: len(pids) for kind, pids in processes_by_kind(router).items()} == wanted,
        "all processes are there",
    )
    own = int(status(os.getpid())["CapPrm"], 16)
    for kind, pids in processes_by_kind(router).items():
        for pid in pids:
            # The authentication process sets its title a moment before it drops its rights.
            poll(lambda pid=pid: status(pid)["NoNewPrivs"] == "1", f"{kind} gains no rights")  # type: ignore[misc]
            if kind == "supervisor" and not options:
                continue  # the supervisor opens ports and files whenever the configuration requires it
            kept = 0 if options else own & KEPT_CAPABILITIES
            poll(lambda pid=pid, kept=kept: _capabilities(pid) == {kept}, f"{kind} has given up its rights")  # type: ignore[misc]


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_workers_have_a_filter_of_system_calls(start: Start) -> None:
    """Replacement workers have the filter, too. The supervisor starts programs and has none."""
    router = start([listener()], 2)
    first = processes_by_kind(router)["worker"]
    os.kill(first[0], 9)
    poll(
        lambda: first[0] not in processes_by_kind(router)["worker"] and len(processes_by_kind(router)["worker"]) == 2,
        "the worker is replaced",
        30.0,
    )
    for pid in processes_by_kind(router)["worker"]:
        poll(lambda pid=pid: status(pid)["Seccomp"] == "2", "the worker has a filter")  # type: ignore[misc]
    assert status(router.pid)["Seccomp"] == status(os.getpid())["Seccomp"]


def test_authentication_process_has_lowest_priority(start: Start, tmp_path: Path) -> None:
    """Password checks have the lowest CPU priority, so that they do not delay messages."""
    router = start([*users(tmp_path), listener()], 1)
    own = os.nice(0)
    wanted = {"worker": own, "zygote": own, "supervisor": own, "authentication": min(own + BACKGROUND_NICE, 19)}

    def nice() -> dict[str, int]:
        return {kind: os.getpriority(os.PRIO_PROCESS, pid) for kind, (pid,) in processes_by_kind(router).items()}

    poll(lambda: nice() == wanted, "each process has its place")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the system call is that of x86_64")
def test_workers_have_a_short_scheduling_slice(start: Start) -> None:
    """Workers have a short scheduling slice on kernels that support one."""
    usual = _slice(os.getpid())
    if usual == 0:
        pytest.skip("Linux before 6.12 has no slices of its own for a thread")
    router = start([listener()], 2)
    poll(
        lambda: {_slice(pid) for pid in processes_by_kind(router)["worker"]} == {SHORT_SLICE_NS},
        "workers have short slices",
    )
    assert _slice(router.pid) == usual


def _slice(pid: int) -> int:
    """Return a thread's scheduling slice in ns, from sched_getattr(2)."""
    attributes = ctypes.create_string_buffer(56)
    if ctypes.CDLL(None, use_errno=True).syscall(315, pid, attributes, len(attributes), 0):
        raise OSError(ctypes.get_errno(), "sched_getattr")
    (found,) = struct.unpack_from("Q", attributes, 24)
    return int(found)


def _capabilities(pid: int) -> set[int]:
    """Return the effective set and the union of the permitted, inheritable and ambient sets."""
    found = status(pid)
    return {int(found["CapEff"], 16), int(found["CapPrm"], 16) | int(found["CapInh"], 16) | int(found["CapAmb"], 16)}


def test_kept_capability_is_dac_override() -> None:
    assert KEPT_CAPABILITIES == 1 << CAP_DAC_OVERRIDE == 2


def test_workers_with_keys_are_not_dumpable(start: Start, authority: Pki) -> None:
    """Both running and later workers become non-dumpable; the figures that management shows of them stay available."""
    router = start([listener(), FILES], 2)
    pids = router.worker_pids()
    assert try_memory(pids) == {"open"}, "there is nothing to hide yet"
    peer = AmqpPeer.opened(router.port)
    management = Management(peer)
    files = {"certFile": str(authority.server.certificate), "privateKeyFile": str(authority.server.key)}
    management.create("sslProfile", "p", **files)
    poll(lambda: try_memory(pids) == {"closed"}, "the memory of no worker can be opened")
    os.kill(pids[0], 9)
    poll(lambda: pids[0] not in router.worker_pids() and len(router.worker_pids()) == 2, "the worker is replaced", 30.0)
    poll(lambda: try_memory(router.worker_pids()) == {"closed"}, "the new worker cannot be opened either")
    assert try_memory([router.pid]) == {"closed"}
    peer.drop()
    own = AmqpPeer.opened(router.port)
    rows = Management(own).call("GET-WORKERS")
    own.drop()
    assert [row["residentOctets"] > 0 and row["cpuSeconds"] is not None for row in rows] == [True, True], rows
