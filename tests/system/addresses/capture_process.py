"""Process of `sluice capture`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.system.router import RouterProcess
from tests.system.tools import TIMEOUT, command, environment


class CaptureProcess:
    """Process of `sluice capture` at a router, writing to `path`."""

    def __init__(self, router: RouterProcess, path: Path, *words: str) -> None:
        line = [*command("capture"), "-b", f"127.0.0.1:{router.port}", "--out", str(path), "--json", *words]
        self.path = path
        self._process = subprocess.Popen(
            line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        """Wait until it captures."""
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.first = line
        while line.startswith("removed "):
            line = self._process.stderr.readline()
        assert line.startswith("capturing "), line + self._process.stderr.read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, Any]:
        """Return the exit code, and the printed result or None."""
        out, err = self._process.communicate(timeout=TIMEOUT)
        assert "Traceback" not in err
        return self._process.returncode, json.loads(out) if out else None
