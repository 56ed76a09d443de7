"""Scripted neighbour: sends HELLO by itself, and all other control messages only when the test says so.

A scripted neighbour may also play routers behind it (`phantom`), whose control messages pass through it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.interop.network.net import CONVERGE, QUICK, Sluice
from tests.peer.management import Management
from tests.peer.router19 import control
from tests.peer.router19.control import Router19Control
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19
from tests.system.router import poll

SILENT = ("RA", "LSR", "LSU", "MAR", "MAU")
_instances = itertools.count(int(time.time()) + 1000)


class ControlSender:
    """Sender of one router's control messages, through a neighbour of the router under test."""

    def __init__(self, through: ScriptedRouter, router_id: str, instance: int) -> None:
        self.through = through
        self.id = router_id
        self.instance = instance

    @property
    def trace(self) -> list[str]:
        """Routers that the messages have passed."""
        return [self.id] if self.through.id == self.id else [self.id, self.through.id]

    def ra_now(self, ls_seq: int) -> None:
        """Send RA. Call in the thread of the 1.19 routers."""
        octets = control.router_advertisement(self.id, self.instance, ls_seq, 0, trace=self.trace)
        self.through.router.emit(octets, self.through.connection)

    def lsu_now(self, ls_seq: int, peers: dict[str, int]) -> None:
        """Send LSU. Call in the thread of the 1.19 routers."""
        to = self.through.sluice.name
        octets = control.link_state_update(self.id, to, self.instance, ls_seq, peers, trace=self.trace)
        self.through.router.emit(octets, self.through.connection)

    def send(self, octets: bytes) -> None:
        """Send any octets on the control link."""
        self.through.router.send_control(octets, self.through.connection)

    def ra(self, ls_seq: int, mobile_seq: int = 0, instance: int | None = None) -> None:
        """Send RA."""
        mine = self.instance if instance is None else instance
        self.send(control.router_advertisement(self.id, mine, ls_seq, mobile_seq, trace=self.trace))

    def lsr(self) -> None:
        """Send LSR."""
        self.send(control.link_state_request(self.id, self.through.sluice.name, trace=self.trace))

    def lsu(self, ls_seq: int, peers: dict[str, int], instance: int | None = None) -> None:
        """Send LSU."""
        mine = self.instance if instance is None else instance
        to = self.through.sluice.name
        self.send(control.link_state_update(self.id, to, mine, ls_seq, peers, trace=self.trace))

    def mar(self, have_seq: int) -> None:
        """Send MAR."""
        self.send(control.mobile_request(self.id, self.through.sluice.name, have_seq, trace=self.trace))

    def mau(self, mobile_seq: int, add: Sequence[tuple[str, int]] = (), delete: Sequence[str] = ()) -> None:
        """Send a differential MAU."""
        self.send(control.mobile_update(self.id, mobile_seq, add, delete, trace=self.trace))

    def absolute(self, mobile_seq: int, keys: Sequence[tuple[str, int]]) -> None:
        """Send an absolute MAU."""
        self.send(control.mobile_state(self.id, self.through.sluice.name, mobile_seq, keys, trace=self.trace))


