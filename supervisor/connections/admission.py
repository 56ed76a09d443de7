"""Admission policy for opening connections.

A worker reads nothing more of a connection until its open is decided, so a decision may take its time. A client that
queries management after the answer finds its connection listed, whichever worker has it.
"""

from typing import NamedTuple, Protocol

from sluice.router.config.entities import ListenerConfig
from sluice.router.control.messages import Limits, Opened
from sluice.supervisor.connections.connections import RegisteredConnection


class Admit(NamedTuple):
    """Decision to admit a connection. limits: None: those of the listener. vhost: the vhost whose rules apply."""

    limits: Limits | None = None
    vhost: str | None = None


class Deny(NamedTuple):
    """Decision to deny a connection, which gets an open and a close with this error.

    by_policy: True: the policy has reported the denial to the audit log.
    """

    condition: str
    description: str
    by_policy: bool = False


Decision = Admit | Deny


class Admission(Protocol):
    """Interface of the policy that decides about opens."""

    def decide(self, connection: RegisteredConnection, message: Opened) -> Decision | None:
        """Decide about an open. The fields of `connection` have the values of the open already.

        Returns None if the decision takes time: then call `Connections.decided` later. If the connection ends
        meanwhile, `connection_closed` is called.
        """
        ...

    def admits_all(self, listener: ListenerConfig) -> bool:
        """Return True if all clients of a listener are admitted at present, without limits or rules of their own."""
        ...
