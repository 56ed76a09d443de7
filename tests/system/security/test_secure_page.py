"""Walk through docs/user/secure.md with the files of conf/secure; only the ports differ."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.networks import CONVERGENCE, ports
from tests.system.router import ROOT, RouterProcess, poll
from tests.system.tools import environment

PAGE = ROOT / "docs" / "user" / "secure.md"
#: Ports that the page and the files use.
PAGE_PORTS = ("5671", "5672", "5681", "5682", "5683", "5691", "5692", "5693")
PASSWORDS = {"alice": "one of alice", "anna": "one of anna", "bob": "one of bob"}


class PageCommand(NamedTuple):
    """Command of the page, and the output that the page shows for it."""

    command: str
    output: str


class SecurePageReader:
    """Reader of the page who runs its commands in a folder with a copy of conf/secure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(PAGE_PORTS, map(str, ports(len(PAGE_PORTS))), strict=True))
        self.routers: list[RouterProcess] = []
        self.receiving: list[subprocess.Popen[str]] = []
        self.output_file = folder / "said"
        page = self.with_ports(PAGE.read_text())
        blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, re.MULTILINE)]
        found = (re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block, re.MULTILINE) for block in blocks)
        self.commands = [PageCommand(*each) for block in found for each in block]
        shutil.copytree(ROOT / "conf" / "secure", folder / "conf" / "secure", ignore=shutil.ignore_patterns("keys"))
        for path in (folder / "conf" / "secure").glob("*.conf"):
            path.write_text(self.with_ports(path.read_text()))
        programs = [block.strip("\n") + "\n" for block in blocks if block.lstrip("\n").startswith("import")]
        for name, program in zip(("receive.py", "send.py"), programs, strict=True):
            (folder / name).write_text(program)

    def with_ports(self, text: str) -> str:
        return re.sub("|".join(PAGE_PORTS), lambda match: self.ports[match.group()], text)

    def next_command(self, command: str) -> PageCommand:
        """Return the next command of the page, which must begin with `command`."""
        step = self.commands.pop(0)
        assert step.command.startswith(command), step
        return step

    def start_router(self, step: PageCommand) -> None:
        router = RouterProcess(self.folder, (), text="")
        router.config = self.folder / step.command.split()[-1]
        self.routers.append(router)
        router.start()

    def receive(self, step: PageCommand, password: str) -> None:
        """Start a program that keeps running."""
        with self.output_file.open("w") as file:
            process = self._open(step, file.fileno())
        self.receiving.append(process)
        assert process.stdin is not None
        process.stdin.write(f"{password}\n")
        process.stdin.flush()

    def run(self, step: PageCommand, password: str | None = None, *, code: int = 0) -> str:
        """Run a command; return its standard output and standard error. The page's output must be the whole standard
        output."""
        process = self._open(step, subprocess.PIPE)
        out, err = process.communicate(None if password is None else f"{password}\n", CONVERGENCE)
        assert process.returncode == code, (step, out, err)
        assert not step.output or out == step.output
        return out + err

    def _open(self, step: PageCommand, output: int) -> subprocess.Popen[str]:
        """Start a command without a terminal, so that it cannot ask for passwords there."""
        path = os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ["PATH"]])
        return subprocess.Popen(
            ["bash", "-c", f"exec {step.command}" if output != subprocess.PIPE else step.command],
            cwd=self.folder,
            env={**environment(), "PATH": path},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE if output == subprocess.PIPE else output,
            text=True,
            start_new_session=True,
        )

    def stop(self) -> None:
        for process in self.receiving:
            process.kill()
            process.communicate()
        for router in self.routers:
            router.stop()


@pytest.fixture
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SecurePageReader]:
    new_reader = SecurePageReader(tmp_path)
    yield new_reader
    request.node.routers = new_reader.routers
    new_reader.stop()