class ScriptedRouter(ControlSender):
    """Neighbour of 1.19. With `sees`, its HELLO lists the router under test from the start."""

    def __init__(
        self, router19_loop: Router19Loop, sluice: Sluice, name: str, cost: int = 1, sees: bool = True
    ) -> None:
        super().__init__(self, name, next(_instances))
        self.world = router19_loop
        self.sluice = sluice
        self.router = Router19(router19_loop, name, QUICK, instance=self.instance, mute=SILENT)
        if sees:
            self.router.engine.heard[sluice.name] = float("inf")
        self.connection = self.router.connect(sluice.ports["ir"], cost)
        self.phantoms: dict[str, list[Router19Control]] = {}

    def phantom(self, name: str) -> ControlSender:
        """Create a router behind this one. `phantoms` collects the control messages that S sends to it."""
        self.phantoms[name] = []
        self.router.phantoms[name] = self.phantoms[name].append
        return ControlSender(self, name, next(_instances))

    def received(self, opcode: str, **where: Any) -> list[Router19Control]:
        """Return the control messages of S received by this neighbour."""
        return self.router.control(opcode, self.sluice.name, **where)

    def wait(self, opcode: str, more_than: int = 0, timeout: float = CONVERGE, **where: Any) -> Router19Control:
        """Wait for more than `more_than` messages of an opcode; return the last."""
        self.world.wait(
            lambda: len(self.received(opcode, **where)) > more_than,
            f"{opcode} {where} at {self.id}, more than {more_than}",
            timeout,
        )
        return self.received(opcode, **where)[-1]

    def wait_phantom(self, name: str, opcode: str, more_than: int = 0, timeout: float = CONVERGE) -> Router19Control:
        """Wait until S has sent more than `more_than` messages of an opcode to a phantom; return the last."""

        def found() -> list[Router19Control]:
            return [one for one in self.phantoms[name] if one.opcode == opcode]

        self.world.wait(lambda: len(found()) > more_than, f"{opcode} for {name}", timeout)
        return found()[-1]

    def wait_adjacent(self) -> ScriptedRouter:
        """Wait for the LSR that S sends at the tick after it has made this router its neighbour."""
        self.wait("LSR")
        return self

    def wait_mutual(self) -> ScriptedRouter:
        """Wait until S is also a neighbour of this router, which then accepts messages that passed several hops."""
        self.wait_adjacent()
        self.router.wait_reach(self.sluice.name)
        return self

    def stop(self) -> None:
        """Drop the connection."""
        self.router.stop()


class ScriptedRouterView:
    """Network knowledge of the router under test, read by management on one connection."""

    def __init__(self, sluice: Sluice) -> None:
        self.sluice = sluice
        self.management: Management = sluice.management()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the rows of router.node by id."""
        return {row["id"]: row for row in self.management.query("router.node")}

    def neighbours(self) -> list[str]:
        """Return the neighbours of the router under test."""
        found: list[str] = self.nodes()[self.sluice.name]["linkState"]
        return found

    def peers_of(self, name: str) -> list[str] | None:
        """Return the link state of a router, None if the router is unknown."""
        row = self.nodes().get(name)
        return None if row is None else sorted(row["linkState"])

    def wait_node(self, name: str, condition: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Wait until a router is known and its row satisfies `condition`; return the row."""

        def fitting() -> dict[str, Any] | None:
            row = self.nodes().get(name)
            return row if row is not None and condition(row) else None

        try:
            row: dict[str, Any] = poll(fitting, what, CONVERGE)
        except AssertionError as error:
            raise AssertionError(f"{error}; its row: {self.nodes().get(name)}") from None
        return row

    def wait_gone(self, name: str, timeout: float = CONVERGE) -> None:
        """Wait until a router is forgotten."""
        poll(lambda: name not in self.nodes(), f"{name} is forgotten", timeout)

    def wait_neighbour(self, name: str) -> None:
        """Wait until a router is a neighbour."""
        poll(lambda: name in self.neighbours(), f"{name} is a neighbour", CONVERGE)

    def wait_no_neighbour(self, name: str, timeout: float = CONVERGE) -> None:
        """Wait until a router is not a neighbour."""
        poll(lambda: name not in self.neighbours(), f"{name} is no neighbour", timeout)

    def remotes(self, key: str) -> list[str]:
        """Return the routers known to have destinations for an address key."""
        found = self.management.query("router.address", "key", "remoteHostRouters")
        rows = [row for row in found if row["key"] == key]
        return sorted(rows[0]["remoteHostRouters"] or []) if rows else []

    def wait_remotes(self, key: str, *names: str) -> None:
        """Wait until exactly these routers are known to have destinations for an address key."""
        try:
            poll(lambda: self.remotes(key) == sorted(names), f"{key} has destinations at {names}", CONVERGE)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {self.remotes(key)}") from None
