"""Listening sockets and hand-over, with real sockets and workers that are only the other end of a socket pair."""

import asyncio
import errno
import os
import socket
from typing import NoReturn

import pytest
from msgspec.structs import replace

from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.codec import decode_handover
from sluice.router.control.handover import MOST_READ_BEFORE, Handover, InitiateData
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore, add_services
from sluice.supervisor.connections.connections import ConnectionEnd
from sluice.supervisor.listeners.listener import Listener, ListenError
from sluice.supervisor.runtime.host_names import Resolver, look_up
from tests.unit.supervisor.harness import PATIENCE, configuration_text

CONFIGURATION = load_text("router.conf", configuration_text())
LISTENER = CONFIGURATION.listeners[0]
MAX_MESSAGE = 65536
#: Connections that wait at once, above BURST_CONNECTIONS of the acceptor's pace.
BURST = 20


def no_http(acceptor: object) -> NoReturn:
    """Stand-in for the factory of the HTTP service."""
    raise AssertionError("there are no HTTP listeners here")


class AcceptorWithWorkers:
    """Acceptor on an ephemeral port, with workers."""

    def __init__(self, workers=2, configuration=CONFIGURATION, active=False):
        self.loop = asyncio.get_running_loop()
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0, output=os.devnull)}))
        self.core = RouterCore(configuration, self.log, 1000, lambda number: None)
        self.far = {}
        self.clients = []
        for index in range(workers):
            self.worker(index)
        self.services = add_services(
            self.core,
            self.loop,
            Resolver(self.loop),
            configuration,
            no_http,
            lambda listener: None,
            lambda: active,
            self.log,
        )
        self.acceptor = self.services.acceptor
        self.acceptor.bind(configuration.listeners)
        self.acceptor.open(lambda listener: None)
        self.port = self.acceptor.listeners[0].sockets[0].getsockname()[1]

    def worker(self, index):
        worker = WorkerProcess(index, 1)
        worker.stage = WorkerStage.SERVING
        worker.handover, self.far[index] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker.handover.setblocking(False)
        self.far[index].setblocking(False)
        self.core.workers[index] = worker
        return worker

    def close_handover(self, worker):
        """Close a lost worker's hand-over socket, as the pool does."""
        self.loop.remove_writer(worker.handover)
        worker.handover.close()
        worker.handover = None

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        return reader, writer

    async def receive(self, index):
        """Return the next hand-over to the worker: message and socket."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    data, fds, _, _ = socket.recv_fds(self.far[index], MAX_MESSAGE, 1)
                    return decode_handover(data), socket.socket(fileno=fds[0])
                except BlockingIOError:
                    ready = asyncio.Event()
                    self.loop.add_reader(self.far[index], ready.set)
                    await ready.wait()
                    self.loop.remove_reader(self.far[index])

    def close(self):
        self.acceptor.close()
        for writer in self.clients:
            writer.close()
        for worker in self.core.workers.values():
            if worker.handover is not None:
                self.close_handover(worker)
        for far in self.far.values():
            far.close()
        self.log.close()


def run(scenario, **arguments):
    async def body():
        setup = AcceptorWithWorkers(**arguments)
        try:
            await scenario(setup)
        finally:
            setup.close()

    asyncio.run(body())


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


def test_accepted_connection_is_handed_over():
    async def scenario(setup):
        _, writer = await setup.connect()
        message, given = await setup.receive(0)
        host, port = writer.get_extra_info("sockname")
        assert message == Handover(1, "main", f"{host}:{port}", admits=True)
        with given:
            assert given.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert not os.get_blocking(given.fileno())
            writer.write(b"AMQP")
            await until(lambda: given.recv(4, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"AMQP" if _readable(given)
                        else False)  # fmt: skip

    run(scenario)


def _readable(given):
    try:
        return bool(given.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


def upgrade(setup, octets):
    """Upgrade a connection from which the supervisor has read `octets`. Return the client's end."""
    client, accepted = socket.socketpair()
    (listener,) = setup.acceptor.listeners
    setup.acceptor.upgrade(listener, accepted, "127.0.0.1:9", octets)
    return client


def test_read_octets_are_handed_over_with_connection():
    async def scenario(setup):
        with upgrade(setup, b"AMQP\x00") as client:
            client.send(b"more")
            message, given = await setup.receive(0)
            with given:
                assert message == Handover(1, "main", "127.0.0.1:9", admits=True, octets=b"AMQP\x00")
                assert given.recv(100) == b"more", "later octets stay in the socket"

    run(scenario)


def test_read_octets_of_untaken_connection_go_to_other_worker():
    async def scenario(setup):
        with upgrade(setup, b"AMQP\x00"):
            first = setup.core.workers[0]
            assert list(first.connections) == [1]
            first.untaken = setup.far[0].dup()
            first.silent = 1.0
            setup.acceptor.withdraw(first)
            first.untaken.close()
            message, given = await setup.receive(1)
            given.close()
            assert message.octets == b"AMQP\x00"

    run(scenario)


