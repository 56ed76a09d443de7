"""The decision about an open: whether a connection may go on, and within which limits.

The worker reads nothing more of a connection until it has the answer, so a decision may take its time. Whoever asks
management after the answer finds the connection there, on whichever worker it is.
"""

from typing import NamedTuple, Protocol

from router.control.messages import Limits, Opened
from supervisor.connections.connections import Connection


class Admit(NamedTuple):
    """Yes. limits: None where the listener's apply. vhost: the name of the vhost that the rules are of."""

    limits: Limits | None = None
    vhost: str | None = None


class Deny(NamedTuple):
    """No: the connection gets an open, and a close with this error. by_policy: the policy has reported why."""

    condition: str
    description: str
    by_policy: bool = False


Decision = Admit | Deny


class Admission(Protocol):
    """Who decides."""

    def decide(self, connection: Connection, message: Opened) -> Decision | None:
        """The decision, or None: `Connections.decided` is called with it later. `connection` bears what its open says.
        A connection that ends meanwhile is announced by `connection_closed`.
        """
        ...
