"""Telemetry process: `python -P -m sluice.supervisor.telemetry.process SOCKET REGION PARENT NAME`.

The process maps the counters for reading. Before each reading it queries the supervisor for new connections, links and
events. All files are written here. The process ends when its socket is closed, after a last reading.

`messages.py` has the messages between both.
"""

import base64
import importlib.util
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sluice.router import json_codec
from sluice.router.ring.region import Region
from sluice.router.telemetry.schema import TABLES, Row
from sluice.router.telemetry.writer import Encode, TelemetryWriter
from sluice.supervisor.children.framing import MessageSplitter, pack
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.children.zygote import IGNORED, adopt_process
from sluice.supervisor.telemetry.counter_reader import CounterReader, KnownLink, Rows
from sluice.supervisor.telemetry.messages import MAX_REQUEST

UMASK: Final = 0o027  # folders and files are readable for this user and its group, also with -d
READ_SIZE: Final = 1 << 18
ANSWER_SECONDS: Final = 5.0  # timeout for the supervisor's answer; then rows are written with the facts at hand
LIVE_ROWS: Final = 100  # limit of rows in one message
MOST_UNSENT: Final = 4 << 20  # octets not read by the supervisor, beyond which rows for receivers are dropped


class TelemetryLoop:
    """Telemetry process, a sequential loop without concurrency."""

    def __init__(self, ours: socket.socket, region: Region) -> None:
        self._socket: Final = ours
        ours.setblocking(False)
        self._region: Final = region
        self._received: Final = MessageSplitter(MAX_REQUEST)
        self._unsent = bytearray()
        self._closed = False
        self._described = 0
        self._asked = 0
        self._receivers = False
        self._setup: dict[str, Any] = {}
        self._counting: CounterReader | None = None
        self._writer: TelemetryWriter | None = None
        self._number = 0  # number of the last set of files
        self._complaint = ""

    def _over(self) -> bool:
        """Return whether the supervisor has closed its end."""
        return self._closed

    def run(self) -> None:
        """Run until the supervisor closes its end."""
        while not self._setup and not self._over():
            self._wait(None)
        if self._over():
            return
        interval, period = self._setup["interval"], self._setup["period"]
        next_look = time.monotonic() + interval
        next_file = time.monotonic() + period
        while not self._over():
            while not self._over() and (left := next_look - time.monotonic()) > 0:
                self._wait(left)
            if self._over():
                break
            next_look = max(next_look + interval, time.monotonic())
            self._ask()
            self._look()
            if time.monotonic() >= next_file - interval / 2:
                next_file = max(next_file + period, time.monotonic())
                self._publish()
        self._look()
        self._publish()

    def _begin(self) -> None:
        setup = self._setup
        to_parquet = _parquet()
        self._writer = TelemetryWriter(
            Path(setup["path"]),
            setup["router"],
            setup["boot"],
            max_megabytes=setup["max_megabytes"],
            keep_hours=setup["keep_hours"],
            encode=to_parquet,
        )
        if to_parquet is None:
            self._log("notice", "Telemetry is written as lines of JSON, because pyarrow is not installed")
        try:
            self._resume()
        except OSError as error:
            self._complain(f"Earlier telemetry in {setup['path']} cannot be read: {error.strerror or error}")

    # State of an earlier process

    def _resume(self) -> None:
        """Continue from the state of an earlier process of the same router."""
        assert self._writer is not None
        assert self._counting is not None
        boot = self._setup["boot"]
        octets = self._writer.load()
        if octets is None:
            self._writer.recover(boot, 0)
            return
        try:
            state = json_codec.decode(octets)
            self._writer.recover(state["boot"], state["number"])
            if state["boot"] != boot:
                return
            self._counting.resume(state["counting"], [base64.b64decode(each) for each in state["slots"]])
            self._number, self._asked = state["number"], state["asked"]
        except (ValueError, KeyError, TypeError) as error:
            self._log("warning", f"Telemetry starts without its earlier state, which cannot be read: {error!r}")
            self._writer.recover(boot, 0)

    def _state(self, number: int) -> bytes:
        """Return the state from which another process can continue after the files of `number`."""
        assert self._counting is not None
        plain, slots = self._counting.state()
        state = {
            "boot": self._setup["boot"],
            "number": number,
            "asked": self._asked,
            "counting": plain,
            "slots": [base64.b64encode(each).decode() for each in slots],
        }
        return json_codec.encode(state)

    # Rows

    def _ask(self) -> None:
        """Query the supervisor for new connections, links and events, and wait for the answer."""
        self._asked += 1
        self._send({"describe": self._asked})
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._over() and self._described < self._asked and (left := deadline - time.monotonic()) > 0:
            self._wait(left)

    def _look(self) -> None:
        assert self._counting is not None
        rows = self._counting.look()
        for table, found in rows.items():
            self._add(table, found)
        self._show(rows)

    def _add(self, table: str, rows: Sequence[Row]) -> None:
        assert self._writer is not None
        before = self._writer.dropped
        self._writer.add(table, rows)
        if self._writer.dropped > before:
            lost = self._writer.dropped
            self._send({"lost": lost - before})
            self._complain(f"{lost} rows of telemetry are lost, because {self._setup['path']} cannot be written")

    def _publish(self) -> None:
        assert self._writer is not None
        try:
            self._number += 1
            self._writer.publish(self._number, self._state(self._number))
            self._send({"saved": self._asked})
            self._writer.clean()
        except OSError as error:
            text = f"Telemetry cannot be written to {self._setup['path']}: {error.strerror or error}"
            self._complain(f"{text}; its rows wait, and writing is retried")
            return
        if self._complaint:
            self._complaint = ""
            self._log("notice", f"Telemetry can be written to {self._setup['path']} again")

    def _show(self, rows: Rows) -> None:
        """Send rows to the supervisor for receivers, if there are any and the supervisor keeps up."""
        if not self._receivers:
            return
        for table, found in rows.items():
            for at in range(0, len(found), LIVE_ROWS):
                if len(self._unsent) > MOST_UNSENT:
                    return
                self._send({"live": table, "rows": found[at : at + LIVE_ROWS]})

    # The socket

    def _wait(self, seconds: float | None) -> None:
        """Wait until the socket is ready, and handle its messages."""
        readable, writable, _ = select.select([self._socket], [self._socket] if self._unsent else [], [], seconds)
        if writable:
            self._flush()
        if not readable:
            return
        try:
            octets = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        if not octets:
            self._closed = True
            return
        for content in self._received.feed(octets):
            self._handle(decode(content))

    def _handle(self, message: Message) -> None:
        if "setup" in message:
            self._setup = message["setup"]
            self._counting = CounterReader(self._region, self._setup["boot"])
            self._begin()
            return
        assert self._counting is not None
        if "described" in message:
            self._described, self._receivers = message["described"], message["receivers"]
        elif "rows" in message:
            table = message["table"]
            assert table in TABLES
            self._add(table, message["rows"])
            if self._receivers:
                self._show({table: message["rows"]})
        elif "link" in message:
            worker, slot, generation, *known = message["link"]
            self._counting.set_link_facts(worker, slot, generation, KnownLink(*known))
        elif "peer" in message:
            self._counting.set_peer(*message["peer"])
        elif "gone" in message:
            self._counting.remove_peer(message["gone"])

    def _send(self, message: Message) -> None:
        self._unsent += pack(encode(message))
        self._flush()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._closed = True
            return
        del self._unsent[:sent]

    def _complain(self, text: str) -> None:
        """Log a problem, once."""
        if text != self._complaint:
            self._complaint = text
            self._log("error", text)

    def _log(self, level: str, text: str) -> None:
        self._send({"log": level, "text": text})


def _parquet() -> Encode | None:
    """Return the encoder for Parquet, or None if pyarrow is not installed. Loading takes 0.3 s."""
    if importlib.util.find_spec("pyarrow") is None:
        return None
    from sluice.router.telemetry.parquet import encode

    return encode


def main(words: Sequence[str]) -> int:
    """Run the process. words: descriptors of the socket and of the region, pid of the supervisor, name."""
    descriptor, region, parent, name = int(words[0]), int(words[1]), int(words[2]), words[3]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopt_process(parent, name, "telemetry")
    os.umask(UMASK)
    TelemetryLoop(socket.socket(fileno=descriptor), Region.attach(region, writes=False)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
