"""Configuration of a router with bystanders, their start, their checks, and their restart after a fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.system.bystanders.bystanders import CLIENTS, CONTAINER, PUBLIC, TENANT, Bystanders
from tests.system.router import Router, Section, listener

#: Name of the listener for the neighbour router, and the id of that router.
NEIGHBOURS, NEIGHBOUR = "bystanders-net", "bystander-neighbour"
HOSTS = PUBLIC, TENANT
#: Peak memory of a worker, in octets: its configured bound and the process itself need less.
MEMORY_MOST = 640 << 20


def clients_sections(scope: str = "network") -> list[Section]:
    """Return the sections by which a router takes bystanders: a listener of their own, their addresses' prefixes."""
    shared = {"distribution": "balanced", "scope": scope}
    prefixes: list[Section] = [("address", {"prefix": f"{host}/{CONTAINER}", **shared}) for host in HOSTS]
    return [listener(CLIENTS, multiTenant=True), *prefixes]


def vhost(hostname: str) -> Section:
    """Return a vhost that permits what bystanders do, for routers with policy."""
    everything = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}
    return "vhost", {"hostname": hostname, "groups": {"all": everything}}


def neighbour_sections(port: int) -> list[Section]:
    """Return the configuration of the neighbour router, which connects to a listener on `port`."""
    place = {"name": "to-router", "role": "inter-router", "host": "127.0.0.1", "port": port}
    return [("router", {"mode": "interior", "id": NEIGHBOUR}), *clients_sections(), ("connector", place)]


def with_bystanders(sections: Iterable[Section], *, neighbour: bool = False) -> list[Section]:
    """Return the sections of a router that takes bystanders; with `neighbour` also a neighbour router of theirs."""
    given = list(sections)
    # Other routers of a test do not hear of these addresses.
    added = clients_sections("network" if neighbour else "local")
    if any(attributes.get("enableVhostPolicy") for name, attributes in given if name == "policy"):
        added += map(vhost, HOSTS)
    if neighbour and not any(name == "router" and "mode" in attributes for name, attributes in given):
        added += [("router", {"mode": "interior"}), listener(NEIGHBOURS, role="inter-router")]
    return [*given, *added]


def without_bystanders(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of type connection that are of other clients; `container` is among their attributes."""
    return [row for row in rows if not str(row["container"]).startswith(CONTAINER)]


def peak_memory(pid: int) -> int:
    """Return the most octets that a process has had in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


class BystanderSite:
    """The bystanders of a running router that was configured by `with_bystanders`.

    directory: for the files of the neighbour router, which starts where the router has a listener for it; memory_most:
    octets that each worker may ever have had.
    """

    def __init__(self, router: Router, directory: Path, memory_most: int = MEMORY_MOST) -> None:
        self._memory_most = memory_most
        self.router = router
        self._directory = directory
        self._neighbour: Router | None = None
        self._bystanders: Bystanders | None = None
        self.begin()

    def begin(self) -> None:
        """Start bystanders, if there are none."""
        if self._bystanders is not None:
            return
        if NEIGHBOURS in self.router.ports:
            self._neighbour = Router(self._directory, neighbour_sections(self.router.ports[NEIGHBOURS]))
            self._neighbour.start()
        self._bystanders = Bystanders(self.router, self._neighbour)

    @property
    def secret(self) -> bytes:
        """The text in the tenant's messages."""
        assert self._bystanders is not None
        return self._bystanders.secret

    def check(self) -> None:
        """Raise AssertionError if a bystander was disturbed or a worker has had too much memory.

        There are none then until `begin`.
        """
        assert self._bystanders is not None
        try:
            self._bystanders.check()
            for pid in self.router.worker_pids():
                peak = peak_memory(pid)
                assert peak <= self._memory_most, f"worker {pid} had {peak >> 20} MiB of memory"
        except AssertionError:
            self.stop()
            raise

    def stop(self) -> None:
        """End the bystanders and their neighbour router."""
        bystanders, self._bystanders = self._bystanders, None
        neighbour, self._neighbour = self._neighbour, None
        if bystanders is not None:
            bystanders.stop()
        if neighbour is not None:
            neighbour.stop()
