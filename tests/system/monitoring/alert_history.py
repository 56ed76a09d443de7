"""Pages of metrics of real processes as series of Prometheus, and the alerts that promtool finds in them.

Time is counted in minutes of the test: each page is read at once and written with the next minute, so the waits of the
rules pass without waiting. The values are the router's own; only times are shifted.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from scripts.packaging_tools import TOOLS
from tests.promql import RULES, rules, used_names
from tests.system.http import Metrics, scrape
from tests.system.router import poll

PROMTOOL = str(TOOLS / "promtool") if (TOOLS / "promtool").exists() else shutil.which("promtool")
#: Times in seconds since the epoch, which become times since the beginning of the history.
TIMES = ("sluice_tls_certificate_expiry_timestamp_seconds", "process_start_time_seconds")
REQUESTS = "sluice_http_requests_total"


class AlertHistory:
    """Minutes of a process, one page each, with the alerts that must fire at some of them.

    folder: receives the input of promtool.
    read: returns a page; if its argument is true, only one that was rendered after the call. An OSError: `up` is 0.
    file, job: the rules, and the scrape job that they expect.
    """

    def __init__(self, folder: Path, read: Callable[[bool], Metrics], file: Path = RULES, job: str = "sluice") -> None:
        self._folder, self._read, self._file, self._job = folder, read, file, job
        self._began = time.time()
        self._names = {name for kind in ("alert", "record") for rule in rules(kind, file).values()
                       for name in used_names(rule["expr"]).metrics}  # fmt: skip
        self._samples: dict[str, dict[int, str]] = {}
        self._present: set[str] = set()
        self._minute = -1
        self._expected: list[dict[str, Any]] = []

    def pass_minutes(self, count: int, during: Callable[[], object] | None = None) -> None:
        """Read a page for each of `count` minutes. during: called before each page."""
        for number in range(count):
            if during is not None:
                during()
            self._minute += 1
            self._take(self._page(new=number == 0 or during is not None))

    def pass_calm_minutes(self, count: int, during: Callable[[], object] | None = None) -> None:
        """Read pages during which no alert may fire at any minute."""
        for _ in range(count):
            self.pass_minutes(1, during)
            self.expect()

    def expect(self, *alerts: str, **labels: str) -> None:
        """Note that exactly these alerts must fire now. labels: of the first of them."""
        self._expect('group by (alertname) (ALERTS{alertstate="firing"})',
                     [f"{{alertname={json.dumps(name)}}}" for name in alerts])  # fmt: skip
        if labels:
            chosen = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            known = f'alertname="{alerts[0]}", alertstate="firing"'
            self._expect(f"group(ALERTS{{{known}, {chosen}}})", ["{}"])

    def check(self) -> None:
        """Evaluate the rules of the repository on all minutes, and compare with what must fire."""
        series = [{"series": name, "values": self._values(found)} for name, found in self._samples.items()]
        test = {"interval": "1m", "input_series": series, "promql_expr_test": self._expected}
        cases = self._folder / "alerts.yml"
        cases.write_text(
            yaml.safe_dump({"rule_files": [str(self._file)], "evaluation_interval": "1m", "tests": [test]})
        )
        assert PROMTOOL is not None
        result = subprocess.run([PROMTOOL, "test", "rules", str(cases)], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr

    def _expect(self, expression: str, labels: list[str]) -> None:
        samples = [{"labels": each, "value": 1} for each in labels]
        self._expected.append({"expr": expression, "eval_time": f"{self._minute}m", "exp_samples": samples})

    def _page(self, *, new: bool) -> dict[str, str]:
        """Return the samples of a page that the rules use. new: only of one that was rendered after this call."""
        try:
            page = self._read(new)
        except OSError:
            return {self._series_of("up", {}): "0"}
        found = {self._series_of("up", {}): "1"}
        for name in self._names & page.samples.keys():
            for labels, value in page.samples[name]:
                if not math.isnan(value):
                    shifted = value - self._began if name in TIMES else value
                    found[self._series_of(name, labels)] = f"{shifted:.15g}"
        return found

    def _take(self, page: dict[str, str]) -> None:
        for name in self._present - page.keys():
            self._samples[name][self._minute] = "stale"
        for name, value in page.items():
            self._samples.setdefault(name, {})[self._minute] = value
        self._present = {*page}

    def _series_of(self, name: str, labels: dict[str, str]) -> str:
        known = {"job": self._job, "instance": "host:8888", **labels}
        text = ", ".join(f"{each}={json.dumps(value)}" for each, value in sorted(known.items()) if value)
        return f"{name}{{{text}}}"

    def _values(self, found: dict[int, str]) -> str:
        return " ".join(found.get(minute, "_") for minute in range(self._minute + 1))


def router_page(port: int, new: bool) -> Metrics:
    """Return a page of a router, which sends a page again for a moment. new: only one that counts this request."""
    if not new:
        return scrape(port)
    first = _requests(scrape(port))
    page: Metrics = poll(lambda: page if _requests(page := scrape(port)) > first else None, "a new page")
    return page


def _requests(page: Metrics) -> float:
    """Return the number of requests that a page counts; the first page of a router counts none."""
    return sum(value for _, value in page.samples.get(REQUESTS, ()))
