"""The engine of the protocol between interior routers: messages and time in, messages and changes out. No I/O.

How to drive it, one owner, one thread:

    engine = Engine(router_id, instance, Timers(), now)
    … link_up / link_down / receive / announce / withdraw, as things happen
    if engine.deadline() <= now: engine.tick(now)          # after every batch of inputs, and when the time has come
    … take_sends(), take_changes(), take_log()             # after each of the above

`now` is any monotonic clock in seconds; it never goes back. What has to happen at once (a path lost) makes `deadline()`
due at once: inputs that come together are dealt with together. A link is the control link pair of one inter-router
connection, by any number that is not used for another while it is up; data links of the connection share its fate.
"""

from collections.abc import Mapping

from supervisor.network.outputs import Change, LogLine, RouterRow, Send
from supervisor.network.timers import Limits, Timers


class Engine:
    """One router's part of the protocol. Owner: the supervisor's core."""

    def __init__(
        self, router_id: str, instance: int, timers: Timers, now: float, limits: Limits | None = None
    ) -> None:
        """instance: seconds since 1970 at the start of the process; another one than at the last start."""

    def link_up(self, link: int, cost: int, ours: bool, now: float) -> None:
        """The outgoing control link of an inter-router connection is attached; again: its cost has changed.

        ours: the other end is Sluice too (several connections to it are a bundle, it may know more than 128 routers).
        """

    def link_down(self, link: int, now: float) -> None:
        """The control link is detached or the connection lost. Unknown links are ignored."""

    def receive(self, link: int, octets: bytes, now: float) -> None:
        """A whole message from a control link, whatever its address: for us, or to be relayed (then in take_sends).

        Never raises for what a peer says: what cannot be understood is dropped and logged.
        """

    def announce(self, key: str, treatment: int, now: float) -> None:
        """This router has a destination for the key (class M, C, D, E, F or H; treatment 0 to 4) from now on."""

    def withdraw(self, key: str, now: float) -> None:
        """… and no longer. A key that was not announced is ignored."""

    def deadline(self) -> float:
        """When tick() is due; it may be in the past."""
        return 0.0

    def tick(self, now: float) -> None:
        """Do all that is due. Before deadline() it does nothing."""

    def take_sends(self) -> list[Send]:
        """Messages to send since the last call, in order."""
        return []

    def take_changes(self) -> list[Change]:
        """What has changed in the network since the last call, in order."""
        return []

    def take_log(self) -> list[LogLine]:
        """Lines to log since the last call."""
        return []

    def routers(self) -> list[RouterRow]:
        """This router, then all others by index."""
        return []

    def keys(self, index: int) -> Mapping[str, int | None]:
        """Keys of a known router with their treatments; do not change it."""
        return {}
