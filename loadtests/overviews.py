"""Consoles without a browser that show the overview of a network: console/test/overviews.ts under Node.

The program is the console's own code with its feeds and its pace.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadtests.processes import ROOT, MeasureError

CONSOLE = ROOT / "console"
LIMIT = 60.0  # seconds until all must be connected
PAUSE = 0.2  # seconds between two queries


def bundle(entry: str, folder: Path, name: str = "console") -> None:
    """Build a program of console/test into `folder`. Raises MeasureError."""
    node = shutil.which("node")
    if node is None or not (CONSOLE / "node_modules").is_dir():
        raise MeasureError("the console cannot be built here: make console")
    program = (
        "import {build} from 'esbuild'; import {SHARED} from './shared.mjs'; await build({...SHARED, minify: true,"
        f"entryPoints: {{{name}: 'test/{entry}'}}, outdir: '{folder}'}})"
    )
    subprocess.run([node, "--input-type=module", "-e", program], cwd=CONSOLE, check=True, timeout=60)


def need_websocket() -> None:
    """Raise MeasureError if Node has no built-in WebSocket."""
    words = ["node", "--experimental-websocket", "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"]
    if shutil.which("node") is None or subprocess.run(words, capture_output=True, check=False, timeout=60).returncode:
        raise MeasureError("Node 20.10 or newer is needed")


class Overviews:
    """Consoles at a WebSocket port, from entry to exit. After entry all are connected and have seen the network."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-overviews-")
        try:
            need_websocket()
            bundle("overviews.ts", Path(self._folder.name), "overviews")
            program = str(Path(self._folder.name) / "overviews.js")
            module = Path(self._folder.name) / "package.json"
            module.write_text('{"type": "module"}')
            words = ["node", "--experimental-websocket", program, f"ws://127.0.0.1:{self._port}/", str(self._count)]
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def _wait(self) -> None:
        until = time.monotonic() + LIMIT
        while (opened := self.report()["open"]) < self._count:
            if time.monotonic() > until:
                raise MeasureError(f"of {self._count} consoles {opened} are connected after {LIMIT:g} s")
            time.sleep(PAUSE)

    def report(self) -> dict[str, Any]:
        """Return counts since the previous report: `open`, `answers`, `median` and `slowest` (ms)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise MeasureError("the consoles have ended by themselves") from None
        line = self._process.stdout.readline()
        if not line:
            raise MeasureError(f"the consoles have ended by themselves, with status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
