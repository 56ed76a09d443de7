"""Row about AMQP over WebSocket: the same traffic through one worker, with and without WebSocket."""

from __future__ import annotations

from functools import partial

from loadtests.configuration import INFO_LOG, configuration_text, listener, router_section
from loadtests.measuring import BODY, MIB, Bench
from loadtests.processes import load
from loadtests.report import Figure, ratio_at_least

LARGE_BODY = 100_000
CONFIGURATION = configuration_text(router_section(), listener(), listener("web", http=True), INFO_LOG)


def websocket(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages and bodies of several frames. Clients mask, as the protocol requires."""
    figures = []
    with bench.router(1, CONFIGURATION) as router:
        for name, size, field, unit in (
            ("unsettled", BODY, "per_second", "/s"),
            ("100 kB bodies", LARGE_BODY, "bytes_per_second", "MiB/s"),
        ):
            options: dict[str, object] = {"pid": router.pid, "size": size}
            over, plain = bench.in_turn(
                partial(load, port=router.ports[1], websocket=True, **options),
                partial(load, port=router.ports[0], **options),
            )
            scale = MIB if unit == "MiB/s" else 1
            mine, theirs = (readings.median(field) / scale for readings in (over, plain))
            figures.append(Figure(f"WebSocket, {name}", mine, unit, ratio_at_least(0.8), theirs, "TCP"))
    return figures
