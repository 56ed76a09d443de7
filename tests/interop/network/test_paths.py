"""Path computation (inter-router.md 8) as shown by router.node: next hops, costs, valid origins.

Each case of the specification is built around one router under test. Its neighbours are routers of 1.19 that advertise
the link states of the case, also for the routers behind them. Names keep the order of the specification, because it
decides between equal costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.network.net import CONVERGE, InteropNetwork
from tests.interop.network.scripted import ControlSender, ScriptedRouter, ScriptedRouterView
from tests.peer.router19.control import Router19Control
from tests.peer.router19.loop import Router19Loop
from tests.system.router import poll

ME = "K"
DIAMOND = "A:B1,C1 B:A1,D1 C:A1,D1 D:B1,C1"
COSTLY = "A:B1,C10 B:A1,C2 C:A10,B2"
RING = "A:B1,E1 B:A1,C1 C:B1,D1 D:C1,E1 E:D1,A1"
LINE = "A:B1 B:A1,C1 C:B1"
#: Cases by name: link states, own router, next hops, costs, and the valid origins given in the specification.
CASES: dict[str, tuple[str, str, str, str, dict[str, str]]] = {
    "line, end": (LINE, "A", "B:B C:B", "B:1 C:2", {"B": "", "C": ""}),
    "line, middle": (LINE, "B", "A:A C:C", "A:1 C:1", {"A": "C", "C": "A"}),
    "diamond, A": (DIAMOND, "A", "B:B C:C D:B", "B:1 C:1 D:2", {"B": "C", "C": "B", "D": ""}),
    "diamond, B": (DIAMOND, "B", "A:A C:A D:D", "A:1 C:2 D:1", {"A": "D", "C": "", "D": "A"}),
    "diamond, C": (DIAMOND, "C", "A:A B:A D:D", "A:1 B:2 D:1", {"A": "", "B": "", "D": ""}),
    "diamond, D": (DIAMOND, "D", "A:B B:B C:C", "A:2 B:1 C:1", {"A": "", "B": "", "C": ""}),
    "costs, A": (COSTLY, "A", "B:B C:B", "B:1 C:3", {}),
    "costs, B": (COSTLY, "B", "A:A C:C", "A:1 C:2", {"A": "C", "C": "A"}),
    "asymmetric": ("A:B1 B:A4", "A", "B:B", "B:1", {}),
    "asymmetric, other end": ("A:B1 B:A4", "B", "A:A", "A:4", {}),
    "unknown end": ("A:B1 B:A1,C5", "A", "B:B C:B", "B:1 C:6", {}),
    "empty end": ("A:B1 B:A1,C5 C:", "A", "B:B C:B", "B:1 C:6", {}),
    "one way": ("A:B1 B:", "A", "B:B", "B:1", {}),
    "ring": (RING, "A", "B:B C:B D:E E:E", "B:1 C:2 D:2 E:1", {"B": "E", "C": "", "D": "", "E": "B"}),
}


def parse_states(states: str) -> dict[str, dict[str, int]]:
    """Parse link states in short notation, as "A:B1,C10"."""
    return {
        one.partition(":")[0]: {peer[0]: int(peer[1:]) for peer in one.partition(":")[2].split(",") if peer}
        for one in states.split()
    }


class PathCase:
    """Network of one case around the router under test."""

    def __init__(self, router19_loop: Router19Loop, sluice: Any, number: int, states: str, me: str) -> None:
        self.names = {
            one: ME if one == me else f"{'A' if one < me else 'Z'}{number}{one}" for one in "ABCDE" if one in states
        }
        collection = parse_states(states)
        self.neighbours = [
            ScriptedRouter(router19_loop, sluice, self.names[one], cost) for one, cost in collection[me].items()
        ]
        by_name = {one.id: one for one in self.neighbours}
        for one, peers in collection.items():
            if one == me:
                continue
            claimed = {self.names[peer]: cost for peer, cost in peers.items()}
            name = self.names[one]
            voice = by_name[name] if name in by_name else self.neighbours[0].phantom(name)
            self.advertise(voice, claimed)

    def advertise(self, voice: ControlSender, peers: dict[str, int]) -> None:
        """Advertise a router with these peers, and answer requests for its link state."""
        through = voice.through

        def answer(message: Router19Control) -> None:
            if message.opcode == "LSR":
                through.world.loop.call_soon_threadsafe(self.send_update, voice, peers)

        if voice is through:
            through.router.engine.claimed = peers
            through.router.engine.ls_seq = 5
            through.router.engine.mute.difference_update({"LSU", "RA"})
        else:
            for neighbour in self.neighbours:
                neighbour.router.phantoms[voice.id] = answer
            self.advertise_repeatedly(voice)

    def send_update(self, voice: ControlSender, peers: dict[str, int]) -> None:
        """Send an LSU of a router behind a neighbour."""
        with voice.through.world.entered():
            if not voice.through.connection.lost:
                voice.lsu_now(3, peers)

    def advertise_repeatedly(self, voice: ControlSender) -> None:
        """Advertise a router behind a neighbour periodically, as that router would."""
        through = voice.through

        def again() -> None:
            with through.world.entered():
                if not through.connection.lost:
                    if through.connection.control_out is not None:
                        voice.ra_now(3)
                    through.world.loop.call_later(0.3, again)

        through.world.loop.call_soon_threadsafe(again)

    def stop(self) -> None:
        """Stop the neighbours."""
        for one in self.neighbours:
            one.stop()


@pytest.fixture(scope="module")
def path_cases(
    router19_loop: Router19Loop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ScriptedRouterView, dict[str, PathCase]]]:
    """All cases at once around one router. Their networks meet only in this router."""
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("paths"), 1)
    cases: dict[str, PathCase] = {}
    try:
        sluice = network.sluice(ME)
        for number, (name, (states, me, *_expected)) in enumerate(CASES.items()):
            cases[name] = PathCase(router19_loop, sluice, number, states, me)
        yield ScriptedRouterView(sluice), cases
    finally:
        for case in cases.values():
            case.stop()
        network.stop()


@pytest.mark.parametrize("name", CASES)
def test_paths_match_specification_text(path_cases: tuple[ScriptedRouterView, dict[str, PathCase]], name: str) -> None:
    view, cases = path_cases
    names = cases[name].names
    _states, _me, hops, costs, origins = CASES[name]
    expected = {
        names[one]: (
            None if (hop := dict(pair.split(":") for pair in hops.split())[one]) == one else names[hop],
            int(cost),
        )
        for one, cost in (pair.split(":") for pair in costs.split())
    }
    wanted_origins = {names[one]: sorted(names[origin] for origin in origins[one]) for one in origins}

    def found() -> tuple[dict[str, Any], dict[str, Any]]:
        rows = view.nodes()
        paths = {one: (rows[one]["nextHop"], rows[one]["cost"]) for one in expected if one in rows}
        mine = {
            one: sorted(set(rows[one]["validOrigins"]) & set(names.values())) for one in wanted_origins if one in rows
        }
        return paths, mine

    def right() -> bool:
        return found() == (expected, wanted_origins)

    try:
        poll(right, "the paths of the specification", CONVERGE)
    except AssertionError:
        assert found() == (expected, wanted_origins)
        raise
