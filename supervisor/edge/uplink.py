"""Uplinks of an edge router: the connections to interior routers that are in use (inter-router.md 14.1, 14.2;
brokers-and-edge.md 9). No I/O here.

As in 1.19, one connection is the active uplink: the first that opened, and after its loss the oldest other one. With
`uplinks: all`, the edge router attaches its links at all Sluice interior routers; one of them is the bearer (`Bearer`).
"""

from typing import Final

from sluice.router.config.entities import RouterConfig
from sluice.router.config.roles import EDGE
from sluice.router.control.messages import Opened
from sluice.router.log import INFO, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.attachment import Attachment
from sluice.supervisor.edge.attachments import Attachments
from sluice.supervisor.edge.bearer import Bearer
from sluice.supervisor.edge.bundles import supports_bundles, supports_several_uplinks
from sluice.supervisor.edge.first_credit import FirstCredit
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem


class Uplink(Subsystem):
    """All connections of an edge router to interior routers. Owner: the core. brokers-and-edge.md 9.1, 9.7."""

    def __init__(self, router: RouterConfig, attachments: Attachments, journal: Journal, log: ProcessLog) -> None:
        self.required: Final = not router.ready_without_uplink  # the router is not ready without an uplink
        self.addresses: Final = attachments.addresses
        self.lookups: Final = attachments.lookups
        self.absence: Final = attachments.absence
        self.first_credit: Final = FirstCredit(self._hears)
        self._attachments: Final = attachments
        self._bearer: Final = Bearer(journal, self._bears)
        self._log = log
        self._open: dict[int, RegisteredConnection] = {}  # connections to interior routers, in order of opening
        self.activated = self.lost = 0  # counts of connections that became an uplink, and of uplinks that were lost

    # State

    @property
    def attachment(self) -> Attachment | None:
        """Bearer: the interior router that knows the consumers of this router and receives its producers' messages."""
        return self._bearer.now

    @property
    def connection(self) -> RegisteredConnection | None:
        """Active uplink."""
        return None if self.attachment is None else self.attachment.connection

    def states(self) -> dict[str, int]:
        """Return the numbers of connections to interior routers that are uplinks ("active") and that wait."""
        active = sum(len(each.proxies.members) for each in self._attachments.present)
        return {"active": active, "waiting": len(self._open) - active}

    def uses(self, connection: RegisteredConnection) -> bool:
        """Return whether a connection is an uplink, or belongs to the bundle of an uplink."""
        return self._attachments.of(connection) is not None

    def announced(self) -> tuple[int, int]:
        """Return the numbers of addresses announced for local consumers and for local producers."""
        attachment = self.attachment
        return (0, 0) if attachment is None else (len(attachment.proxies.receivers), len(attachment.proxies.senders))

    def reachable(self, key: str) -> bool | None:
        """Return the interior router's last report whether an address has destinations; None without a report."""
        return None if self.attachment is None else self.attachment.proxies.reachable(key)

    def _hears(self, record: AddressRecord) -> bool:
        """Return False if the interior router may still report whether an address has destinations."""
        return self.attachment is None or self.attachment.proxies.hears(record)

    def worker_lost(self, worker: WorkerProcess) -> None:
        self.absence.worker_lost(worker)

    # Connections

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        if connection.origin.role != EDGE or connection.initiator is None:
            return
        self._open[connection.number] = connection
        joined = next((each for each in self._attachments.present if _bundled(each, connection)), None)
        if joined is not None:
            first = joined.connection
            number = 0 if first is None else first.number
            self._write(f"Edge connection (id={connection.number}) joins the bundle of id={number}")
            joined.proxies.use(connection)
        elif self._wanted(connection):
            self._write(f"Edge connection (id={connection.number}) to interior established")
            self._attach(connection, gather=True)

    def _wanted(self, connection: RegisteredConnection) -> bool:
        """Return whether an interior router becomes an uplink: as the first one, or as one of several."""
        present = self._attachments.present
        if not present:
            return True
        several = self._attachments.several and supports_several_uplinks(connection)
        return several and all(each.shares for each in present)

    def _attach(self, connection: RegisteredConnection, *, gather: bool = False) -> None:
        attachment = self._attachments.add(connection, self.first_credit, gather=gather)
        self._activate(attachment, connection)
        self._bearer.step(self._attachments.present)

    def _activate(self, attachment: Attachment, connection: RegisteredConnection) -> None:
        attachment.activate(connection)
        self.activated += 1
        for member in [connection, *(each for each in self._open.values() if _bundled(attachment, each))]:
            if member.number not in attachment.proxies.members:
                attachment.proxies.use(member)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        attachment = self._attachments.of(connection)
        if self._open.pop(connection.number, None) is None:
            self.lookups.forget_connection(connection.number)
            return
        if attachment is None:
            return
        attachment.proxies.lost(connection)
        if attachment.connection is connection:
            self._lose(attachment, connection)

    def _lose(self, attachment: Attachment, connection: RegisteredConnection) -> None:
        """Replace the lost active connection of an interior router."""
        self.lost += 1
        bears = attachment is self.attachment
        attachment.lost()
        lost = f"Edge connection (id={connection.number}) to interior lost"
        member = next(iter(attachment.proxies.members.values()), None)
        if member is None:
            # Take a waiting connection to the same interior router.
            member = next((each for each in self._open.values() if _bundled(attachment, each)), None)
        if member is not None:
            self._write(f"{lost}, activating alternate id={member.number}")
            self._activate(attachment, member)
            attachment.send(attachment.use)
        else:
            self._attachments.remove(attachment)
            self._bearer.lost(attachment, self._attachments.present)
            self._replace(lost, bears)
        if bears:
            self.lookups.lost()
            self.first_credit.give_up()
            if self.attachment is not None:
                self.attachment.services_ready()

    def _replace(self, lost: str, bears: bool) -> None:
        """Replace a lost interior router by one in use, or by waiting connections."""
        there = self.connection
        if there is not None:
            self._write(f"{lost}, activating alternate id={there.number}" if bears else lost)
            return
        several = self._attachments.several
        alternate = min(
            self._open.values(), key=lambda each: not (several and supports_several_uplinks(each)), default=None
        )
        if alternate is None:
            self._write(f"{lost}, no alternate connection available")
            return
        self._write(f"{lost}, activating alternate id={alternate.number}")
        self._attach(alternate)
        for other in self._open.values():
            if not self.uses(other) and self._wanted(other):
                self._attach(other)

    def _bears(self, attachment: Attachment) -> None:
        """Log the change of the bearer."""
        if attachment.shares and attachment.connection is not None:
            self._write(f"Edge connection (id={attachment.connection.number}) now carries the traffic of this router")

    def _write(self, text: str) -> None:
        self._log.write(INFO, "ROUTER_CORE", text)

    # Each wake

    def step(self) -> None:
        self._attachments.step()
        if self._attachments.several:
            self._bearer.step(self._attachments.present)
        self.lookups.step()
        self.first_credit.step()

    @property
    def deadline(self) -> float:
        own = (self.lookups.deadline, self.first_credit.deadline, self._bearer.deadline)
        return min(*own, self._attachments.deadline)


def _bundled(attachment: Attachment, connection: RegisteredConnection) -> bool:
    """Return whether a connection leads to the same interior router, and that router supports bundles."""
    if attachment.container != (connection.container or "") or not supports_bundles(connection):
        return False
    return all(supports_bundles(each) for each in attachment.proxies.members.values())
