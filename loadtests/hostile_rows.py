"""Row about a hostile host beside the logins of others.

A hundred hosts (addresses of the loopback interface) log in at a router once a second with a password. One of them
attacks in every way that needs no password. The same logins go to a second router at the same time, which nobody
attacks; both share the machine.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.measuring import Bench
from loadtests.processes import MeasureError
from loadtests.report import Figure, at_most
from tests.peer.frames import SASL_HEADER, Performative, frame_octets, parse_frame
from tests.peer.logins import write_users
from tests.peer.pki import Issued, pki

HONEST = [f"127.0.1.{number + 1}" for number in range(99)]
HOSTILE = "127.0.0.66"
#: Logins of each honest host at each router, a second apart.
ROUNDS = 4
PATIENCE = 20.0  # seconds for one login
#: Seconds below which a median and the worst login pass, however quick they are at the other router.
FLOOR_MEDIAN, FLOOR_WORST = 0.15, 1.5
WORKERS = 2
#: Connections of each kind.
SILENT, HANDSHAKES, OPEN_EXCHANGES, GUESSERS, HALF_REQUESTS = 300, 150, 150, 100, 100
#: First octets of a ClientHello.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@dataclass(frozen=True)
class AttackedPorts:
    """Listener ports of a router."""

    users: int
    tls: int
    web: int


def plain(user: str, password: str) -> bytes:
    init = Performative("sasl-init", mechanism="PLAIN", initial_response=f"\0{user}\0{password}".encode())
    return SASL_HEADER + frame_octets(init.encode(), kind=1)


SCRAM = SASL_HEADER + frame_octets(
    Performative("sasl-init", mechanism="SCRAM-SHA-256", initial_response=b"n,,n=alice,r=abc").encode(), kind=1
)


class HostConnection:
    """Connection of a host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, port: int, host: str, octets: bytes) -> HostConnection:
        made = cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
        made.writer.write(octets)
        return made

    async def outcome(self) -> int | None:
        """Return the code of the SASL outcome. None: the router closed without an outcome."""
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
    """Log in. Return the seconds until the outcome, which must be OK."""
    began = time.monotonic()
    client = await HostConnection.dial(port, host, plain("alice", "secret"))
    try:
        async with asyncio.timeout(PATIENCE):
            code = await client.outcome()
    finally:
        client.drop()
    if code != 0:
        raise MeasureError(f"{host} is refused: {code}")
    return time.monotonic() - began


async def rounds(port: int) -> list[float]:
    """Log in from each honest host once a second; within a second, one host after the other."""

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
    """Connections of the hostile host, all kinds at once. A connection that the router closes is reopened."""

    def __init__(self, ports: AttackedPorts) -> None:
        kinds = [
            (SILENT, ports.users, b""),
            (HANDSHAKES, ports.tls, HALF_HELLO),
            (OPEN_EXCHANGES, ports.users, SCRAM),
            (HALF_REQUESTS, ports.web, b"GET /metrics HT"),
        ]
        self._ports = ports
        self._kinds = kinds
        self.dialled = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Start the attack; return when all of its connections have been opened."""
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

    async def _dial(self, port: int, octets: bytes) -> HostConnection:
        client = await HostConnection.dial(port, HOSTILE, octets)
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
        client = await self._dial(self._ports.users, plain("alice", "wrong"))
        try:
            await client.outcome()
        finally:
            client.drop()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def compare(attacked: AttackedPorts, calm: AttackedPorts) -> tuple[list[float], list[float]]:
    """Return the seconds of the honest hosts' logins at both routers, while the first is attacked. All must succeed."""
    for ports in (attacked, calm):
        await log_in(ports.users, HONEST[0])
    attack = Attack(attacked)
    try:
        await attack.begin()
        return await asyncio.gather(rounds(attacked.users), rounds(calm.users))
    finally:
        await attack.end()


def configuration(name: str, users: Path, keys: Issued) -> str:
    """Return the configuration of a router with these users and this certificate."""
    own: dict[str, Any] = {"saslMechanisms": None}
    return configuration_text(
        router_section(WORKERS, name),
        ("log", {"module": "DEFAULT", "enable": "warning+"}),
        ("log", {"module": "SERVER", "enable": "notice+"}),
        ("saslUsers", {"name": "people", "file": users}),
        ("sslProfile", {"name": "keys", "certFile": keys.certificate, "privateKeyFile": keys.key}),
        listener("users", saslUsers="people", **own),
        listener("tls", sslProfile="keys", requireSsl=True, saslUsers="people", **own),
        listener("web", http=True, **own),
    )


def hostile_host(bench: Bench) -> list[Figure]:
    """Measure logins at a router that one host attacks, and at one beside it. A login that fails is an error."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as path:
        folder = Path(path)
        write_users(folder / "users", alice="secret")
        keys = pki(folder).server
        texts = [configuration(name, folder / "users", keys) for name in ("attacked", "calm")]
        with bench.router(WORKERS, texts[0]) as attacked, bench.router(WORKERS, texts[1]) as calm:
            during, beside = asyncio.run(compare(AttackedPorts(*attacked.ports), AttackedPorts(*calm.ports)))
    return [
        Figure(
            f"a hostile host: {what} login of the others", 1000 * mine, "ms", at_most(2000 * max(theirs, floor)),
            1000 * theirs, "a router without it",
        )
        for what, mine, theirs, floor in (
            ("median", median(during), median(beside), FLOOR_MEDIAN),
            ("worst", max(during), max(beside), FLOOR_WORST),
        )
    ]  # fmt: skip
