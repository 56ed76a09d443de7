"""Child processes: real programs that echo, exit, hang, or send nonsense."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

import sluice.supervisor.children.child_process
from sluice.router.log import ERROR, LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.child_process import ChildProcess, ChildProgram, Command
from sluice.supervisor.children.framing import MessageError, MessageSplitter, pack
from tests.unit.supervisor.auth.waiting import soon

pytestmark = pytest.mark.starts

MOST_MESSAGE = 1 << 20
MOST_UNSENT = 4 << 20

# Send each message back, and `end` when the socket is closed.
ECHO = """
import socket, sys
from sluice.supervisor.children.framing import MessageSplitter, pack

ours = socket.socket(fileno=int(sys.argv[1]))
reader = MessageSplitter(1 << 20)
while octets := ours.recv(65536):
    for each in reader.feed(octets):
        ours.sendall(pack(each))
ours.sendall(pack(b"end"))
"""
HANG = "import time; time.sleep(600)"
EXIT = "raise SystemExit(3)"
NONSENSE = "import os, sys, time; os.write(int(sys.argv[1]), b'\\xff' * 8); time.sleep(600)"


def python(program: str) -> Command:
    return lambda descriptor: [sys.executable, "-c", program, str(descriptor)]


class OwnedChild:
    """Child with its owner, which notes all events and sends `hello` to each new child."""

    def __init__(self, command: Command) -> None:
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        program = ChildProgram("test", command, "SERVER", ERROR, MOST_MESSAGE, MOST_UNSENT, 60.0)
        self.child = ChildProcess(asyncio.get_running_loop(), program, self, self.log)
        self.times: list[float] = []  # of each start
        self.received: list[bytes] = []
        self.lost: list[str] = []

    def child_started(self) -> None:
        self.times.append(time.monotonic())
        self.child.send(b"hello")

    def child_reported(self, content: bytes) -> None:
        if content == b"bad":
            raise MessageError("bad")
        self.received.append(content)

    def child_lost(self, why: str) -> None:
        self.lost.append(why)

    def has_started(self, count: int) -> bool:
        return len(self.times) == count

    @property
    def started(self) -> int:
        return len(self.times)

    def lines(self) -> list[str]:
        return [entry.text for entry in self.log.recent()]


def run(command: Command, scenario: Callable[[OwnedChild], Awaitable[None]]) -> None:
    async def body() -> None:
        owner = OwnedChild(command)
        owner.child.start()
        try:
            await scenario(owner)
        finally:
            owner.child.stop()
            owner.log.close()
        assert (owner.child.pid, owner.child.running) == (None, False)

    asyncio.run(body())


def test_messages_of_any_size_arrive_in_order() -> None:
    contents = [bytes([number]) * (number * 500) for number in range(100)]

    async def scenario(owner: OwnedChild) -> None:
        for content in contents:
            owner.child.send(content)
        await soon(lambda: len(owner.received) == len(contents) + 1)
        assert owner.received == [b"hello", *contents]

    run(python(ECHO), scenario)


def test_killed_child_is_replaced_and_logged() -> None:
    async def scenario(owner: OwnedChild) -> None:
        await soon(lambda: owner.received)
        first = owner.child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await soon(lambda: len(owner.received) == 2)
        assert owner.child.pid != first
        assert owner.lost == ["it died"]
        assert owner.lines() == [f"The test process is restarted: it died (process {first}, SIGKILL)"]

    run(python(ECHO), scenario)


def test_child_that_exits_at_once_is_restarted_ever_later() -> None:
    async def scenario(owner: OwnedChild) -> None:
        await soon(lambda: owner.started == 4)
        pauses = [after - before for before, after in itertools.pairwise(owner.times)]
        assert all(pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True))
        assert "exit status 3" in owner.lines()[0]

    run(python(EXIT), scenario)


def test_long_lived_child_is_restarted_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sluice.supervisor.children.child_process, "LONG_LIVED_SECONDS", 0.0)

    async def scenario(owner: OwnedChild) -> None:
        for count in range(2, 12):  # with doubled pauses the last one would be longer than `soon` waits
            owner.child.fail("test")
            await soon(partial(owner.has_started, count))

    run(python(HANG), scenario)


def test_missing_program_is_logged_and_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "program"

    async def scenario(owner: OwnedChild) -> None:
        owner.child.send(b"lost")
        assert owner.lines() == ["The test process cannot be started: No such file or directory"]
        program.symlink_to(sys.executable)
        await soon(lambda: owner.received)
        assert owner.received == [b"hello"]
        assert owner.lost == []

    run(lambda descriptor: [str(program), "-c", ECHO, str(descriptor)], scenario)


def test_child_that_does_not_read_is_replaced() -> None:
    async def scenario(owner: OwnedChild) -> None:
        first = owner.child.pid
        while not owner.lost:
            owner.child.send(bytes(MOST_MESSAGE))
            await asyncio.sleep(0)
        assert owner.lost == ["it does not read"]
        await soon(lambda: owner.child.pid not in (None, first))

    run(python(HANG), scenario)


@pytest.mark.parametrize("program", [NONSENSE, ECHO])
def test_invalid_message_ends_the_child(program: str) -> None:
    async def scenario(owner: OwnedChild) -> None:
        owner.child.send(b"bad")
        await soon(lambda: owner.started == 2)
        assert owner.lost == ["it sent a bad message"]
        assert "it sent a bad message: " in owner.lines()[0]

    run(python(program), scenario)


def test_finished_child_reads_everything_and_exits() -> None:
    async def scenario(owner: OwnedChild) -> None:
        for _ in range(3):
            owner.child.send(bytes(MOST_MESSAGE))
        await owner.child.finish(30)
        assert [len(content) for content in owner.received] == [5, *[MOST_MESSAGE] * 3, 3]
        assert (owner.lost, owner.lines(), owner.started) == ([], [], 1)

    run(python(ECHO), scenario)


def test_finish_starts_a_child_whose_restart_is_scheduled() -> None:
    async def scenario(owner: OwnedChild) -> None:
        await soon(lambda: owner.received)
        owner.child.restart("test")
        assert not owner.child.running
        await owner.child.finish(30)
        assert owner.received == [b"hello", b"hello", b"end"]

    run(python(ECHO), scenario)


def test_finish_of_hanging_child_ends_in_time() -> None:
    async def scenario(owner: OwnedChild) -> None:
        await owner.child.finish(0.1)
        assert owner.lines() == ["The test process does not exit within 0.1 s and is killed"]

    run(python(HANG), scenario)


def test_message_over_the_limit_is_refused_by_its_length() -> None:
    splitter = MessageSplitter(3)
    assert splitter.feed(pack(b"abc") + pack(b"")[:2]) == [b"abc"]
    assert splitter.feed(pack(b"")[2:]) == [b""]
    with pytest.raises(MessageError, match="4 octets"):
        splitter.feed(pack(b"abcd")[:4])
