"""Requests for pages that workers send through their hand-over sockets. The test has the worker's end."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator

import pytest

from sluice.router.control.codec import encode_page_request
from sluice.router.control.handover import PageRequest
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.handover_sockets import HandoverSockets
from sluice.supervisor.children.worker import WorkerProcess
from tests.unit.supervisor.auth.waiting import soon

PAGE = encode_page_request(PageRequest(8))


class AskingWorker:
    """Hand-over with one worker, and the owner of its connections, which notes the calls."""

    def __init__(self) -> None:
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        self.handover = HandoverSockets(asyncio.get_running_loop(), self, self, self.log)
        self.worker = WorkerProcess(0, 1)
        self.calls: list[tuple[object, ...]] = []
        self.handover.open(self.worker)

    def withdraw(self, worker: WorkerProcess) -> None:
        self.calls.append(("withdraw", worker.handover, worker.untaken is not None))

    def resume(self) -> None:
        raise AssertionError("the hand-over never resumes")

    def answer_page(self, worker: WorkerProcess, number: int, opened: socket.socket, certified: bool) -> None:
        self.calls.append((worker, number, "page"))
        opened.close()

    def send_back(self, data: bytes, *opened: socket.socket) -> None:
        assert self.worker.untaken is not None
        socket.send_fds(self.worker.untaken, [data], [each.fileno() for each in opened])


Scenario = Callable[[AskingWorker, socket.socket], Awaitable[None]]


@pytest.fixture
def accepted() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs


def run(scenario: Scenario, accepted: socket.socket) -> None:
    async def body() -> None:
        setup = AskingWorker()
        try:
            await scenario(setup, accepted)
        finally:
            setup.handover.close(setup.worker)
            setup.log.close()
        assert (setup.worker.handover, setup.worker.untaken) == (None, None)

    asyncio.run(body())


def test_request_for_page_reaches_page_server(accepted: socket.socket) -> None:
    async def scenario(setup: AskingWorker, accepted: socket.socket) -> None:
        setup.send_back(PAGE)  # no descriptor is left
        setup.send_back(PAGE, accepted)
        await soon(lambda: len(setup.calls) > 0)
        assert setup.calls == [(setup.worker, 8, "page")]

    run(scenario, accepted)


@pytest.mark.starts
def test_malformed_message_kills_the_worker(accepted: socket.socket) -> None:
    async def scenario(setup: AskingWorker, accepted: socket.socket) -> None:
        with subprocess.Popen(["sleep", "60"]) as process:
            setup.worker.pid, setup.worker.pidfd = process.pid, os.pidfd_open(process.pid)
            setup.send_back(b"\xc1", accepted)
            await soon(lambda: process.poll() is not None)
            setup.worker.kill()  # without effect
            os.close(setup.worker.pidfd)
        (line,) = (entry.text for entry in setup.log.recent())
        assert line.startswith(f"Worker 0 (process {process.pid}) is killed: it sent a bad message: ")
        assert setup.calls == []

    run(scenario, accepted)


def test_lost_worker_gives_back_untaken_connections(accepted: socket.socket) -> None:
    async def scenario(setup: AskingWorker, accepted: socket.socket) -> None:
        setup.handover.lose(setup.worker)
        assert setup.calls == [("withdraw", None, True)]

    run(scenario, accepted)
