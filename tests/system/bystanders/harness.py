"""Configuration, start, checks and replacement of the bystanders of a router."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.system.bystanders.bystanders import CLIENTS, CONTAINER, PUBLIC, TENANT, Bystanders
from tests.system.router import SETTINGS, RouterProcess, Section, listener

#: Prefix of the name of the listener for the neighbour router (its role follows), and the id of that router.
NEIGHBOURS, NEIGHBOUR = "neighbour-", "bystander-neighbour"
#: Modes of the router and of its neighbour by the role of their connection.
MODES = {"inter-router": ("interior", "interior"), "edge": ("interior", "edge"), "inter-edge": ("edge", "edge")}
HOSTS = PUBLIC, TENANT
#: Peak memory of a worker in octets. Its configured limit and the process itself need less.
MEMORY_MOST = 640 << 20


def clients_sections(scope: str = "network") -> list[Section]:
    """Return the sections for bystanders: a listener of their own and the prefixes of their addresses."""
    shared = {"distribution": "balanced", "scope": scope}
    prefixes: list[Section] = [("address", {"prefix": f"{host}/{CONTAINER}", **shared}) for host in HOSTS]
    return [listener(CLIENTS, multiTenant=True), *prefixes]


def vhost(hostname: str) -> Section:
    """Return a vhost that permits everything bystanders do, for routers with policy."""
    everything = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}
    return "vhost", {"hostname": hostname, "groups": {"all": everything}}


def neighbour_sections(role: str, port: int) -> list[Section]:
    """Return the configuration of the neighbour router, which connects to a listener of role `role` on `port`."""
    place = {"name": "to-router", "role": role, "host": "127.0.0.1", "port": port}
    router = "router", {"mode": MODES[role][1], "id": NEIGHBOUR}
    return [router, listener(), *SETTINGS, *clients_sections(), ("connector", place)]


def with_bystanders(sections: Iterable[Section], *, neighbour: str | None = None) -> list[Section]:
    """Return the sections of a router with bystanders.

    neighbour: role of the connection to a neighbour router of the bystanders, for routers without a mode.
    """
    given = list(sections)
    # Other routers of the test are not notified of local addresses.
    added = clients_sections("network" if neighbour else "local")
    if any(attributes.get("enableVhostPolicy") for name, attributes in given if name == "policy"):
        added += map(vhost, HOSTS)
    if neighbour and not any(name == "router" and "mode" in attributes for name, attributes in given):
        added += [("router", {"mode": MODES[neighbour][0]}), listener(NEIGHBOURS + neighbour, role=neighbour)]
    return [*given, *added]


def without_bystanders(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of type connection that belong to other clients. The rows have `container`."""
    return [row for row in rows if not str(row["container"]).startswith(CONTAINER)]


def peak_memory(pid: int) -> int:
    """Return the peak resident memory of a process in octets."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


class BystanderHarness:
    """The bystanders of a running router that was configured by `with_bystanders`.

    directory: place for the files of the neighbour router, which is started if the router has a listener for it.
    memory_most: peak memory of each worker in octets.
    other: another router of the test's network, configured by `clients_sections`, in place of a neighbour router.
    """

    def __init__(
        self, router: RouterProcess, directory: Path, memory_most: int = MEMORY_MOST, other: RouterProcess | None = None
    ) -> None:
        self._memory_most = memory_most
        self.router = router
        self._directory = directory
        self._other = other
        self._neighbour: RouterProcess | None = None
        self._bystanders: Bystanders | None = None
        self.start()

    def start(self) -> None:
        """Start bystanders unless they are running."""
        if self._bystanders is not None:
            return
        for role in MODES:
            if (port := self.router.ports.get(NEIGHBOURS + role)) is not None:
                self._neighbour = RouterProcess(self._directory, neighbour_sections(role, port))
                self._neighbour.start()
        self._bystanders = Bystanders(self.router, self._neighbour or self._other)

    @property
    def neighbour(self) -> RouterProcess:
        """The neighbour router. It has a listener for other clients as well."""
        assert self._neighbour is not None
        return self._neighbour

    @property
    def secret(self) -> bytes:
        """The text in the tenant's messages."""
        assert self._bystanders is not None
        return self._bystanders.secret

    def check(self) -> None:
        """Raise AssertionError if a bystander was disturbed or a worker has used too much memory.

        After a failure the bystanders are stopped; `start` starts new ones.
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
        """Stop the bystanders and their neighbour router."""
        bystanders, self._bystanders = self._bystanders, None
        neighbour, self._neighbour = self._neighbour, None
        if bystanders is not None:
            bystanders.stop()
        if neighbour is not None:
            neighbour.stop()
