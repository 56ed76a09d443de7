"""Parser of callgrind's output: costs of the router's compiled code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"(?:\((\d+)\))?\s*(.*)")
#: Shared objects whose work counts as the router's if the router calls them.
LIBRARIES: Final = ("/libc.so", "/libc-", "/ld-linux", "vgpreload", "/libssl", "/libcrypto")
#: Test modules, which take the place of sockets here.
TESTING: Final = "/testing."


@dataclass(slots=True)
class Costs:
    """Costs from one file. instructions: of the router's shared objects, including the library code they call."""

    instructions: int = 0
    misses: int = 0
    module_calls: int = 0
    interpreter_calls: int = 0


class Names:
    """Names compressed by callgrind: `(3) text` defines number 3, `(3)` refers to it."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, text: str) -> str:
        match = NAME.fullmatch(text.strip())
        assert match is not None
        number, name = match.groups()
        if number is None:
            return name
        if name:
            self._known[number] = name
        return self._known[number]


def read_costs(path: Path, root: str) -> Costs:
    """Add up the costs in a file. root: folder of the router's shared objects.

    Raises OSError; ValueError for a file of another format.
    """
    costs, objects = Costs(), Names()
    events: list[str] = []
    here = called = ""
    calls = 0
    with path.open() as lines:
        for line in lines:
            key, _, value = line.partition("=")
            if line.startswith("events:"):
                events = line.split()[1:]
            elif key == "ob":
                here = called = objects.of(value)
            elif key == "fn":
                called = here
            elif key == "cob":
                called = objects.of(value)
            elif key == "calls":
                calls = int(value.split()[0])
            elif line[:1].isdigit() or line[:1] in "+-*":
                figures = dict(zip(events, map(int, line.split()[1:]), strict=False))
                ours = here.startswith(root) and TESTING not in here
                if calls:
                    count_call(costs, figures, ours, called, root, calls)
                    calls, called = 0, here
                elif ours:
                    add(costs, figures)
    if "Ir" not in events:
        raise ValueError(f"{path} is no output of callgrind")
    return costs


def count_call(costs: Costs, figures: dict[str, int], ours: bool, called: str, root: str, calls: int) -> None:
    """Count a call with its inclusive cost."""
    if not ours:
        return
    if called.startswith(root):
        costs.module_calls += calls
    elif any(name in called for name in LIBRARIES):
        add(costs, figures)
    else:
        costs.interpreter_calls += calls


def add(costs: Costs, figures: dict[str, int]) -> None:
    costs.instructions += figures.get("Ir", 0)
    costs.misses += figures.get("D1mr", 0) + figures.get("D1mw", 0)
