"""Completion scripts in real shells on a pseudo-terminal: the argument that a command gets after the tab key."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.router.cli.completion.command import SHELLS
from sluice.router.cli.programs import programs

pytestmark = pytest.mark.starts

#: Time limit in s for one command line.
LIMIT = 30.0
#: Names that clients could choose. Each begins with another letter.
NAMES = [
    "a with  spaces",
    "b'single",
    'c"double',
    "d$(touch ran)",
    "e`touch ran`",
    "f;touch ran",
    "g\\back\\",
    "h!bang!",
    "i&|<>*?[x]{a,b}~",
    "j#hash $HOME ${HOME}",
    "käse",
    "l:colon:x",
    "m=equals=y",
    "n@at",
    "o~/tilde",
    "p/q/r",
    "q%s%d%n",
]
#: `sluice` for the shell: it prints names for `complete`, and otherwise records its arguments.
COMMAND = """#!/bin/sh
if [ "$1" = complete ]; then
    printf '%s\\0' "$@" >asked
    exec cat names
fi
printf '%s\\0' "$@" >arguments.new
mv arguments.new arguments
"""
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
#: First command line. History expansion stays on where it is on by default.
SETUP = {
    "bash": "bind 'set bell-style none'; . ./script",
    "zsh": "PS1='$ '; autoload -U compinit; compinit -u -D; . ./script",
    "fish": "source ./script",
}


class InteractiveShell:
    """Shell on a pseudo-terminal, in a folder with its completion script and the command `sluice`."""

    def __init__(self, shell: str, folder: Path, setup: str | None = None) -> None:
        self.folder = folder
        (folder / "script").write_text(SHELLS[shell](programs()))
        (folder / "names").write_text("".join(f"{name}\tbalanced\n" for name in NAMES))
        for name in ("sluice", "qdmanage"):
            (folder / name).write_text(COMMAND)
            (folder / name).chmod(0o755)
        self._terminal, inner = pty.openpty()
        self._output = b""
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }
        self._process = subprocess.Popen(
            START[shell],
            cwd=folder,
            env=environment,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inner)
        self.run(f"{setup or SETUP[shell]}; sluice ready")

    def run(self, line: str) -> list[str]:
        """Type a line that calls `sluice`; return the arguments that it got."""
        file = self.folder / "arguments"
        file.unlink(missing_ok=True)
        os.write(self._terminal, line.encode() + b"\r")
        deadline = time.monotonic() + LIMIT
        while not file.exists():
            assert time.monotonic() < deadline, f"{line!r} called nothing: {self._output[-2000:]!r}"
            if select.select([self._terminal], [], [], 0.01)[0]:
                self._output += os.read(self._terminal, 65536)
        return file.read_text().split("\0")[:-1]

    def asked(self) -> list[str]:
        """Return the arguments of the last `sluice complete`."""
        return (self.folder / "asked").read_text().split("\0")[:-1]

    def close(self) -> None:
        """End the shell."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._terminal)


@contextmanager
def interactive(shell: str, folder: Path, setup: str | None = None) -> Iterator[InteractiveShell]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian package {shell})")
    opened = InteractiveShell(shell, folder, setup)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module", params=list(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with interactive(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.mark.parametrize("name", NAMES)
def test_name_of_client_is_completed_to_one_argument(shell: InteractiveShell, name: str) -> None:
    assert shell.run(f"sluice explain {name[0]}\t") == ["explain", name]
    assert not (shell.folder / "ran").exists()


@pytest.mark.parametrize("quote", ["'", '"'])
def test_name_after_open_quote_is_completed(shell: InteractiveShell, quote: str) -> None:
    assert shell.run(f"sluice explain {quote}a\t") == ["explain", NAMES[0]]


def test_name_after_backslash_is_completed(shell: InteractiveShell) -> None:
    assert shell.run("sluice explain a\\ w\t") == ["explain", NAMES[0]]


def test_name_after_colon_is_completed(shell: InteractiveShell) -> None:
    assert shell.run("sluice explain l:c\t") == ["explain", "l:colon:x"]


def test_command_and_option_are_completed(shell: InteractiveShell) -> None:
    assert shell.run("sluice expl\t --alo\t x") == ["explain", "--alone", "x"]
    assert shell.run("sluice pipeline roll\t --tele\t x") == ["pipeline", "rollup", "--telemetry", "x"]


def test_words_before_cursor_reach_complete_without_quotes(shell: InteractiveShell) -> None:
    shell.run("sluice explain -b 'amqp://h:1' --sasl-username=\"a b\" n\t")
    asked = shell.asked()
    expected = ["explain", "-b", "amqp://h:1", "--sasl-username=a b"]
    if "--quoted" in asked:
        expected[2:] = ["'amqp://h:1'", '--sasl-username="a b"']
    assert asked[-len(expected) :] == expected
    assert asked[: -len(expected)] in (
        ["complete", "addresses"],
        ["complete", "addresses", "sluice"],
        ["complete", "--quoted", "addresses", "sluice"],
    )


def test_value_after_equals_sign_is_completed(shell: InteractiveShell) -> None:
    assert shell.run("sluice explain --router=a\t x") == ["explain", f"--router={NAMES[0]}", "x"]
    assert "routers" in shell.asked()


def test_file_argument_is_completed(shell: InteractiveShell) -> None:
    (shell.folder / "with space.conf").touch()
    assert shell.run("sluice check with\t") == ["check", "with space.conf"]


def test_qdmanage_completes_operations_and_types(shell: InteractiveShell) -> None:
    assert shell.run("qdmanage que\t --type n\t") == ["query", "--type", "n@at"]
    assert "types" in shell.asked()


def test_zsh_script_in_fpath_completes_each_program(tmp_path: Path) -> None:
    setup = "PS1='$ '; cp script _sluice; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D"
    with interactive("zsh", tmp_path, setup) as opened:
        for _ in range(2):
            assert opened.run("qdmanage que\t --type d\t") == ["query", "--type", NAMES[3]]
            assert opened.run("sluice explain d\t") == ["explain", NAMES[3]]
