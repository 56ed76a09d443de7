"""A few rounds of `python -m loadtests.liveness`, and its detection of stalls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from loadtests.liveness.__main__ import LivenessRun, RoundSetting
from loadtests.liveness.draw import (
    AddressSpec,
    ConnectionSpec,
    ConsumerSpec,
    MessageSpec,
    ProducerSpec,
    Scenario,
    SessionSpec,
)
from loadtests.liveness.round import LivenessRound
from loadtests.liveness.routers import HOPS, RoutersUnderTest

#: Number of rounds for each arrangement of routers, half of them with a misbehaving client.
ROUNDS = 4
#: Permitted seconds without progress on a busy machine.
PATIENCE = 15.0


@pytest.fixture
def run() -> Iterator[LivenessRun]:
    with ExitStack() as stack:
        yield LivenessRun(stack, PATIENCE)


@pytest.mark.long
@pytest.mark.parametrize(("hop", "workers"), list(zip(HOPS, (3, 1, 1), strict=True)))
def test_network_after_load_comes_to_rest(
    run: LivenessRun, hop: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(1, ROUNDS + 1):
        kind = ("rest", "grudge")[seed % 2]
        assert run.round(seed, RoundSetting(hop, workers, kind)), capsys.readouterr().out


def one_link(**consumer: object) -> Scenario:
    """Return a scenario with a producer of three messages and a consumer, each on its own connection."""
    address = AddressSpec("balanced/one", "balanced")
    to = ProducerSpec(1, address, [MessageSpec(100)] * 3)
    end = ConsumerSpec(2, address)
    for name, value in consumer.items():
        setattr(end, name, value)
    connections = [ConnectionSpec(name, sessions=[SessionSpec(links=[link])]) for name, link in (("a", to), ("b", end))]
    return Scenario(0, "rest", seconds=0.01, addresses=[address], connections=connections)


def test_stalled_link_is_noticed() -> None:
    with RoutersUnderTest(1, "none") as routers:
        assert LivenessRound(one_link(), routers, PATIENCE).run() == []
        (fault,) = LivenessRound(one_link(settle=("never", 0.0, 1)), routers, 0.5).run()
        assert "no outcome of 3, the first is message 0 of producer 1" in fault
        (fault,) = LivenessRound(one_link(credit=("none", 0)), routers, 0.5).run()
        assert "no outcome of 3" in fault
