"""Start of workers while system resources are exhausted. The processes are real, and the test plays the zygote."""

import asyncio
import os
import socket
import subprocess

import pytest

import sluice.supervisor.children.pool
from sluice.router.config.load import load_text
from sluice.router.control.codec import decode_fork_request, encode_fork
from sluice.router.control.handover import ForkAnswer, ForkRequest
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.channels import WorkerChannels
from sluice.supervisor.children.handover_sockets import HandoverSockets
from sluice.supervisor.children.pool import WorkerPool
from sluice.supervisor.children.shared_resources import SharedResources
from sluice.supervisor.children.worker import WorkerStage
from sluice.supervisor.children.zygote import MAX_MESSAGE, SOCKETS, Zygote
from sluice.supervisor.composition import RouterCore
from tests.unit.supervisor.harness import PATIENCE, configuration_text
from tests.unit.supervisor.listeners.test_acceptor import until


class PoolWithFakeZygote:
    """Pool with the zygote's end of its channel."""

    def __init__(self):
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        self.core = RouterCore(load_text("router.conf", configuration_text()), self.log, 100, lambda number: None)
        self.shared = SharedResources(2, 4, 4, 4096)
        ours, self.zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.zygote.setblocking(False)
        self.channel = ours
        self.fatal: list[str] = []
        self.returned: list[tuple[object, ...]] = []
        loop = asyncio.get_running_loop()
        self.channels = WorkerChannels(loop, str(self.shared.directory.path), self.shared.keys, self)
        self.handover = HandoverSockets(loop, self, self, self.log)
        self.pool = WorkerPool(
            loop, self.core, Zygote(os.getpid(), ours), self.shared.region, self.channels, self.handover, self.log,
            self.fatal.append,
        )  # fmt: skip
        self.processes = []

    # Handler of messages

    def receive(self, identity, messages):
        raise AssertionError("there are no workers")

    def subscribed(self, topic):
        raise AssertionError("there are no workers")

    def refuse(self, identity, text):
        raise AssertionError("there are no workers")

    def flush(self):
        """Do nothing: no worker has orders."""

    # Connections of workers, and pages

    def withdraw(self, worker):
        self.returned.append(("withdraw", worker))

    def resume(self):
        raise AssertionError("there are no probes")

    def moved(self, worker, message, accepted):
        self.returned.append((worker, message, accepted))

    def answer_page(self, worker, number, opened, certified):
        self.returned.append((worker, number, opened))

    # The zygote

    def next_request(self):
        """Return the next request, None if there is none."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.zygote, MAX_MESSAGE, SOCKETS)
        except BlockingIOError:
            return None
        for descriptor in descriptors:
            os.close(descriptor)
        return decode_fork_request(data)

    async def request(self):
        async with asyncio.timeout(PATIENCE):
            while (found := self.next_request()) is None:
                await asyncio.sleep(0.001)
        return found

    def answer(self):
        """Answer the request with a process that stands for a worker."""
        process = subprocess.Popen(["sleep", "60"])
        self.processes.append(process)
        pidfd = os.pidfd_open(process.pid)
        socket.send_fds(self.zygote, [encode_fork(ForkAnswer(process.pid))], [pidfd])
        os.close(pidfd)
        return process.pid

    def stage(self):
        return self.core.workers[0].stage

    def errors(self):
        return [entry.text for entry in self.log.recent() if entry.level == "error"]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.pool.close()
        self.channels.close()
        self.channel.close()
        self.zygote.close()
        self.shared.close()
        self.log.close()


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(sluice.supervisor.children.pool, "RESTART_AFTER", 0.01)

    def run_scenario(scenario):
        async def body():
            setup = PoolWithFakeZygote()
            try:
                await scenario(setup)
            finally:
                setup.close()

        asyncio.run(body())

    return run_scenario


@pytest.mark.starts
def test_request_to_busy_zygote_is_repeated(run):
    async def scenario(setup):
        request = encode_fork(ForkRequest(1, 1))
        count = 0
        try:
            while True:
                setup.channel.send(request)
                count += 1
        except BlockingIOError:
            setup.pool.start(0)
        assert setup.stage() is WorkerStage.DEAD
        (error,) = setup.errors()
        assert error.startswith("Worker 0 cannot be started: Resource temporarily unavailable")
        for _ in range(count):
            await setup.request()
        assert (await setup.request()).worker == 0
        while setup.next_request() is not None:  # requests of further attempts
            pass
        pid = setup.answer()
        await until(lambda: setup.stage() is WorkerStage.STARTING)
        assert setup.core.workers[0].pid == pid, "the answer goes to the requested worker"

    run(scenario)


@pytest.mark.starts
def test_worker_that_exited_without_pidfd_is_replaced(run):
    async def scenario(setup):
        setup.pool.start(0)
        assert await setup.request() == ForkRequest(0, 1)
        gone = subprocess.Popen(["true"])
        gone.wait()
        setup.zygote.send(encode_fork(ForkAnswer(gone.pid)))
        assert await setup.request() == ForkRequest(0, 2)
        assert not setup.fatal

    run(scenario)


@pytest.mark.starts
def test_silent_zygote_is_logged(run, monkeypatch):
    monkeypatch.setattr(sluice.supervisor.children.pool, "START_DEADLINE", 0.01)

    async def scenario(setup):
        setup.pool.start(0)
        await until(lambda: len(setup.errors()) > 1)
        assert "has not answered" in setup.errors()[0]
        monkeypatch.setattr(sluice.supervisor.children.pool, "START_DEADLINE", 60)
        setup.answer()
        await until(lambda: setup.stage() is WorkerStage.STARTING)

    run(scenario)
