"""EXPLAIN-POLICY: what the policy in force says to a connection and its links, and which line says so. Not in Dispatch.

The body is a map of what router.policy.question.Question has. The answer is a list of maps: `allowed`, `what`, `why`,
`file`, `line` (null where that was made by management).
"""

from collections.abc import Generator

from router.policy.question import Question, QuestionError
from supervisor.management.context import Context
from supervisor.management.request import Request
from supervisor.management.response import BAD_REQUEST, OK, Response, StatusError


def explain_policy(request: Request, context: Context) -> Generator[None, None, Response]:
    """Explain the policy; other events are handled between two findings. Raises StatusError."""
    try:
        question = Question.of(request.body_map())
        found = []
        for finding in question.answer(context.changes.configuration, context.core.policy.vhosts):
            found.append(finding.as_map())
            yield
    except QuestionError as error:
        raise StatusError(BAD_REQUEST, str(error)) from error
    return Response.of(OK, found)
