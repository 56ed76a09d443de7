"""Management operation GET-CONFIGURATION: the configuration in force as a file, and its differences from the file."""

from functools import partial
from typing import Any

from sluice.router.config.diff import Plan, diff
from sluice.router.config.entities import Configuration
from sluice.router.config.render import RenderError, render
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.reloads import Reloads, Result
from sluice.supervisor.management import operations
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, OK, Response, StatusError, Steps


def register_show(reloads: Reloads) -> None:
    """Register the operation.

    Property `json`: in JSON syntax. Property `differences`: instead, the changes from the file to the configuration in
    force.
    """

    def show(request: Request, context: AgentContext) -> Steps:
        json = request.properties.get("json") is True
        differences = request.properties.get("differences") is True
        configuration = context.changes.configuration
        source = f"management [C{request.connection}]"
        request.shrink()
        if differences:
            asked = reloads.ask(source=source, plan_only=True)
            yield asked
            made = reloads.in_thread(partial(_differences, asked.result()))
        else:
            made = reloads.in_thread(partial(_rendered, configuration, json))
        yield made
        return made.result()

    operations.register("GET-CONFIGURATION", show)


def _rendered(configuration: Configuration, json: bool) -> Response:
    try:
        text = render(configuration, json=json)
    except RenderError as error:
        return Response.failed(StatusError(BAD_REQUEST, str(error)))
    return Response.of(OK, {"path": configuration.path, "text": text})


def _differences(result: Result) -> Response:
    """Return the changes from the file to the configuration in force. result: of a plan from the latter to the file."""
    if isinstance(result, ChangeError):
        return Response.failed(StatusError(result.status, result.text))
    assert isinstance(result, Plan)
    found = diff(result.new, result.old)
    body: dict[str, Any] = {
        "path": result.new.path,
        "changes": found.as_maps(),
        "text": found.render_differences(),
    }
    return Response.of(OK, body)
