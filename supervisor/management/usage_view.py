"""GET-USAGE: deliveries of clients by vhost, whether the vhost has limits or not. Not in Dispatch.

The body is a list of maps, one for each vhost that has clients: `vhost`, `connections`, `linksIn` and `linksOut`, and
the counters `deliveriesIn`, `deliveriesOut`, `octetsIn` and `octetsOut` (in: clients send). Vhosts beyond
`metricsUsers` are summed as `other`. Without policy there are none.
"""

from typing import Any

from sluice.router.stats.sums import TRAFFIC_SUMS
from sluice.supervisor.management import operations
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import OK, Response, Steps
from sluice.supervisor.telemetry.usage import UsageRow
from sluice.supervisor.telemetry.usage_meter import UsageMeter


def register_usage(meter: UsageMeter) -> None:
    """Register the operation GET-USAGE."""

    def get_usage(request: Request, context: AgentContext) -> Steps:
        del context
        request.shrink()
        refreshed = meter.refresh()
        if refreshed is not None:
            yield refreshed
            refreshed.result()
        return Response.of(OK, [_as_map(name, row) for name, row in meter.vhosts() if row.connections])

    operations.register("GET-USAGE", get_usage)


def _as_map(vhost: str, row: UsageRow) -> dict[str, Any]:
    shown: dict[str, Any] = {"vhost": vhost, "connections": row.connections}
    for place, direction in enumerate(("In", "Out")):
        shown[f"links{direction}"] = row.links[place]
        for number, counted in enumerate(TRAFFIC_SUMS):
            shown[f"{counted}{direction}"] = row.traffic[place * len(TRAFFIC_SUMS) + number]
    return shown
