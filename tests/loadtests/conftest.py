"""The compiled tools, a relay, and amqpload run to its end with its report."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from loadtests.processes import AMQPLOAD, Relay, arguments, build_tools

LIMIT = 60  # seconds for one run of amqpload; each takes under 5 on an idle machine


@dataclass(frozen=True)
class Run:
    """How amqpload ended."""

    status: int
    report: dict[str, Any]
    complaints: str


def amqpload(**options: object) -> Run:
    """Run amqpload; faults are for the caller to judge."""
    done = subprocess.run(
        [str(AMQPLOAD), *arguments(options)], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return Run(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    """amqpload and relay are built once."""
    build_tools()


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A byte relay on free ports."""
    with Relay() as running:
        yield running
