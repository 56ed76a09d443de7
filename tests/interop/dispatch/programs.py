"""Programs with Dispatch's names: qdrouterd, qdstat, qdmanage."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.router import ROOT

#: Time limit in seconds for one run of a program.
PROGRAM_TIMEOUT = 30.0


def program(name: str) -> str:
    """Return the path of an installed program."""
    return str(ROOT / ".venv" / "bin" / name)


@dataclass
class ProgramResult:
    """Exit code and output of a program."""

    code: int
    out: str
    err: str

    @property
    def last_error(self) -> str:
        """Last line of stderr."""
        return self.err.splitlines()[-1] if self.err else ""


def run(
    name: str,
    *arguments: str,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ProgramResult:
    """Run a program until it exits."""
    done = subprocess.run(
        [program(name), *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return ProgramResult(done.returncode, done.stdout, done.stderr)


class QdmanageProgram:
    """qdmanage for one router: `qdmanage("query --type listener")` returns stdout and checks the exit code."""

    def __init__(self, port: int) -> None:
        self.bus = f"127.0.0.1:{port}"

    def run(self, *arguments: str, stdin: str | None = None) -> ProgramResult:
        """Run qdmanage with the given arguments."""
        return run("qdmanage", "--bus", self.bus, "--indent=-1", *arguments, stdin=stdin)

    def __call__(self, command: str | list[str], stdin: str | None = None, expect: int = 0) -> str:
        """Run a command and return stdout. A command is a list of words, or a text that is split at blanks."""
        words = command.split() if isinstance(command, str) else command
        done = self.run(*words, stdin=stdin)
        assert done.code == expect, f"qdmanage {words} ended with {done.code}: {done.out} {done.err}"
        return done.out

    def json(self, command: str | list[str], stdin: str | None = None) -> Any:
        """Run a command and return the JSON value that it prints."""
        return json.loads(self(command, stdin))


class QdstatProgram:
    """qdstat for one router."""

    def __init__(self, port: int) -> None:
        self.bus = f"127.0.0.1:{port}"

    def run(self, *arguments: str) -> ProgramResult:
        """Run qdstat with the given arguments."""
        return run("qdstat", "--bus", self.bus, *arguments)

    def __call__(self, *arguments: str) -> str:
        """Run qdstat and return stdout. Raises AssertionError if the exit code is not 0."""
        done = self.run(*arguments)
        assert done.code == 0, f"qdstat {arguments} ended with {done.code}: {done.out} {done.err}"
        return done.out

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """Return the rows of the first table of a display, by column names.

        A display is a heading, a title, a header, an underline and rows. Cells begin below the groups of `=`, because
        columns are left-justified.
        """
        return table(self(*arguments).splitlines()[3:])


def table(lines: list[str]) -> list[dict[str, str]]:
    """Return the rows of a table: title, header, line of `=`, rows up to an empty line or the end."""
    if len(lines) < 3 or not lines[2].strip().startswith("="):
        return []
    header, under = lines[1], lines[2]
    assert header.startswith("  ")
    starts = [at for at, mark in enumerate(under) if mark == "=" and under[at - 1] == " "]
    assert starts[0] == 2, f"not indented by two blanks: {under!r}"
    # A single group of `=` underlines the whole table; then columns begin at the words of the header.
    if len(starts) == 1:
        starts = [2] + [at for at in range(4, len(header)) if header[at] != " " and header[at - 2 : at] == "  "]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    names = [header[start:end].strip() for start, end in spans]
    rows = []
    for line in lines[3:]:
        if not line.strip():
            break
        rows.append({name: line[start:end].strip() for name, (start, end) in zip(names, spans, strict=True)})
    return rows
