"""Lander processes, their landed messages, and a sender that resends messages until they are accepted."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.pipeline.reading import read_placed
from sluice.pipeline.segments import Landing, schema
from sluice.router.client import Accepted, Backoff, ClientError, connect
from tests.system.router import ROOT

PATIENCE = 60.0  # seconds for one step of a lander or a sender
COMMAND = (sys.executable, "-m", "sluice.router.cli.main", "pipeline")
HEAD = b"\x00\x53\x75\xa0\x04"  # data section of 4 octets


def message(number: int) -> bytes:
    return HEAD + number.to_bytes(4, "big")


class LanderProcess:
    """Process of `sluice pipeline land …`."""

    def __init__(
        self, url: str, path: object, *words: str, address: str | None = "balanced.a", command: Any = COMMAND
    ) -> None:
        """address: None if `words` say where the messages come from."""
        origin = () if address is None else ("--address", address)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            [*command, "land", "--url", url, "--path", str(path), "--status", "0.2", *origin, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_line(self, pattern: str) -> re.Match[str]:
        """Return the match of the first line that matches, now or later."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, PATIENCE)
        match = found()
        assert match is not None, f"no line {pattern!r}:\n" + "\n".join(self.lines)
        return match

    def ready(self) -> "LanderProcess":
        self.wait_line("^landing ")
        return self

    def wait(self) -> int:
        """Wait for the exit and return the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def stop(self) -> None:
        """Stop the process with SIGTERM, and check that it exits without an error."""
        self.process.send_signal(signal.SIGTERM)
        assert self.wait() == 0, "\n".join(self.lines)
        assert "Traceback" not in "\n".join(self.lines)

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def __enter__(self) -> "LanderProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def send_all(url: str, messages: Iterable[bytes], address: str = "balanced.a") -> None:
    """Send messages, and send them again until each is accepted."""
    pending = list(messages)
    with connect(url, timeout=PATIENCE, reconnect=Backoff(most=0.5)) as connection:
        sender = connection.sender(address, timeout=PATIENCE)
        while pending:
            results = sender.send_all(pending, timeout=PATIENCE)
            pending = [each for each, result in zip(pending, results, strict=True) if not isinstance(result, Accepted)]


class SendingThread(threading.Thread):
    """Thread that runs `send_all`; `done` waits for it and raises its exception."""

    def __init__(self, url: str, messages: Iterable[bytes], address: str = "balanced.a") -> None:
        super().__init__(daemon=True)
        self._work = (url, list(messages), address)
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            send_all(*self._work)
        except (ClientError, TimeoutError, OSError) as error:
            self._error = error

    def done(self) -> None:
        self.join(PATIENCE)
        assert not self.is_alive(), "not everything was accepted"
        if self._error is not None:
            raise self._error


def rows(path: object) -> pa.Table:
    """Return all landed messages, by log and segment number."""
    landing = Landing.open(str(path))
    tables = [
        read_placed(landing, segment).select(schema().names).replace_schema_metadata(schema().metadata)
        for log in landing.logs()
        for segment in landing.listing(log.key).segments
    ]
    return pa.concat_tables([schema().empty_table(), *tables])


def numbers(path: object) -> list[int]:
    """Return the numbers of the landed messages."""
    return [int.from_bytes(octets[-4:], "big") for octets in rows(path)["message"].to_pylist()]


def segments(path: Path, key: str) -> list[Any]:
    return Landing.open(str(path)).listing(key).segments
