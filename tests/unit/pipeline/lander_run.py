"""Lander in the test's event loop, with a small broker in the same process."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluice.pipeline.lander import Lander, LanderOptions
from tests.unit.router.client.server import EngineBroker
from tests.unit.supervisor.auth.waiting import soon


class LanderRun:
    """Lander of address a in a folder, with the lines that it says."""

    def __init__(self, broker: EngineBroker, path: Path, **changes: Any) -> None:
        self.broker = broker
        self.lines: list[str] = []
        options = {"url": broker.url, "addresses": ("a",), "path": str(path), "lander": "l", "interval": 0.02}
        self.lander = Lander(LanderOptions(**{**options, **changes}), self.lines.append)

    def until(self, *conditions: Callable[[], object]) -> None:
        """Run the lander until each condition has held, in turn, and end it."""

        async def main() -> None:
            running = asyncio.create_task(self.lander.run())
            for condition in conditions:
                await soon(lambda condition=condition: running.done() or condition())  # type: ignore[misc]
            self.lander.end()
            await running

        asyncio.run(main())

    def has_said(self, text: str) -> bool:
        return any(text in line for line in self.lines)


def put(broker: EngineBroker, *messages: bytes) -> None:
    """Add messages to the queue of address a."""
    with broker.lock:
        broker.queues["a"].extend(messages)
        broker.give()
