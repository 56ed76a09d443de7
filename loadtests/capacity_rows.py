"""Rows that compare capacities that adapt, the default, with the largest one configured (linkCapacity)."""

from __future__ import annotations

from functools import partial

from loadtests.configuration import router_configuration
from loadtests.measuring import BODY, Bench
from loadtests.report import Figure, ratio_at_least, ratio_at_most

LARGEST_CAPACITY = 4000
LARGER_BODY = 1024
LOADS: dict[str, dict[str, object]] = {
    "one pair": {},
    "one pair, presettled": {"presettled": True, "allow_loss": True},
    "one pair, bodies of 1 KiB": {"size": LARGER_BODY},
    "10 pairs": {"pairs": 10, "distinct": True},
    "20 senders to one receiver": {"senders": 20, "receivers": 1},
}


def capacities(bench: Bench) -> list[Figure]:
    """Measure rate and CPU without linkCapacity, in turn with the largest capacity. Receivers have credit for it."""
    figures = []
    against = f"linkCapacity {LARGEST_CAPACITY}"
    with bench.router(1) as adapting, bench.router(1, router_configuration(1, LARGEST_CAPACITY)) as fixed:
        for what, load in LOADS.items():
            options = {"size": BODY, "credit": LARGEST_CAPACITY, **load}
            mine, theirs = bench.in_turn(partial(adapting.load, **options), partial(fixed.load, **options))
            rate, cpu = ("per_second",), ("router_cpu", "us_per_delivery")
            figures += [
                Figure(
                    f"{what}, default capacity", mine.median(*rate), "/s", ratio_at_least(0.9), theirs.median(*rate),
                    against,
                ),
                Figure(
                    f"{what}: router CPU", mine.median(*cpu), "µs a delivery", ratio_at_most(1.15), theirs.median(*cpu),
                    against,
                ),
            ]  # fmt: skip
    return figures
