"""Requests of this router to the management agents of other routers, on behalf of its clients."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sluice.supervisor.management.request import Request, encode_request
from sluice.supervisor.management.response import INTERNAL_ERROR, StatusError
from sluice.supervisor.runtime.waker import Waker

MOST_PATHS: Final = 16  # paths that are followed at a time
MOST_PATHS_OF_CLIENT: Final = 2  # for one connection


class RemoteAgents:
    """Unanswered requests to other agents, and the number of paths that are followed. Owner: the agent."""

    def __init__(self, waker: Waker, send: Callable[[str, bytes, int], bool]) -> None:
        """send: as in `Agent`."""
        self._waker = waker
        self._send = send
        self._pending: dict[str, Callable[[Request | None], None]] = {}  # by the text of the correlation-id
        self._paths: Counter[int | None] = Counter()  # by connection number

    @contextmanager
    def follow_path(self, connection: int | None) -> Iterator[None]:
        """Count a path that is followed for a client meanwhile. Raises StatusError if there are too many."""
        if self._paths[connection] >= MOST_PATHS_OF_CLIENT or self._paths.total() >= MOST_PATHS:
            text = f"At most {MOST_PATHS_OF_CLIENT} paths are followed at a time for a client, {MOST_PATHS} for all"
            raise StatusError(INTERNAL_ERROR, text)
        self._paths[connection] += 1
        try:
            yield
        finally:
            self._paths -= Counter((connection,))

    def ask(
        self, request: Request, to: str, reply_to: str, properties: Mapping[str, Any], seconds: float
    ) -> "asyncio.Future[Request | None] | None":
        """Send a request for the client of `request`. Returns None if there is no path to its address.

        The result of the future is the answer, which is not trusted, or None if none arrives in time.
        """
        correlation_id = secrets.token_hex()  # the reply address is known, so it must not be guessed
        if not self._send(to, encode_request(to, reply_to, correlation_id, properties), request.worker):
            return None
        answer = self._waker.loop.create_future()

        def end(message: Request | None = None) -> None:
            del self._pending[repr(correlation_id)]
            timer.cancel()
            answer.set_result(message)

        self._pending[repr(correlation_id)] = end
        timer = self._waker.later(seconds, end)
        return answer

    def answered(self, message: Request) -> bool:
        """Take a message if it is an answer to one of these requests; return whether it is."""
        end = self._pending.get(message.correlation_text()) if self._pending else None
        if end is not None:
            end(message)
        return end is not None
