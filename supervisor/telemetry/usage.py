"""Use of the router by user and by vhost: connections, links, deliveries and octets, for metrics.

Counters of present links are read from shared memory for each page of metrics; those of a link that ends are read once
more when the supervisor drops the link. A delivery costs nothing.

Users and vhosts have a row each up to a limit; `other` stands for all beyond it. A connection counts in the same rows
from its open to its end. A row without connections may be replaced by a row of another user, whose counters start at 0.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Final

from sluice.router.config.entities import Configuration
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.control.messages import Opened
from sluice.router.ring.region import Region
from sluice.router.stalls.reason import StallReason
from sluice.router.stats.sums import TRAFFIC_SUMS, add_traffic, traffic_of
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.subsystem import Subsystem

ANONYMOUS: Final = "anonymous"
OTHER: Final = "other"
# Time for which counters of an ended link stay readable, in ns: longer than a message of its worker takes.
KEEP_LINKS_NS: Final = 1_000_000_000
DIRECTIONS: Final = ("in", "out")  # by RegisteredLink.consumer; in: the client sends
REASONS: Final = max(StallReason) + 1
_SIZE: Final = len(TRAFFIC_SUMS) * len(DIRECTIONS)


class UsageRow:
    """Counters of a user or vhost. Owner: UsageBook.

    links: present links, by DIRECTIONS, as of the last page. traffic: TRAFFIC_SUMS for each of DIRECTIONS, as of the
    last page. ended: the same for links that have ended.
    """

    __slots__ = ("connections", "ended", "links", "refused", "traffic")

    def __init__(self) -> None:
        self.connections = 0
        self.refused = 0
        self.links = [0] * len(DIRECTIONS)
        self.traffic = [0] * _SIZE
        self.ended = [0] * _SIZE


class UsageBook:
    """Rows by name, at most `most`, and the row of all other names. Owner: Usage."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.other: Final = UsageRow()
        self._rows: dict[str, UsageRow] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()  # names of rows without connections, idle for longest first

    def enter(self, name: str) -> UsageRow:
        """Count a connection in the row of a name, or in `other` if all rows have connections."""
        row = self._rows.get(name)
        if row is None:
            row = self._new(name, replace=True)
        if row is not self.other:
            self._idle.pop(name, None)
        row.connections += 1
        return row

    def leave(self, name: str, row: UsageRow) -> None:
        """Count off a connection that has ended."""
        row.connections -= 1
        if row is not self.other and not row.connections:
            self._idle[name] = None
            while len(self._rows) > self.most and self._idle:
                self._remove_idle()

    def refuse(self, name: str, count: int) -> None:
        """Count refusals. A name without connections replaces no other one."""
        row = self._rows.get(name)
        if row is None:
            row = self._new(name, replace=False)
        row.refused += count

    def _new(self, name: str, *, replace: bool) -> UsageRow:
        if name == OTHER or not self.most:
            return self.other
        if len(self._rows) >= self.most:
            if not replace or not self._idle:
                return self.other
            self._remove_idle()
        row = self._rows[name] = UsageRow()
        self._idle[name] = None
        return row

    def _remove_idle(self) -> None:
        name, _ = self._idle.popitem(last=False)
        del self._rows[name]

    def rows(self) -> Iterator[tuple[str, UsageRow]]:
        """Yield all rows with their names; the row of all other names is the last one."""
        yield from self._rows.items()
        yield OTHER, self.other


class _Account:
    """Rows of an open connection. vhost: None without a policy."""

    __slots__ = ("rows", "user", "vhost")

    def __init__(self, user: str, vhost: str | None, rows: tuple[UsageRow, ...]) -> None:
        self.user = user
        self.vhost = vhost
        self.rows = rows  # of the user and, if there is one, of the vhost