@pytest.mark.long
def test_secure_page_commands_work_as_written(reader: SecurePageReader) -> None:
    reader.run(reader.next_command("conf/secure/make-certificates"))
    for user in ("alice", "anna", "bob"):
        reader.run(reader.next_command(f"sluice passwd conf/secure/keys/users {user}"), PASSWORDS[user])
    reader.run(reader.next_command("(umask 077; openssl"))
    for user in ("olga", "vera"):
        reader.run(reader.next_command(f"sluice passwd conf/secure/keys/users {user}"))
    explained = reader.next_command("sluice policy explain")
    assert "DENIED" in explained.output
    reader.run(explained, code=3)
    assert reader.run(reader.next_command("sluice check")).count(": ok\n") == 3
    for name in "ABC":
        reader.start_router(reader.next_command(f"sluice run -c conf/secure/{name}.conf"))

    show_nodes = reader.next_command("sluice stat")
    rows = r"\n  A  +\(self\) .*\n  B  +- .*\n  C  +- "
    poll(lambda: re.search(rows, reader.run(show_nodes)), "the three have found each other", CONVERGENCE)
    connections = reader.run(PageCommand(show_nodes.command.removesuffix("-n") + "-c", "")).splitlines()
    between = [line for line in connections if " inter-router " in line and "TLSv1.3" in line]
    assert sorted(line.split()[-3] for line in between) == ["CN=B(x.509)", "CN=C(x.509)"]
    assert any("TLSv1.3" in line and " olga(SCRAM-SHA-512) " in line for line in connections)

    reader.receive(reader.next_command("python receive.py anna"), PASSWORDS["anna"])
    send = reader.next_command("python send.py alice red.example orders")
    reader.run(send, PASSWORDS["alice"])
    poll(lambda: "a shirt\n" in reader.output_file.read_text(), "the message has arrived", CONVERGENCE)

    one = reader.next_command("python send.py alice red.example prices")
    assert "link disallowed by local policy" in reader.run(one, PASSWORDS["alice"], code=1)
    other = reader.next_command("python send.py alice blue.example orders")
    assert "connection disallowed by local policy" in reader.run(other, PASSWORDS["alice"], code=1)
    assert "Authentication failed" in reader.run(PageCommand(send.command, ""), "wrong", code=1)
    assert reader.routers[0].log.count("DENY AMQP") == 2
    reader.run(reader.next_command("sluice policy explain"), code=3)

    reader.run(reader.next_command("sluice policy explain"))
    assert "red.example" in reader.run(reader.next_command("sluice stat"))
    refused = reader.next_command("sluice manage")
    assert refused.output.strip() in reader.run(PageCommand(refused.command, ""), code=1)

    reader.next_command("sluice run -c router.conf 3<")  # an example without a file of that name
    assert reader.commands == []


def test_certificates_made_before_are_never_overwritten(reader: SecurePageReader) -> None:
    """Wrong arguments create nothing, and certificates of further routers can be added."""
    make = "conf/secure/make-certificates"
    reader.run(PageCommand(f"{make} keys A=localhost", ""))
    keys = reader.folder / "keys"
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    assert sorted(before) == ["A.crt", "A.key", "ca.crt", "ca.key"]
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    for arguments, text in (
        ("keys B=localhost A=localhost", "keys/A.crt is there already; nothing has been made"),
        ("keys", "usage: "),
        ("keys B=", "B=: not NAME=HOST"),
        ("keys ../B=localhost", "../B: names have letters"),
        ("keys B=local,,host", "local,,host: not host names"),
        ("keys B=localhost B=other", "B: given twice"),
        ("keys ca=localhost", "ca: that is the authority"),
        ("keys B=1.2.3.999", "openssl x509 failed: "),
    ):
        assert f"make-certificates: {text}" in reader.run(PageCommand(f"{make} {arguments}", ""), code=1)
        assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    reader.run(PageCommand(f"{make} keys D=10.1.2.3,d.example", ""))
    reader.run(
        PageCommand(
            "openssl verify -x509_strict -CAfile keys/ca.crt -verify_ip 10.1.2.3 keys/D.crt", "keys/D.crt: OK\n"
        )
    )
    assert "DAYS=ten: not a number" in reader.run(PageCommand(f"DAYS=ten {make} keys F=localhost", ""), code=1)
    reader.run(PageCommand(f"DAYS=90 {make} keys F=localhost", ""))
    for days, code in ((89, 0), (91, 1)):
        reader.run(PageCommand(f"openssl x509 -in keys/F.crt -noout -checkend {days * 86400}", ""), code=code)
    (keys / "ca.key").unlink()
    assert "has one of ca.crt and ca.key only" in reader.run(PageCommand(f"{make} keys E=localhost", ""), code=1)
