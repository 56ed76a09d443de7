"""Run the tools against a router as a shell would, and read the tables they print."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.system import fork_server
from tests.system.router import ROOT

#: Time limit in s for one run of a tool on a busy machine.
TIMEOUT = 60.0
_MODULES = {"stat": "sluice.router.cli.stat.main", "manage": "sluice.router.cli.manage"}

Row = dict[str, str]


@dataclass(frozen=True)
class ToolResult:
    """Exit code and output of a tool."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Row]:
        """The rows of the only table in the output, classic or CSV."""
        lines = self.out.splitlines()
        return _csv(lines) if '","' in self.out else _classic(lines)


def command(tool: str) -> list[str]:
    """Return the command that starts a tool: the installed command, under its 1.19 name if it has one."""
    installed = ROOT / ".venv" / "bin"
    name = {"stat": "qdstat", "manage": "qdmanage"}.get(tool)
    if name is not None and (installed / name).exists():
        return [str(installed / name)]
    if name is None and (installed / "sluice").exists():
        return [str(installed / "sluice"), tool]
    return [sys.executable, "-m", "sluice.router.cli.main", tool]


def run(tool: str, port: int, *words: str, stdin: str | None = None) -> ToolResult:
    """Run a tool against the listener on `port` until it exits."""
    line = [*command(tool), "-b", f"127.0.0.1:{port}", "-t", "30", *words]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((stdin or "").encode())
        given.seek(0)
        process = fork_server.start(line, environment(), Path.cwd(), given.fileno(), out.fileno(), err.fileno())
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return ToolResult(code, _content(out), _content(err))


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def environment() -> dict[str, str]:
    """Return the environment of a tool: the checkout's modules, unbuffered output."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def table(port: int, *words: str) -> list[Row]:
    """Return the rows that `qdstat` prints."""
    done = run("stat", port, *words)
    assert (done.code, done.err) == (0, ""), done
    return done.rows


def one(rows: list[Row], **where: Any) -> Row:
    """Return the only row with these cells; `_` in a name stands for a blank."""
    wanted = {name.replace("_", " "): str(value) for name, value in where.items()}
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows with {wanted} among {rows}"
    return found[0]


def _classic(lines: list[str]) -> list[Row]:
    """Parse a classic table. Cells start in the column of their heads, which are two blanks apart."""
    rule = next(at for at, line in enumerate(lines) if line.startswith("  ==") and set(line[2:]) == {"="})
    heads = lines[rule - 1]
    starts = [at for at in range(2, len(heads)) if heads[at] != " " and heads[at - 2 : at] == "  "]
    ends = [*starts[1:], None]
    names = [heads[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    rows = []
    for line in lines[rule + 1 :]:
        if not line.startswith("  "):
            break
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _csv(lines: list[str]) -> list[Row]:
    first = next(at for at, line in enumerate(lines) if line.startswith('"'))
    return list(csv.DictReader(lines[first:]))