def test_octets_beyond_handover_limit_end_connection():
    async def scenario(setup):
        with upgrade(setup, bytes(MOST_READ_BEFORE + 1)) as client:
            assert client.recv(1) == b""
        with upgrade(setup, bytes(MOST_READ_BEFORE)):
            message, given = await setup.receive(0)
            given.close()
            assert len(message.octets) == MOST_READ_BEFORE

    run(scenario)


class EndingRecorder:
    """Initiator of a connection that records how it ended."""

    def __init__(self):
        self.endings = []

    def ended(self, connection, ending, text):
        self.endings.append((connection.number, ending, text))


def test_connection_without_handover_ends():
    async def scenario(setup):
        connector = load_text("router.conf", configuration_text() + "connector {\n name: c\n}\n").connectors[0]
        opener = EndingRecorder()
        profile, _ = setup.core.profiles.add(connector)
        # more than the kernel takes as one datagram
        for number, user in ((10, "u" * 4_000_000), (11, "v" * 4_000_000)):
            opened, peer = socket.socketpair()
            with peer:
                connection = setup.core.connections.initiate(
                    number, connector, profile, opener, InitiateData("h", user)
                )
                setup.acceptor.give(connection, opened)
                assert peer.recv(1) == b""
        assert [(number, ending) for number, ending, _ in opener.endings] == [
            (10, ConnectionEnd.FAILED),
            (11, ConnectionEnd.FAILED),
        ]
        assert "Message too long" in opener.endings[0][2]
        assert all(not worker.connections for worker in setup.core.workers.values())
        assert setup.core.connections.count == 0
        await setup.connect()
        message, given = await setup.receive(0)
        given.close()
        assert message.profile == "main"

    run(scenario)


def test_worker_with_fewest_connections_is_chosen():
    async def scenario(setup):
        for index in (0, 1, 0, 1):
            await setup.connect()
            (await setup.receive(index))[1].close()
        first = setup.core.workers[1].connections
        for number in list(first):
            setup.core.receive(setup.core.workers[1], messages.Closed(conn=number, error=None))
        for _ in range(2):
            await setup.connect()
            (await setup.receive(1))[1].close()

    run(scenario)


def fill(worker):
    """Fill the hand-over socket; return the number of messages that it took."""
    sent = 0
    while True:
        try:
            worker.handover.send(b"x" * 1000)
            sent += 1
        except BlockingIOError:
            return sent


@pytest.mark.parametrize("active", [False, True])
def test_connection_burst_is_accepted_completely(active):
    async def scenario(setup):
        await asyncio.gather(*(setup.connect() for _ in range(100)))
        numbers = set()
        for place in range(100):
            message, given = await setup.receive(place % 2)
            given.close()
            numbers.add(message.conn)
        assert len(numbers) == 100
        assert active or setup.core.connections.accept_pauses == 0

    run(scenario, active=active)


def test_lines_of_connection_burst_are_written_together(tmp_path):
    async def scenario(setup):
        path = tmp_path / "log"
        setup.log.apply(LogSettings({"DEFAULT": ModuleSettings(output=str(path))}))
        (sink,) = (each for name, each in setup.log._sinks.items() if name == str(path))
        writes, write = [], sink._write

        def count(lines):
            writes.append(lines.count(b"\n"))
            write(lines)

        sink._write = count
        # Without a turn of the event loop, all of them wait in the kernel's queue.
        setup.clients += [socket.create_connection(("127.0.0.1", setup.port)) for _ in range(BURST)]
        await until(lambda: setup.core.connections.count == BURST)
        setup.clients.append(socket.create_connection(("127.0.0.1", setup.port)))
        await until(lambda: setup.core.connections.count == BURST + 1)
        assert sum(writes) == path.read_text().count("Accepted connection") == BURST + 1
        assert len(writes) < BURST // 2

    run(scenario)


def test_acceptor_counts_pauses_of_connecting_clients():
    async def scenario(setup):
        pace = setup.acceptor._pace
        pace._seen = pace._began = pace._clock()  # the burst has begun
        pace._bucket.fill(pace._clock())
        pace._bucket.spend(10**12)  # and the supervisor has worked long for it
        # Without a turn of the event loop, all of them wait in the kernel's queue.
        setup.clients += [socket.create_connection(("127.0.0.1", setup.port)) for _ in range(BURST)]
        await until(lambda: setup.core.connections.accept_pauses > 0)
        await until(lambda: setup.core.connections.count == BURST)

    run(scenario, active=True)


def test_closed_listener_accepts_waiting_burst():
    async def scenario(setup):
        await asyncio.gather(*(setup.connect() for _ in range(100)))
        listener = setup.acceptor.listeners[0]
        opened = listener.sockets[0]
        setup.acceptor.remove(listener)
        for place in range(100):
            _, given = await setup.receive(place % 2)
            given.close()
        setup.acceptor._go_on(listener, opened)  # a call that may have been scheduled before
        assert opened.fileno() == -1

    run(scenario, active=True)


