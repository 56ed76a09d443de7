"""Compiled load tools, a relay, and runs of amqpload with their reports."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from loadtests.processes import AMQPLOAD, Relay, arguments, build_tools

LIMIT = 60  # seconds for one run of amqpload; each takes under 5 on an idle machine


@dataclass(frozen=True)
class AmqpLoadRun:
    """Result of a run of amqpload."""

    status: int
    report: dict[str, Any]
    complaints: str


def amqpload(**options: object) -> AmqpLoadRun:
    """Run amqpload. The caller judges its faults."""
    done = subprocess.run(
        [str(AMQPLOAD), *arguments(options)], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return AmqpLoadRun(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    """Build amqpload and relay once."""
    build_tools()


@pytest.fixture
def relay() -> Iterator[Relay]:
    """Yield a byte relay on free ports."""
    with Relay() as running:
        yield running
