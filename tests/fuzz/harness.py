"""Runner of fuzz targets: cases by seed in forked processes, so that a crash of compiled code ends only that process.

    SLUICE_FUZZ_SECONDS  duration of each target
    SLUICE_FUZZ_SEED     first seed (default 1: every run tries the same cases)

A case is plain JSON. A failing case is shortened as far as time allows and written to tests/fuzz/crashes/. Once the
fault is fixed, the case belongs in tests/vectors/, whose cases a unit test runs permanently.
"""

import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

import psutil
import pytest

Case = dict[str, Any]
Generate = Callable[[Random], Case]
Run = Callable[[Case], None]

CRASHES: Final = Path(__file__).parent / "crashes"
#: Seconds of processor time after which a case counts as hanging. A case takes milliseconds, or some seconds under
#: sanitizers.
HANG_SECONDS: Final = 60.0
#: Multiple of its limit after which a blocked case, which uses no processor time, counts as hanging.
BLOCKED_FACTOR: Final = 10.0
SHORTEN_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
FAILED: Final = 3  # exit status of a process whose case failed without crashing it
SEED: Final = struct.Struct("Q")
PR_SET_PDEATHSIG: Final = 1


def first_seed() -> int:
    return int(os.environ.get("SLUICE_FUZZ_SEED", "1"))


def fuzz(name: str, generate: Generate, run: Run, seconds: float) -> None:
    """Try cases for `seconds` seconds. Fail the test with the shortest failing case found."""
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        pytest.fail("several threads, a fork may deadlock: run pytest -o faulthandler_timeout=0", pytrace=False)
    seed = first_seed()
    shared = mmap.mmap(-1, SEED.size)
    log = CRASHES / f"{name}.log"
    CRASHES.mkdir(exist_ok=True)

    def cases() -> None:
        at = seed
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            SEED.pack_into(shared, 0, at)
            run(generate(Random(f"{name} {at}")))
            at += 1

    ended = in_process(cases, log, seconds + HANG_SECONDS)
    last = SEED.unpack_from(shared, 0)[0]
    print(f"{name}: seeds {seed} to {last}")
    if ended is None:
        log.unlink()
        return
    report = log.read_text(errors="replace")
    case = shorten(generate(Random(f"{name} {last}")), run)
    path = CRASHES / f"{name}-{last}.json"
    path.write_text(json.dumps(case) + "\n")
    pytest.fail(f"{name}, seed {last}: {ended}; case in {path}\n{report}", pytrace=False)


def in_process(what: Callable[[], None], log: Path | None, limit: float) -> str | None:
    """Call `what` in a forked process, with stderr in `log`.

    limit: seconds of processor time, after which the process is killed. Return the reason why the process ended, or
    None if `what` returned.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(what, log)
    child = psutil.Process(pid)
    end = time.monotonic() + BLOCKED_FACTOR * limit
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        used = child.cpu_times()
        if used.user + used.system > limit or time.monotonic() > end:
            os.kill(pid, signal.SIGABRT)  # faulthandler writes a traceback
            os.waitpid(pid, 0)
            return f"hangs: killed after {used.user + used.system:.0f} s of processor time"
        time.sleep(POLL_SECONDS)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.WEXITSTATUS(status)
    return None if code == 0 else "fails" if code == FAILED else f"ended with status {code} (a sanitizer's report?)"


def _child(what: Callable[[], None], log: Path | None) -> NoReturn:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    target = os.open(os.fspath(log) if log is not None else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(target, 2)
    status = FAILED
    try:
        what()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        raise
    finally:
        os._exit(status)


def shorten(case: Case, run: Run) -> Case:
    """Remove the parts of a case that its failure does not need: events of a conversation, or octets. Other cases are
    returned unchanged."""
    end = time.monotonic() + SHORTEN_SECONDS
    key = "events" if "events" in case else "octets"
    if key not in case:
        return case
    step = 1 if key == "events" else 2  # two digits are one octet
    items = case[key]
    parts = 2
    while len(items) > step and time.monotonic() < end:
        size = max(step, len(items) // parts // step * step)
        for at in range(0, len(items), size):
            shorter = {**case, key: items[:at] + items[at + size :]}
            if time.monotonic() > end or in_process(partial(run, shorter), None, HANG_SECONDS) is not None:
                break
        else:
            if size == step:
                break
            parts *= 2
            continue
        if time.monotonic() > end:
            break
        items = shorter[key]
        parts = max(parts - 1, 2)
    return {**case, key: items}
