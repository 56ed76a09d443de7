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

from tests.system.network import CONVERGENCE, ports
from tests.system.router import ROOT, Router, poll
from tests.system.tools import environment

PAGE = ROOT / "docs" / "user" / "secure.md"
#: Ports that the page and the files use.
NAMED = ("5671", "5672", "5681", "5682", "5683", "5691", "5692", "5693")
PASSWORDS = {"alice": "one of alice", "anna": "one of anna", "bob": "one of bob"}


class Step(NamedTuple):
    """Command of the page, and the output that the page shows for it."""

    command: str
    output: str


class Walk:
    """Reader of the page who runs its commands in a folder with a copy of conf/secure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(NAMED, map(str, ports(len(NAMED))), strict=True))
        self.routers: list[Router] = []
        self.receiving: list[subprocess.Popen[str]] = []
        self.said = folder / "said"
        page = self.with_ports(PAGE.read_text())
        blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, re.MULTILINE)]
        found = (re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block, re.MULTILINE) for block in blocks)
        self.steps = [Step(*each) for block in found for each in block]
        shutil.copytree(ROOT / "conf" / "secure", folder / "conf" / "secure", ignore=shutil.ignore_patterns("keys"))
        for path in (folder / "conf" / "secure").glob("*.conf"):
            path.write_text(self.with_ports(path.read_text()))
        programs = [block.strip("\n") + "\n" for block in blocks if block.lstrip("\n").startswith("import")]
        for name, program in zip(("receive.py", "send.py"), programs, strict=True):
            (folder / name).write_text(program)

    def with_ports(self, text: str) -> str:
        return re.sub("|".join(NAMED), lambda match: self.ports[match.group()], text)

    def take(self, command: str) -> Step:
        """Return the next command of the page, which must begin with `command`."""
        step = self.steps.pop(0)
        assert step.command.startswith(command), step
        return step

    def start_router(self, step: Step) -> None:
        router = Router(self.folder, (), text="")
        router.config = self.folder / step.command.split()[-1]
        self.routers.append(router)
        router.start()

    def receive(self, step: Step, password: str) -> None:
        """Start a program that keeps running."""
        with self.said.open("w") as file:
            process = self._open(step, file.fileno())
        self.receiving.append(process)
        assert process.stdin is not None
        process.stdin.write(f"{password}\n")
        process.stdin.flush()

    def run(self, step: Step, password: str | None = None, *, code: int = 0) -> str:
        """Run a command; return its standard output and standard error. The page's output must be the whole standard
        output."""
        process = self._open(step, subprocess.PIPE)
        out, err = process.communicate(None if password is None else f"{password}\n", CONVERGENCE)
        assert process.returncode == code, (step, out, err)
        assert not step.output or out == step.output
        return out + err

    def _open(self, step: Step, output: int) -> subprocess.Popen[str]:
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

    def end(self) -> None:
        for process in self.receiving:
            process.kill()
            process.communicate()
        for router in self.routers:
            router.stop()


@pytest.fixture
def walk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Walk]:
    made = Walk(tmp_path)
    yield made
    request.node.routers = made.routers
    made.end()


@pytest.mark.long
def test_the_page(walk: Walk) -> None:
    walk.run(walk.take("conf/secure/make-certificates"))
    for user in ("alice", "anna", "bob"):
        walk.run(walk.take(f"sluice passwd conf/secure/keys/users {user}"), PASSWORDS[user])
    walk.run(walk.take("(umask 077; openssl"))
    for user in ("olga", "vera"):
        walk.run(walk.take(f"sluice passwd conf/secure/keys/users {user}"))
    explained = walk.take("sluice policy explain")
    assert "DENIED" in explained.output
    walk.run(explained, code=3)
    assert walk.run(walk.take("sluice check")).count(": ok\n") == 3
    for name in "ABC":
        walk.start_router(walk.take(f"sluice run -c conf/secure/{name}.conf"))

    look = walk.take("sluice stat")
    rows = r"\n  A  +\(self\) .*\n  B  +- .*\n  C  +- "
    poll(lambda: re.search(rows, walk.run(look)), "the three have found each other", CONVERGENCE)
    connections = walk.run(Step(look.command.removesuffix("-n") + "-c", "")).splitlines()
    between = [line for line in connections if " inter-router " in line and "TLSv1.3" in line]
    assert sorted(line.split()[-3] for line in between) == ["CN=B(x.509)", "CN=C(x.509)"]
    assert any("TLSv1.3" in line and " olga(SCRAM-SHA-512) " in line for line in connections)

    walk.receive(walk.take("python receive.py anna"), PASSWORDS["anna"])
    send = walk.take("python send.py alice red.example orders")
    walk.run(send, PASSWORDS["alice"])
    poll(lambda: "a shirt\n" in walk.said.read_text(), "the message has arrived", CONVERGENCE)

    one = walk.take("python send.py alice red.example prices")
    assert "link disallowed by local policy" in walk.run(one, PASSWORDS["alice"], code=1)
    other = walk.take("python send.py alice blue.example orders")
    assert "connection disallowed by local policy" in walk.run(other, PASSWORDS["alice"], code=1)
    assert "Authentication failed" in walk.run(Step(send.command, ""), "wrong", code=1)
    assert walk.routers[0].log.count("DENY AMQP") == 2
    walk.run(walk.take("sluice policy explain"), code=3)

    walk.run(walk.take("sluice policy explain"))
    assert "red.example" in walk.run(walk.take("sluice stat"))
    refused = walk.take("sluice manage")
    assert refused.output.strip() in walk.run(Step(refused.command, ""), code=1)

    walk.take("sluice run -c router.conf 3<")  # an example without a file of that name
    assert walk.steps == []


def test_certificates_are_never_overwritten(walk: Walk) -> None:
    """Wrong arguments create nothing, and certificates of further routers can be added."""
    make = "conf/secure/make-certificates"
    walk.run(Step(f"{make} keys A=localhost", ""))
    keys = walk.folder / "keys"
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
        assert f"make-certificates: {text}" in walk.run(Step(f"{make} {arguments}", ""), code=1)
        assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    walk.run(Step(f"{make} keys D=10.1.2.3,d.example", ""))
    walk.run(Step("openssl verify -x509_strict -CAfile keys/ca.crt -verify_ip 10.1.2.3 keys/D.crt", "keys/D.crt: OK\n"))
    assert "DAYS=ten: not a number" in walk.run(Step(f"DAYS=ten {make} keys F=localhost", ""), code=1)
    walk.run(Step(f"DAYS=90 {make} keys F=localhost", ""))
    for days, code in ((89, 0), (91, 1)):
        walk.run(Step(f"openssl x509 -in keys/F.crt -noout -checkend {days * 86400}", ""), code=code)
    (keys / "ca.key").unlink()
    assert "has one of ca.crt and ca.key only" in walk.run(Step(f"{make} keys E=localhost", ""), code=1)