def test_full_handover_sockets_leave_connections_in_kernel():
    """With all hand-over sockets full, connections stay in the kernel's queue, and none is lost."""

    async def scenario(setup):
        junk = {index: fill(setup.core.workers[index]) for index in (0, 1)}
        for _ in range(5):
            await setup.connect()
        await until(lambda: all(worker.stuck is not None for worker in setup.core.workers.values()))
        assert setup.core.connections.count == 0
        for index, count in junk.items():
            for _ in range(count):
                setup.far[index].recv(MAX_MESSAGE)
        await until(lambda: setup.core.connections.count == 5)
        numbers = []
        for index in (0, 1):
            for _ in range(len(setup.core.workers[index].connections)):
                message, given = await setup.receive(index)
                given.close()
                numbers.append(message.conn)
        assert sorted(numbers) == [1, 2, 3, 4, 5]

    run(scenario)


def test_connection_of_lost_worker_goes_to_other_worker():
    async def scenario(setup):
        worker = setup.core.workers[0]
        fill(worker)
        await setup.connect()
        await until(lambda: worker.stuck is not None)
        setup.close_handover(worker)
        setup.core.lost(worker, lambda: None)
        setup.acceptor.withdraw(worker)
        message, given = await setup.receive(1)
        given.close()
        assert message.conn == 1
        assert list(setup.core.workers[1].connections) == [1]

    run(scenario)


def test_untaken_connections_go_to_other_worker():
    """The worker is silent or dead. Connections that it has taken stay its own."""

    async def scenario(setup):
        silent = setup.core.workers[0]
        silent.untaken = setup.far[0].dup()
        for _ in range(6):
            await setup.connect()
        await until(lambda: setup.core.connections.count == 6)
        taken, given = await setup.receive(0)
        given.close()
        silent.silent = 2.0
        setup.acceptor.withdraw(silent)
        silent.untaken.close()
        assert list(silent.connections) == [taken.conn]
        numbers = []
        for _ in range(5):
            message, given = await setup.receive(1)
            given.close()
            numbers.append(message.conn)
        assert sorted([*numbers, taken.conn]) == [1, 2, 3, 4, 5, 6]

    run(scenario)


def test_connections_without_worker_wait():
    async def scenario(setup):
        fill(setup.core.workers[0])
        await setup.connect()
        worker = setup.core.workers[0]
        await until(lambda: worker.stuck is not None)
        setup.close_handover(worker)
        setup.core.lost(worker, lambda: None)
        setup.acceptor.withdraw(worker)
        await setup.connect()
        setup.far[0].close()
        setup.worker(0)
        setup.acceptor.resume()
        for number in (1, 2):
            message, given = await setup.receive(0)
            given.close()
            assert message.conn == number

    run(scenario, workers=1)


def test_connection_without_worker_is_closed_at_shutdown():
    async def scenario(setup):
        worker = setup.core.workers[0]
        worker.untaken = setup.far[0].dup()
        reader, _ = await setup.connect()
        await until(lambda: setup.core.connections.count == 1)
        setup.acceptor.close()
        worker.stage = WorkerStage.DEAD
        setup.acceptor.withdraw(worker)
        worker.untaken.close()
        setup.far[0].close()
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""

    run(scenario, workers=1)


# brokers-and-edge.md L-8.
# security.md P-10.
def test_connection_beyond_limit_is_closed():
    async def scenario(setup):
        setup.acceptor.limit = 2
        for index in (0, 1):
            await setup.connect()
            (await setup.receive(index))[1].close()
        setup.log.apply(LogSettings())
        reader, _ = await setup.connect()
        assert await reader.read() == b""
        (line,) = [entry for entry in setup.log.recent() if entry.module == "POLICY"]
        assert line.text == "DENY Connection '127.0.0.1' based on global connection count. nConnections= 2"
        setup.core.receive(setup.core.workers[0], messages.Closed(conn=1, error=None))
        await setup.connect()
        message, given = await setup.receive(0)
        given.close()
        assert message.conn == 3

    run(scenario)


def test_taken_port_and_unknown_host_are_errors():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            Listener(replace(LISTENER, port=port, port_text=str(port)))
    assert (caught.value.address, caught.value.reason) == (f"127.0.0.1:{port}", os.strerror(errno.EADDRINUSE))
    unknown = replace(LISTENER, host="no-such-host.invalid")
    with pytest.raises(ListenError) as caught:
        Listener(unknown, look_up(unknown))
    assert caught.value.address.startswith("no-such-host.invalid:")
    assert caught.value.reason


def test_host_name_binds_all_its_addresses():
    config = replace(LISTENER, host="localhost", port=0, port_text="0")
    listener = Listener(config, look_up(config))
    try:
        ports = {opened.getsockname()[1] for opened in listener.sockets}
        assert len(ports) == 1
        assert listener.text == f"localhost:{ports.pop()}"
    finally:
        listener.close()
