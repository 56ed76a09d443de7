"""Profiles: attributes of listeners and connectors that hand-overs refer to. Does no input or output.

A profile never changes. When the attributes of a listener or connector change, a new profile is made for new
connections. The old profile is removed after its last connection has ended, so that no connection arrives at a worker
without its profile.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sluice.router.config.entities import ConnectorConfig, ListenerConfig
from sluice.router.control.ops import Op, ProfileGone, ProfileOp
from sluice.supervisor.configuration.ops import profile_op
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem


class _Profile:
    """Profile and the number of its connections. Owner: ListenerProfiles."""

    __slots__ = ("connections", "op", "retired")

    def __init__(self, op: ProfileOp) -> None:
        self.op = op
        self.connections = 0
        self.retired = False


class ListenerProfiles(Subsystem):
    """All profiles by key. Owner: the core."""

    def __init__(
        self, journal: Journal, listeners: Iterable[ListenerConfig], asks_for_sasl: Callable[[ListenerConfig], bool]
    ) -> None:
        """Create the profiles of the initial listeners, with the listeners' names as keys. asks_for_sasl:
        see Profile.
        """
        self._journal: Final = journal
        self._asks_for_sasl: Final = asks_for_sasl
        self._profiles: dict[str, _Profile] = {
            listener.name: _Profile(self._op(listener, listener.name)) for listener in listeners if listener.speaks_amqp
        }
        self._made = 0

    def snapshot_ops(self) -> list[Op]:
        return [known.op for known in self._profiles.values()]

    def _op(self, endpoint: ListenerConfig | ConnectorConfig, profile: str) -> ProfileOp:
        asks = isinstance(endpoint, ListenerConfig) and self._asks_for_sasl(endpoint)
        return profile_op(endpoint, profile, asks)

    def add(self, endpoint: ListenerConfig | ConnectorConfig) -> tuple[str, int]:
        """Create a profile. Returns its key, and the epoch that announces it."""
        self._made += 1
        profile = f"{endpoint.name} {self._made}"
        op = self._op(endpoint, profile)
        self._profiles[profile] = _Profile(op)
        return profile, self._journal.append(op)

    def retire(self, profile: str) -> None:
        """Retire a profile that no further connection will use."""
        self._profiles[profile].retired = True
        self._forget_unused(profile)

    def enter(self, profile: str) -> None:
        """Count a connection that uses the profile."""
        self._profiles[profile].connections += 1

    def leave(self, profile: str) -> None:
        """Count off a connection that has ended."""
        self._profiles[profile].connections -= 1
        self._forget_unused(profile)

    def _forget_unused(self, profile: str) -> None:
        known = self._profiles[profile]
        if known.retired and not known.connections:
            del self._profiles[profile]
            self._journal.append(ProfileGone(profile))
