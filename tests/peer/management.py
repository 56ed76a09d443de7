"""Management client on a scripted peer: requests to `$management`, replies on a dynamic receiver."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.peer import message
from tests.peer.peer import AmqpPeer

#: Prefix of the router's long type names.
PREFIX = "org.apache.qpid.dispatch."


class ManagementStatusError(AssertionError):
    """Raised when the router answers a request with an error status."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description


class ManagementReply(NamedTuple):
    """Management answer: status, description, body and the whole message."""

    status: int
    description: str
    body: Any
    payload: bytes

    @classmethod
    def of(cls, payload: bytes) -> ManagementReply:
        """Return the answer in a message."""
        found = message.section_of(payload, message.APPLICATION_PROPERTIES)
        return cls(found["statusCode"], found["statusDescription"], message.body(payload), payload)

    @property
    def outcome(self) -> tuple[int, str]:
        """Status and description."""
        return int(self.status), str(self.description)


class Management:
    """Synchronous management requests over `peer`, which must not be used for anything else at the same time."""

    def __init__(self, peer: AmqpPeer, address: str = "$management") -> None:
        self.peer = peer
        self.replies = peer.receiver(dynamic=True, credit=200)
        self.sender = peer.sender(address)
        self._number = 0
        self._taken = 0

    def request(self, properties: dict[str, Any], body: Any = None, **fields: Any) -> bytes:
        """Return a request with these application properties. fields: of the properties section, besides the
        reply-to."""
        return (
            message.properties(**{"reply_to": self.replies.address, **fields})
            + message.application_properties(properties)
            + message.value(body)
        )

    def send(self, payload: bytes) -> None:
        """Send any message to the agent."""
        self.sender.wait_credit()
        self.sender.send(payload)

    def next(self) -> ManagementReply:
        """Return the next answer."""
        self._taken += 1
        if self._taken % 100 == 0:
            self.replies.flow(200)
        return ManagementReply.of(self.replies.next().payload)

    def exchange(self, payload: bytes) -> ManagementReply:
        """Send any message and return the next answer."""
        self.send(payload)
        return self.next()

    def ask(self, operation: str, body: Any = None, **properties: Any) -> ManagementReply:
        """Send a request. Return its answer, whatever the status."""
        self._number += 1
        given = {"operation": operation, **properties}
        self.send(self.request(given, {} if body is None else body, correlation_id=self._number))
        while True:
            answer = self.next()
            found = message.section_of(answer.payload, message.PROPERTIES)
            if len(found) > 5 and found[5] == self._number:
                return answer

    def call(self, operation: str, body: Any = None, **properties: Any) -> Any:
        """Send a request. Return the body of its answer. Raises ManagementStatusError for a status of 300 or more."""
        answer = self.ask(operation, body, **properties)
        if answer.status >= 300:
            raise ManagementStatusError(*answer.outcome)
        return answer.body

    def query(self, kind: str, *attributes: str) -> list[dict[str, Any]]:
        """Return the rows of an entity type (short name, e.g. `router.link`, `connection`) as dicts."""
        answer = self.call("QUERY", {"attributeNames": list(attributes)}, entityType=PREFIX + kind)
        return [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]

    def one(self, kind: str, **where: Any) -> dict[str, Any]:
        """Return the only row whose columns equal `where`."""
        rows = [row for row in self.query(kind) if all(row.get(key) == value for key, value in where.items())]
        assert len(rows) == 1, f"{len(rows)} rows of {kind} with {where}"
        return rows[0]

    def create(self, kind: str, name: str, **attributes: Any) -> Any:
        """Send CREATE for an entity."""
        return self.call("CREATE", attributes, type=PREFIX + kind, name=name)

    def delete(self, kind: str, name: str) -> Any:
        """Send DELETE for an entity, by name."""
        return self.call("DELETE", type=PREFIX + kind, name=name)

    def update(self, kind: str, identity: str, **attributes: Any) -> Any:
        """Send UPDATE for an entity, by identity."""
        return self.call("UPDATE", attributes, type=PREFIX + kind, identity=identity)
