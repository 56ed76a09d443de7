"""A management client on a Peer: requests to `$management`, replies on a dynamic receiver."""

from __future__ import annotations

from typing import Any

from tests.peer import message
from tests.peer.peer import Peer, PeerTimeout

#: Prefix of the router's long type names.
PREFIX = "org.apache.qpid.dispatch."


#: Seconds in which an agent answers its first request.
PROBE = 3.0


class ManagementError(AssertionError):
    """The router answered a request with an error status."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description


class Management:
    """Synchronous management requests over `peer` (used for nothing else meanwhile)."""

    def __init__(self, peer: Peer, address: str = "$management") -> None:
        self.peer = peer
        self.replies = peer.receiver(dynamic=True, credit=200)
        self.sender = peer.sender(address)
        self._number = 0

    def answers(self) -> bool:
        """Whether an agent answers within PROBE seconds. To be asked first."""
        self.sender.send(self._request("QUERY", {"attributeNames": []}, 0, {"entityType": PREFIX + "router"}))
        try:
            self.replies.next(PROBE)
        except PeerTimeout:
            return False
        return True

    def _request(self, operation: str, body: Any, number: int, properties: dict[str, Any]) -> bytes:
        return (
            message.properties(reply_to=self.replies.address, correlation_id=number)
            + message.application_properties({"operation": operation, **properties})
            + message.value(body)
        )

    def call(self, operation: str, body: Any = None, **properties: Any) -> Any:
        """One request; gives the body of the answer. Raises ManagementError for a status of 300 or more."""
        self._number += 1
        if self._number % 100 == 0:
            self.replies.flow(200)
        payload = self._request(operation, {} if body is None else body, self._number, properties)
        self.sender.wait_credit()
        self.sender.send(payload)
        while True:
            answer = self.replies.next()
            found = message.section_of(answer.payload, message.PROPERTIES)
            if len(found) > 5 and found[5] == self._number:
                break
        status = message.section_of(answer.payload, message.APPLICATION_PROPERTIES)
        if status["statusCode"] >= 300:
            raise ManagementError(status["statusCode"], status["statusDescription"])
        return message.body(answer.payload)

    def query(self, kind: str, *attributes: str) -> list[dict[str, Any]]:
        """Rows of an entity type (short name, e.g. `router.link`, `connection`) as dicts."""
        answer = self.call("QUERY", {"attributeNames": list(attributes)}, entityType=PREFIX + kind)
        return [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]

    def one(self, kind: str, **where: Any) -> dict[str, Any]:
        """The only row whose columns equal `where`."""
        rows = [row for row in self.query(kind) if all(row.get(key) == value for key, value in where.items())]
        assert len(rows) == 1, f"{len(rows)} rows of {kind} with {where}"
        return rows[0]

    def create(self, kind: str, name: str, **attributes: Any) -> Any:
        """CREATE an entity."""
        return self.call("CREATE", attributes, type=PREFIX + kind, name=name)

    def delete(self, kind: str, name: str) -> Any:
        """DELETE an entity by name."""
        return self.call("DELETE", type=PREFIX + kind, name=name)

    def update(self, kind: str, identity: str, **attributes: Any) -> Any:
        """UPDATE an entity by identity."""
        return self.call("UPDATE", attributes, type=PREFIX + kind, identity=identity)
