"""Course of a round: its parties on their sockets, from the first attach until nothing is left."""

from __future__ import annotations

import random
import selectors
import socket
from collections.abc import Callable
from typing import Any

from loadtests.liveness import check
from loadtests.liveness.consumer import ConsumerRole, InLink
from loadtests.liveness.draw import (
    AddressSpec,
    ConnectionSpec,
    ConsumerSpec,
    Incident,
    ProducerSpec,
    Scenario,
    SessionSpec,
)
from loadtests.liveness.ledger import Ledger, LedgerMessage
from loadtests.liveness.links import PartyLink, Role
from loadtests.liveness.loop import PartyLoop
from loadtests.liveness.neighbour import NAME as NEIGHBOUR
from loadtests.liveness.neighbour import NeighbourClients, NeighbourConsumer
from loadtests.liveness.party import PartyConnection
from loadtests.liveness.producer import ProducerRole
from loadtests.liveness.routers import RoutersUnderTest
from tests.peer import frames as peer_frames

#: Seconds for links to attach, and for link routes to become active.
SETTING_UP = 15.0
#: Upper bound in seconds of a round that makes progress.
LONGEST = 60.0
#: Seconds between checks of progress behind a neighbour.
NEIGHBOUR_TURN = 0.003
#: Faults after which a round is over.
MOST_FAULTS = 20


class ConnectorListener:
    """Listening socket of a broker that a connector connects to."""

    def __init__(self, round_: LivenessRound, connection: PartyConnection) -> None:
        self.round, self.connection = round_, connection
        self.sock = socket.socket()
        if connection.spec.receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, connection.spec.receive_buffer)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(8)
        self.sock.setblocking(False)
        self.port = int(self.sock.getsockname()[1])
        round_.loop.watch(self.sock, self, selectors.EVENT_READ)

    def readable(self) -> None:
        """Accept a connection."""
        try:
            sock, _address = self.sock.accept()
        except BlockingIOError:
            return
        if self.connection.sock is not None:
            sock.close()
            return
        self.connection.use(sock)

    def writable(self) -> None:
        """Do nothing: a listening socket is never written."""

    def close(self) -> None:
        """Stop accepting."""
        self.round.loop.watch(self.sock, self, 0)
        self.sock.close()


