"""A hundred remote hosts, of which one is hostile in every way that needs no password: the others log in as before."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.peer.frames import SASL_HEADER, Performative, frame_octets, parse_frame
from tests.peer.pki import pki
from tests.system.fixtures import Start
from tests.system.router import ROOT, Router, Section, listener

HONEST = [f"127.0.1.{number + 1}" for number in range(99)]
HOSTILE = "127.0.0.66"
#: Times that each honest host logs in at each router, a second apart.
ROUNDS = 4
#: Seconds for one log-in, for all hosts: far beyond what the test demands.
PATIENCE = 20.0
#: Seconds below which a median and the worst log-in are good enough, however quick they are at the other router: the
#: machine is shared with other tests.
FLOOR_MEDIAN, FLOOR_WORST = 0.15, 1.5
#: Of each kind.
SILENT, HANDSHAKES, OPEN_EXCHANGES, GUESSERS, HALF_REQUESTS = 300, 150, 150, 100, 100
#: The beginning of a ClientHello.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def plain(user: str, password: str) -> bytes:
    init = Performative("sasl-init", mechanism="PLAIN", initial_response=f"\0{user}\0{password}".encode())
    return SASL_HEADER + frame_octets(init.encode(), kind=1)


SCRAM = SASL_HEADER + frame_octets(
    Performative("sasl-init", mechanism="SCRAM-SHA-256", initial_response=b"n,,n=alice,r=abc").encode(), kind=1
)


class Client:
    """A connection of a host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, port: int, host: str, octets: bytes) -> Client:
        made = cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
        made.writer.write(octets)
        return made

    async def outcome(self) -> int | None:
        """The code of the outcome of SASL; None: the router has closed without one."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.reader.readexactly(len(SASL_HEADER))
            while True:
                size = await self.reader.readexactly(4)
                frame = parse_frame(size + await self.reader.readexactly(int.from_bytes(size) - 4))
                if frame.name == "sasl-outcome":
                    return int(frame.code)
        return None

    def drop(self) -> None:
        self.writer.transport.abort()


async def log_in(port: int, host: str) -> float:
    """Log in; return the seconds until the outcome, which has to be OK."""
    began = time.monotonic()
    client = await Client.dial(port, host, plain("alice", "secret"))
    try:
        async with asyncio.timeout(PATIENCE):
            code = await client.outcome()
    finally:
        client.drop()
    assert code == 0, f"{host} is refused: {code}"
    return time.monotonic() - began


async def rounds(port: int) -> list[float]:
    """Let each honest host log in once a second, one after the other within each."""

    async def each(host: str, at: float) -> list[float]:
        taken = []
        for number in range(ROUNDS):
            await asyncio.sleep(max(0.0, at + number - time.monotonic()))
            taken.append(await log_in(port, host))
        return taken

    begin = time.monotonic()
    found = await asyncio.gather(*(each(host, begin + number / len(HONEST)) for number, host in enumerate(HONEST)))
    return [seconds for taken in found for seconds in taken]


class Attack:
    """Connections of the hostile host, all kinds at once: whatever the router closes is opened anew."""

    def __init__(self, router: Router) -> None:
        ports = router.ports
        kinds = [
            (SILENT, ports["users"], b""),
            (HANDSHAKES, ports["tls"], HALF_HELLO),
            (OPEN_EXCHANGES, ports["users"], SCRAM),
            (HALF_REQUESTS, ports["web"], b"GET /metrics HT"),
        ]
        self._ports = ports
        self._kinds = kinds
        self.dialled = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Return when as many connections have been opened as the attack consists of."""
        for count, port, octets in self._kinds:
            self._start(count, lambda port=port, octets=octets: self._stay(port, octets))  # type: ignore[misc]
        self._start(GUESSERS, self._guess)
        async with asyncio.timeout(60):
            while self.dialled < len(self._tasks):
                await asyncio.sleep(0.01)

    def _start(self, count: int, action: Callable[[], Awaitable[None]]) -> None:
        self._tasks += [asyncio.ensure_future(self._again(action)) for _ in range(count)]

    async def _again(self, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(OSError):
                await action()
            await asyncio.sleep(0.2)

    async def _dial(self, port: int, octets: bytes) -> Client:
        client = await Client.dial(port, HOSTILE, octets)
        self.dialled += 1
        return client

    async def _stay(self, port: int, octets: bytes) -> None:
        client = await self._dial(port, octets)
        try:
            while await client.reader.read(4096):
                pass
        finally:
            client.drop()

    async def _guess(self) -> None:
        client = await self._dial(self._ports["users"], plain("alice", "wrong"))
        try:
            await client.outcome()
        finally:
            client.drop()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def sections(tmp_path: Path, tmp: Path) -> list[Section]:
    users = tmp_path / "users"
    words = [str(ROOT / ".venv" / "bin" / "sluice"), "passwd", str(users), "alice", "--iterations", "4096"]
    subprocess.run(words, input="secret\n", text=True, capture_output=True, timeout=60, check=True)
    made = pki(tmp)
    files = {"certFile": made.server.certificate, "privateKeyFile": made.server.key}
    return [
        ("saslUsers", {"name": "people", "file": users}),
        ("sslProfile", {"name": "keys", **files}),
        ("log", {"module": "DEFAULT", "enable": "warning+"}),
        ("log", {"module": "SERVER", "enable": "notice+"}),
        listener("users", saslUsers="people"),
        listener("tls", sslProfile="keys", requireSsl=True, saslUsers="people"),
        listener("web", http=True),
    ]


@pytest.mark.long
@pytest.mark.parametrize("workers", [2])
def test_hostile_host_does_not_slow_the_log_ins_of_others(
    start: Start, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, workers: int
) -> None:
    """Compared with log-ins at another router in the same seconds: both share the machine, and one is attacked."""
    configuration = sections(tmp_path, tmp_path_factory.getbasetemp())
    attacked, calm = start(configuration, workers), start(configuration, workers)

    async def scenario() -> tuple[list[float], list[float]]:
        for router in (attacked, calm):
            await log_in(router.ports["users"], HONEST[0])
        attack = Attack(attacked)
        try:
            await attack.begin()
            return await asyncio.gather(rounds(attacked.ports["users"]), rounds(calm.ports["users"]))
        finally:
            await attack.end()

    during, beside = asyncio.run(scenario())
    assert len(beside) == len(during) == ROUNDS * len(HONEST)
    told = f"attacked {statistics.median(during):.3f} s, at most {max(during):.3f} s; "
    told += f"beside it {statistics.median(beside):.3f} s, at most {max(beside):.3f} s"
    print(told)
    assert statistics.median(during) <= 2 * max(statistics.median(beside), FLOOR_MEDIAN), told
    assert max(during) <= 2 * max(max(beside), FLOOR_WORST), told
