"""EXPLAIN-POLICY: decision of the policy in force about a connection and its links, with the deciding lines.

Not in Dispatch. The body is a map with the fields of PolicyQuestion (router/policy/question). The answer is a list of
maps: `allowed`, `what`, `why`, `file`, `line` (null for rules created by management).
"""

from collections.abc import Generator

from sluice.router.policy.question import PolicyQuestion, QuestionError
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, OK, Response, StatusError


def explain_policy(request: Request, context: AgentContext) -> Generator[None, None, Response]:
    """Explain the policy. Other events are handled between two findings. Raises StatusError."""
    try:
        question = PolicyQuestion.of(request.body_map())
        found = []
        for finding in question.answer(context.changes.configuration, context.core.policy.vhosts):
            found.append(finding.as_map())
            yield
    except QuestionError as error:
        raise StatusError(BAD_REQUEST, str(error)) from error
    return Response.of(OK, found)
