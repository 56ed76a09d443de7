"""Ways to ask for a reload: SIGHUP, and the management operation RELOAD, which `sluice reload` uses."""

from typing import Any

from router.config.diff import Plan
from router.log import Log
from supervisor.live.configuration import LiveConfiguration
from supervisor.live.errors import ChangeError
from supervisor.management import operations
from supervisor.management.context import Context
from supervisor.management.request import Request
from supervisor.management.response import OK, Response, StatusError


def hang_up(live: LiveConfiguration, log: Log) -> None:
    """SIGHUP: open the log files anew, then reload."""
    log.notice("SERVER", "SIGHUP: log files are opened again, then the configuration is read again")
    live.reopen_log()
    live.reload_later(None, False, lambda result: None)


def register_reload(live: LiveConfiguration) -> None:
    """Let management have RELOAD; properties `plan` (only show it) and `undo` (back to what was before)."""

    def reload(request: Request, context: Context) -> None:
        plan_only = request.properties.get("plan") is True

        def answer(result: Plan | ChangeError) -> None:
            # A plan of a thousand changes is a long text.
            live.in_thread(lambda: _response(result, plan_only), lambda made: context.answer(request, made))

        if request.properties.get("undo") is True:
            live.undo_later(plan_only, answer)
        else:
            live.reload_later(None, plan_only, answer)

    operations.register("RELOAD", reload)


def _response(result: Plan | ChangeError, plan_only: bool) -> Response:
    if isinstance(result, ChangeError):
        return Response.failed(StatusError(result.status, result.text))
    body: dict[str, Any] = {"applied": not plan_only, "changes": result.as_maps(), "text": result.render()}
    return Response.of(OK, body)
