"""Rows about vhost policy: cost of its rules for a delivery, beside a router without them in the same run."""

from __future__ import annotations

from functools import partial

from loadtests.configuration import INFO_LOG, configuration_text, listener, router_section
from loadtests.measuring import BODY, Bench
from loadtests.report import Figure, ratio_at_most
from tests.system.router import Section

VHOSTS = 200
GROUPS = 50  # groups of the vhost in use; the client is in the last one
NAMES = 100  # names in each list; the address in use is the last one
VHOST = "crowded"
ADDRESS = "bench"


def configuration(*rules: Section) -> str:
    """Return a configuration with one worker and one listener. rules: policy sections that apply to all clients."""
    return configuration_text(router_section(), listener(policyVhost=VHOST if rules else None), *rules, INFO_LOG)


def many_rules(vhost: str = VHOST, address: str = ADDRESS) -> list[Section]:
    """Return many vhosts, one with many groups and long lists. Anonymous senders may use the address."""
    names = ", ".join([*(f"queue.{number}" for number in range(NAMES - 1)), address])
    groups = {
        f"g{number}": {
            "users": f"u{number}, anonymous" if number == GROUPS - 1 else f"u{number}", "remoteHosts": "*",
            "allowAnonymousSender": True, "sources": names, "targets": names,
        }
        for number in range(GROUPS)
    }  # fmt: skip
    others: list[Section] = [("vhost", {"hostname": f"v{number}"}) for number in range(VHOSTS - 1)]
    return [("policy", {"enableVhostPolicy": True}), *others, ("vhost", {"hostname": vhost, "groups": groups})]


def policy(bench: Bench) -> list[Figure]:
    """Measure the CPU of deliveries of an anonymous sender, and of a sender with a target, which no rule is checked
    for.
    """
    with bench.router(1, configuration(*many_rules())) as ruled, bench.router(1, configuration()) as free:
        figures = []
        for kind, anonymous in (("anonymous sender", True), ("sender with a target", False)):
            options: dict[str, object] = {"size": BODY, "address": ADDRESS, "anonymous": anonymous}
            with_rules, without = bench.in_turn(partial(ruled.load, **options), partial(free.load, **options))
            cpu = ("router_cpu", "us_per_delivery")
            figures.append(
                Figure(
                    f"policy of {VHOSTS} vhosts, {kind}: router CPU",
                    with_rules.median(*cpu),
                    "µs a delivery",
                    ratio_at_most(1.15),
                    without.median(*cpu),
                    "the same without policy",
                )
            )
    return figures