class LivenessRound:
    """Round in progress."""

    def __init__(self, scenario: Scenario, routers: RoutersUnderTest, patience: float) -> None:
        self.scenario = scenario
        self.routers = routers
        self.patience = patience
        self.loop = PartyLoop()
        self.order = random.Random(f"{scenario.seed}:order")
        self.ledger = Ledger()
        #: all parties are attached
        self.begun = False
        self.calm = False
        #: the round is over: parties leave
        self.ending = False
        self.faults: list[str] = []
        self.history: list[str] = []
        self.began = self.last = self.loop.now
        self.upset: set[AddressSpec] = set()
        #: addresses that a party has left, in order or not
        self.left: set[AddressSpec] = set()
        self.roles: dict[ProducerSpec | ConsumerSpec, Role] = {}
        self.connections: dict[ConnectionSpec, PartyConnection] = {}
        self.doors: dict[ConnectionSpec, ConnectorListener] = {}
        self.behind: NeighbourClients | None = None
        self._entities: list[tuple[int, str, str]] = []
        self._flaps: dict[str, Callable[[], None]] = {}
        for spec in scenario.connections:
            roles: dict[SessionSpec, list[Role]] = {}
            for session in spec.sessions:
                roles[session] = [self._role(link) for link in session.links]
            if spec.role != "behind":
                self.connections[spec] = PartyConnection(self, spec, roles)
            elif routers.neighbour is not None:
                self.behind = NeighbourClients(self, routers.neighbour, roles[spec.sessions[0]])

    def _role(self, spec: ProducerSpec | ConsumerSpec) -> Role:
        role = ProducerRole(self, spec) if isinstance(spec, ProducerSpec) else ConsumerRole(self, spec)
        self.roles[spec] = role
        return role

    # --- events of parties --------------------------------------------------------------------------------------------

    def log(self, text: str) -> None:
        """Add a line to the history."""
        self.history.append(f"{self.loop.now - self.began:8.3f}  {text}")

    def fault(self, text: str) -> None:
        """Report a fault."""
        if not self.faults or self.faults[-1] != text:
            self.faults.append(text)
            self.log(f"FAULT: {text}")

    def progress(self, role: Role | None = None) -> None:
        """Note progress, unless of a role that never behaves."""
        if role is None or not role.grudge:
            self.last = self.loop.now

    def arrived(self, message: LedgerMessage, link: InLink | NeighbourConsumer) -> None:
        """Record a complete message, and check it."""
        message.arrivals.append(link)
        if message.aborted:
            self.fault(f"{link}: {message} was aborted, and came")
        if message.address.text != link.role.address.text:
            self.fault(f"{link}: {message} came here")
        if message.arrivals.count(link) > 1 or (message.address.kind != "multicast" and len(message.arrivals) > 1):
            self.fault(f"{link}: {message} came again")
        check.in_order(self, message, link)

    def detached(self, link: PartyLink, error: Any) -> None:
        """Handle a detach by the router, which may be a fault."""
        found = peer_frames.error_of(error)
        self.log(f"{link} was detached: {found}")
        role = link.role
        if role.grudge or self.ending:
            return
        if role.address.kind in ("in", "out", "auto_in", "auto_out") and role.address in self.left:
            return
        if not link.up and role.address.kind in ("in", "out"):
            return  # refused: there is no broker, or none yet
        self.fault(f"{link} was detached: {found}")

    def unexpected(self, connection: PartyConnection, text: str) -> None:
        """Handle the end of a session or connection by the router, which may be a fault."""
        self.log(text)
        grudge = connection.spec.deaf or any(session.shut for session in connection.spec.sessions)
        if not grudge and not self.ending:
            self.fault(text)

    def disturbed(self, address: AddressSpec) -> None:
        """Note a lost consumer, or a connection lost without a close: messages in flight to the address may be lost."""
        if not self.ending:
            self.upset.add(address)
            self.left.add(address)

    def connection_gone(self, connection: PartyConnection) -> None:
        """Note progress: a socket was closed."""
        self.progress()

    def flapped(self, connection: PartyConnection) -> None:
        """Run the action that waits for the answer to an auto link created for a flap."""
        go = self._flaps.pop(connection.spec.name, None)
        if go is not None:
            go()

    # --- the course of a round ----------------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """Run the round. Return the faults."""
        self.routers.go_on()
        try:
            if self._set_up():
                self._storm()
                self._calm()
        finally:
            self._leave()
        return self.faults

    def abandon(self) -> None:
        """Close all sockets."""
        self.ending = True
        for connection in self.connections.values():
            connection.drop()
        for door in self.doors.values():
            door.close()
        self.loop.close()

    def _set_up(self) -> bool:
        """Connect brokers, then clients, and attach all links. Return False if that fails."""
        for spec, connection in self.connections.items():
            if spec.role == "visitor":
                connection.connect(self.routers.routers[spec.router].ports["brokers"])
            elif spec.role == "host":
                self.doors[spec] = ConnectorListener(self, connection)
        self._configure()
        if not self._until(
            lambda: all(c.opened for s, c in self.connections.items() if s.broker), "brokers are connected"
        ):
            return False
        if any(address.kind in ("in", "out") for address in self.scenario.addresses) and not self._until(
            self._routes_active, "link routes are active", 0.01
        ):
            return False
        for spec, connection in self.connections.items():
            if not spec.broker:
                connection.connect(self.routers.routers[spec.router].ports[spec.listener])
        self.log("everybody is connected")
        return (
            self._until(lambda: not check.not_attached(self), "all links are attached")
            and (not self.routers.hop or self._until(self._addresses_known, "routers know each other's addresses"))
            and self._neighbour_knows()
        )

    def _addresses_known(self) -> bool:
        """Return True if every router knows which others have consumers of an address."""
        wanted: dict[str, set[str]] = {}
        for spec, _session, link in self.scenario.links():
            if isinstance(link, ConsumerSpec) and link.address.kind not in ("in", "out"):
                name = NEIGHBOUR if spec.role == "behind" else "AB"[spec.router]
                wanted.setdefault(f"M0{link.address.text}", set()).add(name)
        for number, _router in enumerate(self.routers.routers):
            rows = {row["key"]: row["remoteHostRouters"] or () for row in self.routers.query(number, "router.address")}
            if any(not names - {"AB"[number]} <= set(rows.get(key, ())) for key, names in wanted.items()):
                return False
        return True

    def _neighbour_knows(self) -> bool:
        if self.behind is None:
            return True
        if not self._until(self.behind.known, "the neighbour knows all addresses"):
            return False
        self._look(self.behind)
        return True

    def _look(self, behind: NeighbourClients) -> None:
        if not self.ending:
            behind.turn()
            self.loop.after(NEIGHBOUR_TURN, lambda: self._look(behind))

    def _until(self, condition: Callable[[], Any], what: str, every: float = 0.005) -> bool:
        if self.loop.until(condition, SETTING_UP, every):
            return True
        self.fault(f"not within {SETTING_UP} s: {what}; {check.not_attached(self)}")
        return False

    def _configure(self) -> None:
        """Create connectors, link routes and auto links of this round."""
        for spec in self.scenario.connections:
            if not spec.broker:
                continue
            name = f"{spec.name}-{self.scenario.seed}"
            if spec.role == "host":
                self._create(
                    spec.router,
                    "connector",
                    name,
                    host="127.0.0.1",
                    port=str(self.doors[spec].port),
                    role="route-container",
                )
            where = {"connection": name} if spec.role == "host" else {"containerId": name}
            for kind in ("in", "out"):
                if any(a.broker is spec and a.kind == kind for a in self.scenario.addresses):
                    for router in range(len(self.routers.routers)):
                        # The other routers learn of the link route, even while there is no broker.
                        if router == spec.router:
                            self._create(
                                router,
                                "linkRoute",
                                f"{name}.{kind}",
                                prefix=f"{spec.name}{kind}",
                                direction=kind,
                                **where,
                            )
            for address in self.scenario.addresses:
                if address.broker is spec and address.kind.startswith("auto"):
                    self._create(
                        spec.router,
                        "autoLink",
                        f"{name}.{address.text}",
                        address=address.text,
                        direction=address.kind[5:],
                        phase=0,
                        **where,
                    )

    def _create(self, router: int, kind: str, name: str, **attributes: Any) -> None:
        self.routers.create(router, kind, name, **attributes)
        self._entities.append((router, kind, name))
        self.loop.turn(0)

    def _routes_active(self) -> bool:
        for number, _router in enumerate(self.routers.routers):
            rows = self.routers.query(number, "router.config.linkRoute")
            if not all(row["operStatus"] == "active" for row in rows):
                return False
        if len(self.routers.routers) > 1:
            mine = {f"{a.broker.name}{a.kind}" for a in self.scenario.addresses if a.broker and a.kind in ("in", "out")}
            for number, _router in enumerate(self.routers.routers):
                keys = [row["key"] for row in self.routers.query(number, "router.address")]
                if not all(any(key[:1] in "CD" and key[1:] == prefix for key in keys) for prefix in mine):
                    return False
        return True

    def _storm(self) -> None:
        """Let all parties act as drawn, with the drawn incidents."""
        start = self.loop.now
        self.begun = True
        for spec, connection in self.connections.items():
            connection.wants()
            if spec.deaf:
                connection.set_deaf(True)
            for session in connection.sessions.values():
                session.shut = session.spec.shut
        for incident in self.scenario.incidents:
            self.loop.after(max(0.0, start + incident.at - self.loop.now), lambda i=incident: self._happen(i))  # type: ignore[misc]
        self.log("the storm begins")
        self.loop.run(self.scenario.seconds)

    def _happen(self, incident: Incident) -> None:
        """Carry out an incident."""
        connection = self.connections[incident.connection]
        session = connection.current(incident.session) if incident.session is not None else None
        role = self.roles[incident.link] if incident.link is not None else None
        self.log(f"{incident.what}: {incident.connection.name}" + (f", {role.name} of {role.address}" if role else ""))
        if incident.what == "detach" and role is not None and role.link is not None:
            self.left.add(role.address)
            if isinstance(role, ConsumerRole):
                self.disturbed(role.address)
            role.away = incident.seconds
            role.link.detach(incident.closed or role.address.kind in ("in", "out"))
        elif incident.what == "end" and session is not None:
            self._disturb(connection, clean=True)
            session.end()
            self.loop.after(max(0.01, incident.seconds), lambda: self._begin_again(connection, session.spec))
        elif incident.what in ("drop", "close") and connection.sock is not None:
            self._disturb(connection, clean=incident.what == "close")
            if incident.what == "drop":
                connection.drop(incident.closed)
            else:
                connection.close()
            self.loop.after(max(0.01, incident.seconds), lambda: self._connect_again(connection))
        elif incident.what == "shut" and session is not None:
            session.shut = True
            self.loop.after(incident.seconds, session.open_window)
        elif incident.what == "deaf":
            connection.set_deaf(True)
            self.loop.after(incident.seconds, lambda: connection.set_deaf(False))
        elif incident.what == "flap":
            self._flap(incident)

    def _disturb(self, connection: PartyConnection, clean: bool) -> None:
        for roles in connection.roles.values():
            for role in roles:
                self.left.add(role.address)
                if isinstance(role, ConsumerRole) or (not clean and role.address.kind in ("in", "out", "auto_in")):
                    self.disturbed(role.address)

    def _begin_again(self, connection: PartyConnection, spec: SessionSpec) -> None:
        if connection.sock is not None and connection.current(spec) is None and not self.ending:
            connection.begin(spec)

    def _connect_again(self, connection: PartyConnection) -> None:
        if self.ending or connection.spec.role == "host":
            return
        if connection.sock is not None:
            self.loop.after(0.01, lambda: self._connect_again(connection))
            return
        router = self.routers.routers[connection.spec.router]
        connection.connect(router.ports["brokers" if connection.spec.broker else connection.spec.listener])

    def _flap(self, incident: Incident) -> None:
        """Create an auto link, and delete it after its container has answered."""
        spec = incident.connection
        name = f"{spec.name}-{self.scenario.seed}"
        address = f"balanced/s{self.scenario.seed}.flap"
        where = {"connection": name} if spec.role == "host" else {"containerId": name}
        agent = self.routers.agent(spec.router)

        def send(operation: str, **attributes: Any) -> None:
            given = {
                "operation": operation,
                "type": "org.apache.qpid.dispatch.router.config.autoLink",
                "name": f"{name}.flap",
            }
            agent.send(agent.request(given, attributes, correlation_id=f"flap {operation}"))

        def delete() -> None:
            self.log(f"the auto link of {spec.name} is attached; it is deleted")
            send("DELETE")

        if incident.closed:
            self._flaps[spec.name] = delete
        else:
            self.loop.after(incident.seconds, delete)
        send("CREATE", address=address, direction="out", **where)

    def _calm(self) -> None:
        """Let all parties behave, except those that never do, and wait until all work has completed."""
        self.calm = True
        self.log("from now on everybody behaves")
        self.progress()
        for spec, connection in self.connections.items():
            if not spec.deaf:
                connection.set_deaf(False)
            for session in list(connection.sessions.values()):
                if not session.spec.shut:
                    session.open_window()
                for link in list(session.links.values()):
                    if isinstance(link, InLink):
                        link.calm_down()
            connection.wants()
        missing = check.standing(self)
        while missing:
            self.loop.run(0.02)
            missing = check.standing(self)
            waited = self.loop.now - self.last
            over = waited > self.patience or self.loop.now - self.began > LONGEST or len(self.faults) > MOST_FAULTS
            if missing and over:
                self.fault(f"stands still for {waited:.1f} s: " + "; ".join(missing[:6]))
                self.history += [f"          {line}" for line in missing]
                check.describe(self)
                return
        if self.behind is not None and not self.behind.connected:
            self.fault("the router and its neighbour of 1.19 have lost their connection")
        self.log("all that was to come has come")
        self.faults += check.ledger(self)
        if self.scenario.kind != "grudge":
            self._rest("at rest")

    def _rest(self, when: str, links: bool = True) -> None:
        """Check that no router holds anything."""
        self.faults += self.routers.rest()
        end = self.loop.now + self.patience
        left = check.holding(self)
        while left and self.loop.now < end:
            self.loop.run(0.02)
            left = check.holding(self)
        if left:
            self.fault(f"{when}: {'; '.join(left[:6])}")
            check.describe(self)

    def _leave(self) -> None:
        """Let all parties leave, and check that nothing is left."""
        self.log("everybody leaves")
        self.ending = True
        clean = not self.faults
        for spec, connection in self.connections.items():
            how = random.Random(f"{self.scenario.seed}:{spec.name}:leave").choice(("close", "close", "drop", "reset"))
            if how == "close" and not spec.deaf:
                connection.close()
            else:
                connection.drop(how == "reset")
        for door in self.doors.values():
            door.close()
        if self.behind is not None:
            self.behind.leave()
        for router, kind, name in reversed(self._entities):
            self.routers.delete_any(router, kind, name)
        if clean:
            self.loop.until(lambda: all(c.sock is None for c in self.connections.values()), self.patience, 0.005)
        for spec, connection in self.connections.items():
            if connection.sock is not None and clean:
                self.fault(f"{spec.name}: our close was not answered")
            connection.drop()
        if clean and not self.faults:
            self._rest("after everybody left")
        else:
            self.faults += self.routers.rest()
        self.loop.close()
