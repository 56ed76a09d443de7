"""Requests for a reload: SIGHUP, and the management operation RELOAD, which `sluice reload` uses."""

import asyncio
import traceback
from functools import partial
from typing import Any

from sluice.router.config.diff import Plan
from sluice.router.log import ProcessLog
from sluice.supervisor.audit.audit import Audit
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.reloads import Reloads, Result
from sluice.supervisor.management import operations
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import OK, Response, StatusError, Steps
from sluice.supervisor.telemetry.logging import Logging


class HangUp:
    """Handler of SIGHUP: opens the log files again, then reloads the configuration. Owner: supervisor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, logging: Logging, audit: Audit, reloads: Reloads, log: ProcessLog
    ) -> None:
        self._loop = loop
        self._logging = logging
        self._audit = audit
        self._reloads = reloads
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def __call__(self) -> None:
        """Handle the signal. All signals that arrive while one is handled count as one further signal."""
        if self._task is not None:
            self._again = True
            return
        self._log.notice("SERVER", "SIGHUP: reopening the log files, then reloading the configuration")
        self._task = self._loop.create_task(self._work())

    async def _work(self) -> None:
        self._audit.reopen()
        try:
            await self._logging.reopen()
        except Exception:  # noqa: BLE001 - logged with its trace; the reload follows
            text = f"Internal error while reopening the log files; the reload follows: {traceback.format_exc()}"
            self._log.critical("SERVER", text.rstrip())
        self._reloads.ask()
        self._task = None
        if self._again:
            self._again = False
            self()


class _Responses:
    """Cached response to RELOAD, shared by all requesters because a plan of a thousand changes is a long text."""

    def __init__(self, reloads: Reloads) -> None:
        self._reloads = reloads
        self._last: tuple[Result, bool, asyncio.Future[Response]] | None = None

    def of(self, result: Result, plan_only: bool) -> "asyncio.Future[Response]":
        """Return the response for the result of a reload, which is made in a thread."""
        if self._last is None or self._last[0] is not result or self._last[1] is not plan_only:
            self._last = result, plan_only, self._reloads.in_thread(partial(_response, result, plan_only))
        return self._last[2]


def register_reload(reloads: Reloads) -> None:
    """Register the operation RELOAD with properties `plan` (only plan) and `undo` (revert the last reload)."""
    responses = _Responses(reloads)

    def reload(request: Request, context: AgentContext) -> Steps:
        del context
        plan_only = request.properties.get("plan") is True
        undo = request.properties.get("undo") is True
        asked = reloads.ask(source=f"management [C{request.connection}]", undo=undo, plan_only=plan_only)
        request.shrink()
        yield asked
        made = responses.of(asked.result(), plan_only)
        yield made
        return made.result()

    operations.register("RELOAD", reload)


def _response(result: Result, plan_only: bool) -> Response:
    if isinstance(result, ChangeError):
        return Response.failed(StatusError(result.status, result.text))
    assert isinstance(result, Plan)
    body: dict[str, Any] = {"applied": not plan_only, "changes": result.as_maps(), "text": result.render()}
    return Response.of(OK, body)
