"""Tools `sluice explain` and `sluice top` against a router."""

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.peer import message
from tests.system.fixtures import Connect, Fresh, pair, pass_one
from tests.system.router import RouterProcess, poll
from tests.system.tools import command, environment, run

#: Exit code of `sluice explain` for an address that accepts no messages.
UNREACHABLE = 3


def test_explain_shows_address_and_links(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = connect(container_id="the-consumer").receiver(address, 10)
    sender = connect(container_id="the-producer").sender(address)
    pass_one(sender, receiver)
    sender.send(message.message("under way"))
    receiver.next()
    done = run("explain", router.port, address)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:2] == [f"{address} (mobile address): reachable", "  1 consumer with credit"]
    assert "Configured by pattern closest/# of address 'address/0'" in lines
    assert f"In the table: M0{address}, phase 0, closest" in lines
    finding, shown = [line for line in lines if "the-consumer" in line]
    assert finding.startswith("  1 delivery waits for the outcome of a consumer: client 'the-consumer' (")
    assert shown.endswith(receiver.name)
    answer = json.loads(run("explain", router.port, address, "--json").out)
    (consumer,) = answer["records"][0]["consumers"]
    (producer,) = answer["records"][0]["producers"]
    assert (consumer["container"], consumer["unsettled"], consumer["credit"]) == ("the-consumer", 1, 8)
    assert (producer["container"], producer["unsettled"], producer["accepted"]) == ("the-producer", 1, 1)
    assert {consumer["worker"], producer["worker"]} <= set(range(router.workers))


def test_explain_names_the_reason_for_no_delivery(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    connect().receiver(address, 0)
    done = run("explain", router.port, address)
    assert done.code == UNREACHABLE
    finding = r"No credit: 1 consumer, none grants credit, the longest for \d+ s"
    assert re.search(rf": no credit: 1 consumer withholds it\n  {finding}\n", done.out)
    done = run("explain", router.port, "unavailable/x")
    assert done.code == UNREACHABLE
    assert "are refused with amqp:not-found" in done.out


def test_top_once_prints_workers_and_addresses(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, credit=50)
    for _ in range(20):
        pass_one(sender, receiver)
    done = run("top", router.port, "--once", "-i", "0.2", "--rows", "50")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("QDR  standalone  version ")
    lines = done.out.splitlines()
    workers = lines[lines.index(next(line for line in lines if line.startswith("worker "))) + 1 :][: router.workers]
    assert [line.split()[:2] for line in workers] == [[str(number), "ready"] for number in range(router.workers)]
    assert {int(line.split()[2]) for line in workers} == set(router.worker_pids())
    row = next(line.split() for line in lines if line.startswith(address))
    assert row[1:5] == ["mobile", "0", "balanced", "1"]
    assert row[-2:] == ["20", "20"]


def _prepare_terminal() -> None:
    """Prepare the tool's process as a shell does before it starts a tool in its terminal."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # makes it the controlling terminal
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored if the tests were started in the background


class TopTerminal:
    """Process of `sluice top` in a terminal, with its output."""

    def __init__(self, router: RouterProcess) -> None:
        self.shown = b""
        self._own_end, tool_end = pty.openpty()
        self.process = subprocess.Popen(
            [*command("top"), "-b", f"127.0.0.1:{router.port}", "-i", "0.2"],
            env={**environment(), "TERM": "xterm", "COLUMNS": "250", "LINES": "60"},
            stdin=tool_end,
            stdout=tool_end,
            stderr=tool_end,
            start_new_session=True,
            preexec_fn=_prepare_terminal,
        )
        os.close(tool_end)

    def read(self) -> bytes:
        """Return the output so far."""
        try:
            if select.select([self._own_end], [], [], 0)[0]:
                self.shown += os.read(self._own_end, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # the tool has ended
                raise
        return self.shown

    def press(self, key: bytes) -> None:
        """Press a key that ends the tool, and wait until the tool has exited successfully."""
        os.write(self._own_end, key)
        poll(lambda: (self.read(), self.process.poll())[1] is not None, "the tool ends", timeout=30)
        assert self.process.returncode == 0
        assert b"Traceback" not in self.shown

    def close(self) -> None:
        """Kill the tool if it has not exited."""
        self.process.kill()
        self.process.wait()
        os.close(self._own_end)


@pytest.fixture
def terminal(router: RouterProcess) -> Iterator[TopTerminal]:
    opened = TopTerminal(router)
    yield opened
    opened.close()


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_top_in_terminal_ends_by_key(terminal: TopTerminal, key: bytes) -> None:
    """The tool shows frames until a key ends it, and restores the terminal."""
    poll(lambda: terminal.read().count(b"per second") >= 2, "two frames", timeout=30)
    terminal.press(key)


#: Text that would set the terminal's title, clear it and reverse the text direction, with line ends for table cells
#: and markup.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\u202e\u2066\r\n\t[/x][red]"
ESCAPED = "\\x1b]0;owned\\x07\\x1b[2J\\x7f\\x9b31m\\u202e\\u2066\\r\\n\\t[/x][red]"


@pytest.fixture
def hostile_address(router: RouterProcess, connect: Connect, fresh: Fresh) -> str:
    """Two clients all of whose names are hostile, and one that waits; the address."""
    address = fresh() + HOSTILE
    connect(container_id=f"c{HOSTILE}", hostname=f"h{HOSTILE}", properties={"product": HOSTILE}).receiver(
        address, 0, name=f"r{HOSTILE}"
    )
    connect(container_id=f"d{HOSTILE}").sender(address, name=f"s{HOSTILE}", credit=False)
    return address


def test_hostile_client_names_are_printed_escaped(router: RouterProcess, hostile_address: str) -> None:
    """Cover each table and text that shows names of clients."""
    calls: list[tuple[str, ...]] = [("explain", hostile_address)]
    calls += [("stat", *words) for name in ("-c", "-l", "-a", "--log") for words in ([name], [name, "--csv"])]
    calls += [("stat", "--all-entities"), ("manage", "read", f"--name={hostile_address}")]
    calls += [("top", "--once", "-i", "0.1", "--rows", "1000")]
    for tool, *words in calls:
        done = run(tool, router.port, *words)
        assert (done.out + done.err).replace("\n", "").isprintable(), (tool, words, done)
        assert "\\x1b]0;" in done.out + done.err, (tool, words, done)


def test_hostile_client_names_stay_in_their_cells(router: RouterProcess, hostile_address: str) -> None:
    for words in (["-a"], ["-a", "--csv"]):
        done = run("stat", router.port, *words)
        (line,) = [line for line in done.out.splitlines() if "owned" in line]
        assert hostile_address.partition("\x1b")[0] + ESCAPED in line
    rows = json.loads(run("manage", router.port, "query", "--type=connection", "container").out)
    assert f"c{HOSTILE}" in [row["container"] for row in rows]


def test_hostile_client_names_do_not_control_the_terminal(hostile_address: str, terminal: TopTerminal) -> None:
    poll(lambda: terminal.read().count(b"\\x1b]0;owned") >= 2, "two frames with the name", timeout=30)
    terminal.press(b"q")
    for octets in (b"\x1b]", b"\x07", b"\x7f", HOSTILE[HOSTILE.index("\x9b") :][:1].encode(), "\u202e".encode()):
        assert octets not in terminal.shown
