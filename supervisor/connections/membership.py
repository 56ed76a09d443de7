"""Admission of other routers to the network, by `allowedRouters` of a listener or connector."""

from collections.abc import Callable
from typing import Final

from sluice.router.config.allowed_routers import admits
from sluice.router.control.messages import Opened
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.connections.admission import Deny
from sluice.supervisor.connections.connections import RegisteredConnection

ROUTER_NOT_ALLOWED: Final = Deny("amqp:unauthorized-access", "allowedRouters does not let this router join")


class Membership:
    """Check of opens against `allowedRouters`. Owner: the open decider."""

    def __init__(self, peer_of: Callable[[RegisteredConnection, Opened], str | None], log: ProcessLog) -> None:
        """Create the check. peer_of: return the identity of the peer by its login or certificate."""
        self._peer_of: Final = peer_of
        self._log: Final = log

    def refusal(self, connection: RegisteredConnection, message: Opened) -> Deny | None:
        """Return the refusal of a peer that may not join; None if it may, or if `allowedRouters` is not set."""
        endpoint = connection.origin
        if not endpoint.allowed_routers:
            return None
        identity = self._peer_of(connection, message)
        if admits(endpoint.allowed_routers, identity, message.container):
            return None
        text = f"[C{connection.number}] Router '{message.container}' ({identity or 'no identity'}) from"
        text += f" {connection.peer} may not join: allowedRouters of {endpoint.type} '{endpoint.name}' does not name it"
        self._log.repeated(WARNING, "ROUTER_CORE", f"allowedRouters {endpoint.identity}", text)
        return ROUTER_NOT_ALLOWED
