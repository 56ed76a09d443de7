"""Availability of connectors, auto links and link routes, and the log lines about its changes.

Does no input or output.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from sluice.router.config.entities import ConnectorConfig
from sluice.router.log import NOTICE, WARNING, ProcessLog
from sluice.supervisor.runtime.waker import Cancellable

MAX_NAMES: Final = 5  # names in one line about several objects that changed together
# Time in seconds for which an object must stay up before the log says so. RabbitMQ accepts one link of a session and
# then ends the session because of another one, again and again: that is one outage, not many.
STEADY_SECONDS: Final = 5.0

# Call a function after a number of seconds.
Later = Callable[[float, Callable[[], None]], Cancellable]


class Availability:
    """State of one object, up or down, with its reason. Owner: the object's subsystem."""

    __slots__ = ("_clock", "_since", "attempts", "detail", "error", "name", "reported_at", "unreported", "up")

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic, detail: str = "") -> None:
        """Create the state down, without a reason. name, detail: for `title`. clock: return seconds."""
        self._clock = clock
        self._since = clock()
        self.name = name
        self.detail = detail  # description of an object whose name is generated; may be empty
        self.up = False
        self.attempts = 0  # number of attempts since the object was created
        self.error = ""  # reason why it is down; empty while it is up, and before the first failure
        # Time of the log line that it is down; None: the log has no such line, or a later one that it is up again.
        self.reported_at: float | None = None
        self.unreported = False  # the object went down, and the log has no line about that yet

    @property
    def title(self) -> str:
        """Return the quoted name with the detail, for the log and for health checks."""
        return f"'{self.name}' ({self.detail})" if self.detail else f"'{self.name}'"

    @property
    def seconds(self) -> float:
        """Time in seconds since the last change, or since the creation."""
        return self._clock() - self._since

    def change(self, up: bool, error: str) -> None:
        """Set the state. A new reason for the same state does not count as a change."""
        if up is not self.up:
            self.up = up
            self._since = self._clock()
        self.error = error
        self.unreported = False

    def report(self) -> None:
        """Note that the log has a line that the object is down."""
        self.reported_at = self._clock()

    def outage(self) -> float:
        """Return the seconds from the log line that the object is down to the last change, which made it up."""
        return 0.0 if self.reported_at is None else self._since - self.reported_at


# All connectors with their state.
ConnectorStates = Sequence[tuple[ConnectorConfig, Availability]]


class AvailabilityLog:
    """Log lines about objects of one kind: one line for each change, not for each attempt. Owner: their subsystem.

    Objects that lose a connection together have one line together, and another one when all of them are up again.
    """

    __slots__ = ("_fallen", "_kind", "_later", "_log", "_module", "_risen", "_unsteady")

    def __init__(self, kind: str, module: str, later: Later, log: ProcessLog) -> None:
        """kind: word for one object, as at the start of a sentence."""
        self._kind = kind
        self._module = module
        self._later = later
        self._log = log
        self._unsteady: dict[Availability, Cancellable] = {}  # up for less than STEADY_SECONDS after an outage
        # Objects that went down together and are still down, and those of them that are up again, with the seconds of
        # their outage; by the text that says where they are attached.
        self._fallen: dict[str, dict[Availability, None]] = {}
        self._risen: dict[str, dict[Availability, float]] = {}

    def rise(self, one: Availability, where: str = "") -> None:
        """Note that an object is up. where: text about its place in the log, such as `connection broker`."""
        if one.up:
            return
        one.change(True, "")
        if one.reported_at is not None:
            self._unsteady[one] = self._later(STEADY_SECONDS, lambda: self._is_steady(one, where))

    def fall(self, one: Availability, reason: str, where: str = "") -> None:
        """Note that an object is down, or that it is still down for another reason."""
        self._end_wait(one)
        one.change(False, reason)
        fallen = self._fallen.get(where, {})
        if one.reported_at is None or one in fallen:
            self._log_fallen(where, [one], reason)
            one.report()
        if one in fallen:
            del fallen[one]
            self._end_group(where)

    def falter(self, one: Availability, reason: str) -> None:
        """Note that an object is down for a reason that may be another object's. The next change decides on a line."""
        self._end_wait(one)
        one.change(False, reason)
        one.unreported = True

    def fall_together(self, objects: Collection[Availability], reason: str, where: str) -> None:
        """Note that objects have lost their connection. Those that were down already have a line in the log."""
        lost = [one for one in objects if (one.up or one.unreported) and one.reported_at is None]
        for one in objects:
            self._end_wait(one)
            one.change(False, reason)
        if lost:
            self._log_fallen(where, lost, reason)
            fallen = self._fallen.setdefault(where, {})
            for one in lost:
                one.report()
                fallen[one] = None

    def forget(self, one: Availability, where: str = "") -> None:
        """Forget a deleted object."""
        self._end_wait(one)
        fallen = self._fallen.get(where)
        if fallen is not None and one in fallen:
            del fallen[one]
            self._end_group(where)

    def _end_wait(self, one: Availability) -> None:
        timer = self._unsteady.pop(one, None)
        if timer is not None:
            timer.cancel()

    def _is_steady(self, one: Availability, where: str) -> None:
        """Log that an object is up again, now that it has been up for some time."""
        del self._unsteady[one]
        outage = one.outage()
        one.reported_at = None
        fallen = self._fallen.get(where)
        if fallen is not None and one in fallen:
            del fallen[one]
            self._risen.setdefault(where, {})[one] = outage
            self._end_group(where)
        else:
            self._log_risen(where, [one], outage)

    def _end_group(self, where: str) -> None:
        """Log that objects are up again, if none of those that went down with them is still down."""
        if self._fallen[where]:
            return
        del self._fallen[where]
        risen = self._risen.pop(where, {})
        if risen:
            self._log_risen(where, list(risen), max(risen.values()))

    def _log_fallen(self, where: str, objects: list[Availability], reason: str) -> None:
        self._log.write(WARNING, self._module, f"{self._describe(where, objects)} down: {reason}")

    def _log_risen(self, where: str, objects: list[Availability], seconds: float) -> None:
        text = f"{self._describe(where, objects)} up again after {max(1, round(seconds))} s"
        self._log.write(NOTICE, self._module, text)

    def _describe(self, where: str, objects: list[Availability]) -> str:
        named = ", ".join(one.title for one in objects[:MAX_NAMES])
        if len(objects) > MAX_NAMES:
            named += f" and {len(objects) - MAX_NAMES} more"
        place = f" on {where}" if where else ""
        return f"{self._kind} {named}{place} is" if len(objects) == 1 else f"{self._kind}s {named}{place} are"
