"""OpenTelemetry Collector in a process of its own, which writes what it receives to files as OTLP JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.peer.pki import Issued, Pki
from tests.system.router import free_port

SIGNALS = ("traces", "logs", "metrics")
#: Seconds for an export to arrive in a file, on a busy machine.
PATIENCE = 60.0
STOP_SECONDS = 20.0


class Received(NamedTuple):
    """Span, log record or metric, with the attributes of its resource and the name of its scope."""

    resource: dict[str, Any]
    scope: str
    item: dict[str, Any]

    @property
    def router(self) -> str:
        """Return the id of the router that sent it."""
        return str(self.resource["service.instance.id"])

    @property
    def attributes(self) -> dict[str, Any]:
        return attributes(self.item)


def attributes(holder: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a resource, span, record or data point. OTLP JSON has integers as strings."""
    found = {}
    for each in holder.get("attributes", ()):
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


class CollectorProcess:
    """Collector with its files in `directory`, on ports that stay the same over restarts.

    program: built from collector/main.go. server: its certificate, which makes it speak HTTPS and require certificates
    of `pki`'s authority.
    """

    def __init__(self, program: Path, directory: Path, server: Issued | None = None, pki: Pki | None = None) -> None:
        self._program, self._directory = program, directory
        self.port, self.metrics_port = free_port(), free_port()
        self.endpoint = f"{'http' if server is None else 'https'}://127.0.0.1:{self.port}"
        self._log = directory / "collector.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "collector.yaml"
        self._config.write_text(yaml.safe_dump(self._settings(server, pki)))

    def _settings(self, server: Issued | None, pki: Pki | None) -> dict[str, Any]:
        http: dict[str, Any] = {"endpoint": f"127.0.0.1:{self.port}"}
        if server is not None and pki is not None:
            files = {"cert_file": server.certificate, "key_file": server.key, "client_ca_file": pki.trusted}
            http["tls"] = {name: str(file) for name, file in files.items()}
        exporters: dict[str, Any] = {
            f"file/{signal}": {"path": str(self._directory / f"{signal}.json"), "flush_interval": "100ms"}
            for signal in SIGNALS
        }
        exporters["prometheus"] = {
            "endpoint": f"127.0.0.1:{self.metrics_port}",
            "resource_to_telemetry_conversion": {"enabled": True},
        }
        pipelines = {signal: {"receivers": ["otlp"], "exporters": [f"file/{signal}"]} for signal in SIGNALS}
        pipelines["metrics"]["exporters"].append("prometheus")
        return {
            "receivers": {"otlp": {"protocols": {"http": http}}},
            "exporters": exporters,
            "service": {"pipelines": pipelines, "telemetry": {"metrics": {"level": "none"}}},
        }

    def start(self) -> None:
        """Start the process. Exports succeed once it listens."""
        with self._log.open("ab") as log:
            words = [str(self._program), "--config", str(self._config)]
            self._process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self._directory)

    def stop(self) -> None:
        """End the process, which writes what it holds, and wait for it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def traces(self) -> list[Received]:
        return list(self._read("traces", "Spans", "spans"))

    def logs(self) -> list[Received]:
        return list(self._read("logs", "Logs", "logRecords"))

    def metrics(self) -> list[Received]:
        """Return all metrics of all pages, in the order of arrival."""
        return list(self._read("metrics", "Metrics", "metrics"))

    def _read(self, signal: str, suffix: str, name: str) -> Iterator[Received]:
        """Yield the items in the complete lines of a file."""
        file = self._directory / f"{signal}.json"
        text = file.read_text("utf-8") if file.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            for each in json.loads(line)[f"resource{suffix}"]:
                resource = attributes(each["resource"])
                for scope in each[f"scope{suffix}"]:
                    yield from (Received(resource, scope["scope"]["name"], item) for item in scope[name])
