"""Analysis of a process's longest wakes: `python -m loadtests.wakes PID [--seconds N] [--most N]`.

strace watches a worker from outside. A wake lasts from one return of epoll_wait to its next call. For each of the
longest wakes the output has its time, its duration, the part in the kernel, the calls by number and time, and the
longest time of computing between two calls, with these two calls. The time for which the process waited for a core
tells whether the machine or the worker caused the pauses: a getpid of milliseconds is a lost core. strace slows down
each call (by some 30 µs), so wakes with many calls look longer than they are: compare them with each other only. Exit
status: 0, or 2 if the process cannot be watched.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LINE = re.compile(r"(?P<at>\d+\.\d+) (?P<name>\w+)\((?P<first>[^,)]*).*<(?P<took>\d+\.\d+)>$")
WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")
MICRO = 1_000_000


@dataclass(frozen=True)
class Call:
    """System call: seconds since the epoch, name, first argument, duration in seconds."""

    at: float
    name: str
    first: str
    took: float

    @property
    def end(self) -> float:
        return self.at + self.took

    @property
    def text(self) -> str:
        return f"{self.name}({self.first})"


@dataclass
class Wake:
    """System calls between two waits."""

    began: float
    ended: float = 0.0
    calls: list[Call] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def in_calls(self) -> float:
        return sum(call.took for call in self.calls)

    def gap(self) -> tuple[float, str, str]:
        """Return the longest time between two calls: seconds, the call before and the call after."""
        ends = [(self.began, "the wake"), *((call.end, call.text) for call in self.calls)]
        starts = [*((call.at, call.text) for call in self.calls), (self.ended, "the next wait")]
        pairs = zip(ends, starts, strict=True)
        return max(((to - since, before, after) for (since, before), (to, after) in pairs), key=lambda each: each[0])


def calls(lines: Iterable[str]) -> Iterator[Call]:
    """Parse the output of `strace -ttt -T`; lines that are no calls are skipped."""
    for line in lines:
        found = LINE.match(line.strip())
        if found is not None:
            yield Call(float(found["at"]), found["name"], found["first"], float(found["took"]))


def wakes(found: Iterable[Call]) -> Iterator[Wake]:
    """Yield the complete wakes."""
    now: Wake | None = None
    for call in found:
        if call.name in WAITS:
            if now is not None:
                now.ended = call.at
                yield now
            now = Wake(call.end)
        elif now is not None:
            now.calls.append(call)


def describe(wake: Wake, start: float) -> str:
    """Describe a wake in some lines."""
    taken: Counter[str] = Counter()
    for call in wake.calls:
        taken[call.name] += round(call.took * MICRO)
    numbers = Counter(call.name for call in wake.calls)
    named = ", ".join(f"{numbers[name]} {name} {time} µs" for name, time in taken.most_common(6))
    gap, before, after = wake.gap()
    return (
        f"{wake.began - start:8.3f} s: {wake.seconds * MICRO:,.0f} µs, {wake.in_calls * MICRO:,.0f} µs of it in "
        f"{len(wake.calls)} calls: {named or 'none'}\n"
        f"           computed longest, {gap * MICRO:,.0f} µs, between {before} and {after}"
    )


def watch(pid: int, seconds: float, path: Path) -> None:
    """Write strace's output to a file. Raises OSError or subprocess.CalledProcessError."""
    words = ["timeout", "--signal=INT", str(seconds)]
    words += ["strace", "-ttt", "-T", "-s", "0", "-o", str(path), "-p", str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not path.exists() or not path.stat().st_size:
        raise OSError(done.stderr.strip() or f"strace saw nothing of process {pid}")


def core_waits(pid: int) -> float:
    """Return the seconds that a process has waited for a core (proc(5), schedstat). Raises OSError."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def names(pid: int) -> list[str]:
    """Return the open files of a process, by descriptor number."""
    found = []
    for entry in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda each: int(each.name)):
        try:
            found.append(f"{entry.name} {os.readlink(entry)}")
        except OSError:
            continue  # closed meanwhile
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.wakes", description="What did a process do in its longest wakes?"
    )
    parser.add_argument("pid", type=int, help="of a worker")
    parser.add_argument("--seconds", type=float, default=10.0, help="(%(default)s)")
    parser.add_argument("--most", type=int, default=10, help="wakes shown (%(default)s)")
    options = parser.parse_args(words)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace")
            before = core_waits(options.pid)
            watch(options.pid, options.seconds, path)
            waited = core_waits(options.pid) - before
            with path.open() as lines:
                found = list(wakes(calls(lines)))
            print("descriptors: " + "; ".join(names(options.pid)))
    except OSError as error:
        print(f"wakes: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"wakes: process {options.pid} did not wake twice", file=sys.stderr)
        return 2
    whole = found[-1].ended - found[0].began
    print(f"{len(found)} wakes in {whole:.1f} s; waited for a core for {waited * 1000:,.0f} ms")
    for wake in sorted(found, key=lambda each: -each.seconds)[: options.most]:
        print(describe(wake, found[0].began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
