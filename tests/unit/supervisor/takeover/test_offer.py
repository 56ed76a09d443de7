"""Both ends of a take-over, without routers: messages, limits, and what ends a connection."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from sluice.router.log import LogSettings, ProcessLog
from sluice.supervisor.children.private_directory import PREFIX
from sluice.supervisor.takeover import offer as offers
from sluice.supervisor.takeover import predecessor as predecessors
from sluice.supervisor.takeover.messages import (
    MOST_SOCKETS,
    MOST_SOCKETS_EACH,
    Handed,
    HandedSocket,
    Peer,
    SuccessorReady,
    TakeOverError,
    send,
)
from sluice.supervisor.takeover.offer import TakeOverOffer
from sluice.supervisor.takeover.predecessor import Predecessor, find_predecessor

PATIENCE = 20.0
OWN = (os.geteuid(),)


class StandInRouter:
    """Router with listening sockets."""

    def __init__(self, count: int) -> None:
        self.identity = ("QDR", "1.2.3")
        self.reason: str | None = None
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.sockets = [self.listening] * count
        self.taken: list[int] = []  # number of the sockets taken at each hand-over

    def refusal(self) -> str | None:
        return self.reason

    def handed(self) -> tuple[Handed, Sequence[socket.socket]]:
        named = [HandedSocket(f"listener-{number}") for number in range(len(self.sockets))]
        return Handed(named, notify="@notify", watchdog="5"), self.sockets

    def hand_over(self, to: Peer, taken: Sequence[socket.socket], yielded: Callable[[], None]) -> None:
        assert to.pid == os.getpid()
        self.taken.append(len(taken))
        yielded()


@pytest.fixture
def log() -> ProcessLog:
    return ProcessLog(LogSettings())


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only parent of private directories."""
    monkeypatch.setattr(predecessors, "usual_bases", lambda: [str(tmp_path)])
    return tmp_path


class OfferedSockets:
    """Offer of a stand-in router, in the event loop of the test. Calls of the new router block, in a thread."""

    def __init__(self, base: Path, log: ProcessLog, count: int = 3, name: str = "a") -> None:
        self.router = StandInRouter(count)
        directory = base / f"{PREFIX}{name}"
        directory.mkdir()
        self.offer = TakeOverOffer(asyncio.get_running_loop(), directory, self.router, log)
        self.offer.open()

    async def find(self, process: int | None = None) -> Predecessor:
        return await asyncio.to_thread(find_predecessor, "QDR", process, OWN)

    async def take(self) -> Predecessor:
        found = await self.find()
        await asyncio.to_thread(found.take)
        return found

    def close(self) -> None:
        self.offer.close()
        self.router.listening.close()


async def report_ready(found: Predecessor, taken: Sequence[int], log: ProcessLog) -> str | None:
    """Return None if the running router has yielded, or the reason of its refusal."""
    answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    found.report_ready(asyncio.get_running_loop(), taken, lambda: answer.set_result(None), answer.set_result, log)
    return await asyncio.wait_for(answer, PATIENCE)


def run(test: Callable[[OfferedSockets], Awaitable[None]], base: Path, log: ProcessLog, count: int = 3) -> None:
    """Run a test in an event loop with an offer."""

    async def whole() -> None:
        offered = OfferedSockets(base, log, count)
        try:
            await test(offered)
        finally:
            offered.close()

    asyncio.run(whole())


@pytest.mark.parametrize("count", [0, 1, MOST_SOCKETS_EACH, MOST_SOCKETS_EACH + 1, MOST_SOCKETS])
def test_sockets_of_several_messages_arrive_in_order(base: Path, log: ProcessLog, count: int) -> None:
    async def test(offered: OfferedSockets) -> None:
        found = await offered.take()
        assert [handed.name for handed, _ in found.sockets] == [f"listener-{number}" for number in range(count)]
        address = offered.router.listening.getsockname()
        assert {opened.getsockname() for _, opened in found.sockets} <= {address}
        assert (found.notify, found.watchdog) == ("@notify", "5")
        found.close()

    run(test, base, log, count)


def test_sockets_beyond_the_limit_are_refused(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        with pytest.raises(TakeOverError, match=f"more than {MOST_SOCKETS} listening sockets"):
            await offered.take()

    run(test, base, log, MOST_SOCKETS + 1)


def test_ready_process_gets_the_router(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        assert await report_ready(await offered.take(), [2, 0, 2], log) is None
        assert offered.router.taken == [2]
        with pytest.raises(TakeOverError, match="no process of this user runs router 'QDR'"):
            await offered.find()

    run(test, base, log)


def test_unknown_socket_in_ready_is_refused(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        reason = await report_ready(await offered.take(), [3], log)
        assert reason is not None
        assert "an index in 'ready' is that of no socket" in reason
        assert offered.router.taken == []
        (await offered.take()).close()

    run(test, base, log)


def test_router_that_begins_to_exit_refuses_ready(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        found = await offered.take()
        offered.router.reason = "the router is about to exit"
        assert "the router is about to exit" in str(await report_ready(found, [], log))
        assert offered.router.taken == []

    run(test, base, log)


def test_second_process_is_refused_until_the_first_has_ended(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        first = await offered.take()
        with pytest.raises(TakeOverError, match="another take-over is in progress"):
            await offered.take()
        first.close()
        while offered.offer.successor is not None:
            await asyncio.sleep(0)
        (await offered.take()).close()

    run(test, base, log)


def test_process_that_is_never_ready_is_refused(base: Path, log: ProcessLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "READY_SECONDS", 0.01)

    async def test(offered: OfferedSockets) -> None:
        found = await offered.take()
        while offered.offer.successor is not None:
            await asyncio.sleep(0)
        assert "the time limit has passed" in str(await report_ready(found, [], log))
        assert offered.router.taken == []

    run(test, base, log)


def test_several_routers_with_one_id_are_named(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        other = OfferedSockets(base, log, name="b")
        with pytest.raises(TakeOverError, match=f"several processes run router 'QDR': {os.getpid()}, {os.getpid()}"):
            await offered.find()
        other.close()
        (await offered.find(os.getpid())).close()

    run(test, base, log)


def test_lost_router_lets_the_new_one_begin(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        found = await offered.take()
        offered.close()
        assert await report_ready(found, [0], log) is None
        assert "has ended" in log.recent()[-1].text

    run(test, base, log)


def test_message_after_ready_is_refused(base: Path, log: ProcessLog) -> None:
    async def test(offered: OfferedSockets) -> None:
        offered.router.hand_over = lambda to, taken, yielded: None  # type: ignore[method-assign]
        found = await offered.take()
        send(found._channel, SuccessorReady([]))
        assert "a message after 'ready'" in str(await report_ready(found, [], log))

    run(test, base, log)
