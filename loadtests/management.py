"""Management of measured routers: a client, and waits for the state of a router."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from loadtests.processes import BenchRouter, MeasureError
from sluice.router.cli.client import ManagementClient
from sluice.router.cli.options import MANAGEMENT, ManagementUrl, QueryTarget

LIMIT = 60.0  # seconds for an answer, and for any wait
PAUSE = 0.02  # seconds between two looks

Seen = TypeVar("Seen")


def manage(router: BenchRouter) -> ManagementClient:
    """Return a management client of a router."""
    return ManagementClient(
        QueryTarget(ManagementUrl.parse(f"127.0.0.1:{router.port}"), MANAGEMENT, LIMIT, tls=None, sasl=None)
    )


def wait_until(what: str, look: Callable[[], Seen], fits: Callable[[Seen], bool], pause: float = PAUSE) -> None:
    """Wait until what `look` returns satisfies `fits`. Raises MeasureError. what: the awaited state, for its text."""
    until = time.monotonic() + LIMIT
    while not fits(seen := look()):
        if time.monotonic() > until:
            raise MeasureError(f"after {LIMIT:g} s not {what}: {seen}")
        time.sleep(pause)
