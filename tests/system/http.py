"""HTTP client for tests: requests to a listener of a router, and the samples of its metrics page."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.peer import secrets
from tests.system.router import Section, listener, poll

#: Seconds for an HTTP response on a busy machine.
PATIENCE = 20.0
#: Listener for HTTP. Tests find its port by its name.
WEB: Section = listener("web", http=True)


@dataclass(frozen=True)
class Reply:
    """An HTTP response: status, headers, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


def get(port: int, path: str, method: str = "GET", **headers: str) -> Reply:
    """Send a request and return the response, whatever its status."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            reply = Reply(answer.status, dict(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            reply = Reply(error.code, dict(error.headers), error.read())
    secrets.look(reply.body, f"body of {path}")
    return reply


#: Key of a sample: its name, and the values of its labels in the order of the label names.
Key = tuple[str, ...]


class Metrics:
    """A page of metrics, as parsed by Prometheus' own parser."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in self.families.values():
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name that have these labels; fail if there is none."""
        found = [value for own, value in self.samples[name] if labels.items() <= own.items()]
        assert found, f"no {name} with {labels}: {self.samples[name][:10]}"
        return sum(found)

    def labels(self, name: str, label: str) -> set[str]:
        """Return all values of a label of a metric."""
        return {own[label] for own, _ in self.samples.get(name, ())}


def wait_page(port: int, what: str, **expected: float) -> Metrics:
    """Wait until the page shows these values, summed over the labels; return the page."""
    pages: list[Metrics] = []

    def shown() -> bool:
        pages[:] = [scrape(port)]
        return all(pages[0].sum(name) == value for name, value in expected.items())

    try:
        poll(shown, what)
    except AssertionError:
        wrong = {name: (pages[0].sum(name), value) for name, value in expected.items()}
        raise AssertionError(f"{what}: values (are, should be) {wrong}") from None
    return pages[0]


def scrape(port: int) -> Metrics:
    """Return the present metrics."""
    reply = get(port, "/metrics")
    assert reply.status == 200, reply
    return Metrics(reply.text)
