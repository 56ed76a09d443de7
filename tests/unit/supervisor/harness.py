"""Supervisor process with stand-in workers, and clients of these workers."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

import sluice
from sluice.router.control.messages import Attach

ROOT = Path(str(sluice.__file__)).parent.parent
LAUNCH = Path(__file__).with_name("launch.py")
PATIENCE = 15.0  # seconds after which a condition that still does not hold fails the test

CONFIGURATION = """
router { id: QDR; mode: standalone; workerThreads: %(workers)d }
listener { host: 127.0.0.1; port: 0; name: main }
address { prefix: fallback; enableFallback: yes }
"""


def configuration_text(workers: int = 2) -> str:
    return CONFIGURATION.replace("; ", "\n").replace(" {", " {\n").replace(" }", "\n}") % {"workers": workers}


class SupervisorProcess:
    """Supervisor process whose log is read as it is written."""

    def __init__(self, folder: Path, text: str, command: tuple[str, ...] = (), **environment: str) -> None:
        """Start the process. `command`: a prefix of the command line, if any."""
        path = folder / "router.conf"
        path.write_text(text)
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [*command, sys.executable, str(LAUNCH), str(path)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for(self, pattern: str, count: int = 1) -> re.Match[str]:
        """Wait for the `count`-th log line that the pattern matches, and return the match."""

        def found() -> re.Match[str] | None:
            matches = [match for match in map(re.compile(pattern).search, self.lines) if match]
            return matches[count - 1] if len(matches) >= count else None

        with self._changed:
            self._changed.wait_for(found, PATIENCE)
            match = found()
        assert match, f"no {pattern!r} ({count}) in the log:\n" + "\n".join(self.lines)
        return match

    def port(self) -> int:
        return int(self.wait_for(r"Listening on 127\.0\.0\.1:(\d+)").group(1))

    def end(self, number: int) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)


class StandInClient:
    """Connection to a stand-in worker: JSON lines in both directions."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._lines = self.socket.makefile("r")
        adopted = self.receive("adopted")
        self.worker, self.pid, self.number = adopted["worker"], adopted["pid"], adopted["conn"]
        self._next_link = 0

    def send(self, **message: object) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, kind: str) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("connection closed")
        message: dict[str, Any] = json.loads(line)
        assert message["t"] == kind, message
        return message

    def attach(self, direction: str, address: str | None, **more: object) -> int:
        """Request a link and return its number."""
        link = self._next_link
        self._next_link += 1
        self.send(**attach_fields(link, direction, address, **more))
        return link

    def opened(self) -> None:
        self.send(t="opened", container="c", hostname=None, user="anonymous", properties={}, tls=None)
        self.receive("admitted")

    def table(self) -> "AppliedTable":
        self.send(t="table")
        return AppliedTable(self.receive("table")["ops"])

    def closed_by_peer(self) -> bool:
        try:
            return self._lines.readline() == ""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


class AppliedTable:
    """Table of a worker after a list of ops."""

    def __init__(self, ops: list[list[Any]]) -> None:
        self.addresses: dict[int, str] = {}
        self.consumers: dict[int, list[tuple[int, ...]]] = {}
        self.workers: dict[int, tuple[object, ...]] = {}
        for op in ops:
            self._apply(*op)

    def _apply(self, name: str, *rest) -> None:
        if name == "addr":
            self.addresses[rest[0]] = rest[1]
            self.consumers.setdefault(rest[0], [])
        elif name == "-addr":
            assert not self.consumers.pop(rest[0])
            del self.addresses[rest[0]]
        elif name == "+c":
            self.consumers[rest[0]].append(rest[1:4])
        elif name == "-c":
            self.consumers[rest[0]].remove(rest[1:4])
        elif name == "worker":
            self.workers[rest[0]] = rest[1:]

    def of(self, key: str) -> list[tuple[int, ...]] | None:
        """Return the consumers of the address with this key, None if there is no such address."""
        return next((self.consumers[number] for number, own in self.addresses.items() if own == key), None)


def attach(link: int, direction: str, address: str | None, **more: object) -> Attach:
    """Return an attach message, of connection 0 unless `more` names another."""
    return msgspec.convert({"conn": 0, **attach_fields(link, direction, address, **more)}, Attach)


def attach_fields(link: int, direction: str, address: str | None, **more: object) -> dict[str, Any]:
    """Return the fields of an attach message without the number of the connection."""
    return {
        "t": "attach",
        "link": link,
        "slot": link,
        "gen": (1 << 20) + link,
        "dir": direction,
        "name": f"link-{link}",
        "address": address,
        "dynamic": False,
        "dynamic_address": None,
        "caps": [[], False],
        "coordinator": False,
        "expiry": None,
        "timeout": 0,
        "tenant": None,
        "channel": 0,
        "text": "source={...} target={...}",
        **more,
    }


def until(condition, what: str):
    """Wait for a condition that another process brings about, and return its value."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.002)
    return value