class Usage(Subsystem):
    """Use of the router by clients. Owner: supervisor."""

    def __init__(self, configuration: Configuration, region: Region, vhost_of: Callable[[int], str | None]) -> None:
        """vhost_of: return the vhost whose rules apply to the connection with a number, or None."""
        most = configuration.router.metrics_users
        self.users: Final = UsageBook(most)
        self.vhosts: Final = UsageBook(most)
        self._region: Final = region
        self._vhost_of: Final = vhost_of
        self._accounts: dict[int, _Account] = {}  # by connection number
        region.keep_links(KEEP_LINKS_NS)

    def refused(self, user: str | None, count: int) -> None:
        """Count refusals by the policy."""
        self.users.refuse(user or ANONYMOUS, count)

    def rows_of(self, connection: RegisteredConnection) -> tuple[UsageRow, ...]:
        """Return the rows in which a connection counts; none for connections that are no clients' or not open."""
        account = self._accounts.get(connection.number)
        return () if account is None else account.rows

    # Subsystem

    def commit(self, change: ConfigurationChange) -> None:
        self.users.most = self.vhosts.most = change.new.router.metrics_users

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        if connection.initiator is not None or connection.origin.role in BETWEEN_ROUTERS:
            return
        user, vhost = connection.user or ANONYMOUS, self._vhost_of(connection.number)
        rows: tuple[UsageRow, ...] = (self.users.enter(user),)
        if vhost is not None:
            rows = (*rows, self.vhosts.enter(vhost))
        self._accounts[connection.number] = _Account(user, vhost, rows)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        account = self._accounts.pop(connection.number, None)
        if account is not None:
            self.users.leave(account.user, account.rows[0])
            if account.vhost is not None:
                self.vhosts.leave(account.vhost, account.rows[1])

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        account = self._accounts.get(link.connection.number)
        if account is None:
            return
        traffic = traffic_of(self._region, worker.index, link.slot, link.generation)
        if traffic is not None:
            at = link.consumer * len(TRAFFIC_SUMS)
            for row in account.rows:
                row.ended[at] += traffic[0]
                row.ended[at + 1] += traffic[1]


class UsageSums:
    """Sums over all present links, by row and by stall reason. Owner: one page of metrics."""

    def __init__(self, usage: Usage, region: Region) -> None:
        self.stalls: Final = array("Q", bytes(8 * REASONS))  # stalled links by StallReason
        self._usage: Final = usage
        self._region: Final = region
        self._groups: dict[tuple[UsageRow, ...], int] = {}  # number of the first group by rows
        self._sums = array("Q")
        self._links: list[int] = []  # by group
        self._slots, self._generations, self._numbers = array("I"), array("I"), array("I")
        # A link that ends during the collection counts as present if it was read, or on the next page.
        self._ended: Final = {row: list(row.ended) for book in (usage.users, usage.vhosts) for _, row in book.rows()}

    def take(self, connection: RegisteredConnection, links: Collection[RegisteredLink]) -> None:
        """Collect links of a connection. `add` counts them."""
        first = self._group(self._usage.rows_of(connection))
        for link in links:
            group = first + link.consumer
            self._slots.append(link.slot)
            self._generations.append(link.generation)
            self._numbers.append(group)
            self._links[group] += 1

    def _group(self, rows: tuple[UsageRow, ...]) -> int:
        number = self._groups.get(rows)
        if number is None:
            number = self._groups[rows] = len(self._links)
            self._links += [0] * len(DIRECTIONS)
            self._sums.extend([0] * _SIZE)
        return number

    def add(self, worker: int) -> None:
        """Count the collected links, which must all belong to this worker."""
        add_traffic(self._region, worker, self._slots, self._generations, self._numbers, self._sums, self.stalls)
        self._slots, self._generations, self._numbers = array("I"), array("I"), array("I")

    def finish(self) -> None:
        """Store links and traffic in all rows. Counters never fall."""
        links = {row: [0] * len(DIRECTIONS) for row in self._ended}
        traffic = self._ended
        for rows, first in self._groups.items():
            for row in rows:
                if row not in traffic:
                    continue  # created, or replaced, after the start of this page
                for direction in range(len(DIRECTIONS)):
                    links[row][direction] += self._links[first + direction]
                for number in range(_SIZE):
                    traffic[row][number] += self._sums[first * len(TRAFFIC_SUMS) + number]
        for row, sums in traffic.items():
            row.links = links[row]
            row.traffic = [max(before, present) for before, present in zip(row.traffic, sums, strict=True)]
