"""GET-HISTORY: figures of the last hour, day or month, and events. Not in Dispatch.

Properties, all optional: `step` (5, 60 or 3600: seconds of a period; default 5), `since` (whole seconds since the
epoch: only periods that ended later, and later events), `names` (figures, separated by commas; default all).

The body is a map: `step`, `first` (end of the first period, in seconds since the epoch), `figures` (by name a list of
values, null where there is none) and `events` (maps with `time`, `kind`, `text`, `count` and `last`, oldest first).
"""

from typing import Final

from sluice.supervisor.history.events import as_map
from sluice.supervisor.history.figures import NAMES
from sluice.supervisor.history.history import STEP
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, OK, Response, StatusError

_SHOWN: Final = 50  # characters of a wrong name in the answer


def get_history(request: Request, context: AgentContext) -> Response:
    """Return figures and events."""
    history = context.core.history
    step = request.number("step")
    ring = next((each for each in history.rings if each.step == (STEP if step is None else step)), None)
    if ring is None:
        steps = ", ".join(str(each.step) for each in history.rings)
        raise StatusError(BAD_REQUEST, f"There are no periods of {step} seconds, but of {steps}")
    given = request.text("names")
    names = NAMES if given is None else tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    if unknown := [name for name in names if name not in NAMES]:
        raise StatusError(BAD_REQUEST, f"There is no figure '{unknown[0][:_SHOWN]}'")
    since = request.number("since") or 0
    first, figures = ring.read(names, since)
    events = [as_map(event) for event in history.events.since(since)]
    return Response.of(OK, {"step": ring.step, "first": first, "figures": figures, "events": events})
