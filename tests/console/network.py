"""Network for the console: three interior routers, an edge router, and clients that send and receive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.system.networks import RouterView, connector, interior, ports
from tests.system.router import SETTINGS, RouterProcess, Section, listener

CLIENTS = Path(__file__).resolve().parent / "clients.py"
WEB = "web"


def web(**attributes: Any) -> Section:
    """Return a listener with the console."""
    return listener(WEB, http=True, **attributes)


def url(router: RouterProcess, page: str = "") -> str:
    """Return the URL of a router's console; `page` is the part after `#/`."""
    return f"http://127.0.0.1:{router.ports[WEB]}/" + (f"#/{page}" if page else "")


class ClientsProcess:
    """Process of clients.py with connections to the given ports."""

    def __init__(self, *places: int) -> None:
        words = [sys.executable, str(CLIENTS), ",".join(map(str, places))]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


class ConsoleNetwork:
    """Routers North, South and West in a row, a link from West to North at a cost of 5, and edge router Kiosk at
    South."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        north, south, west = ports(3)
        self.routers: dict[str, RouterProcess] = {}
        plans: dict[str, list[Section]] = {
            "North": [*interior("North", north), web()],
            "South": [*interior("South", south, [north]), listener("edges", role="edge")],
            "West": [*interior("West", west, [south]), connector(north, cost=5)],
        }
        for name, sections in plans.items():
            self._start(folder, name, sections, workers)
        edge = [
            ("router", {"mode": "edge", "id": "Kiosk"}), listener(),
            connector(self.routers["South"].ports["edges"], role="edge"),
        ]  # fmt: skip
        self._start(folder, "Kiosk", edge, workers)
        RouterView(self.north).wait_nodes(South=1, West=2)
        self.clients = ClientsProcess(*(self.routers[name].port for name in ("North", "South", "Kiosk", "West")))

    def _start(self, folder: Path, name: str, sections: list[Section], workers: int) -> None:
        (folder / name).mkdir()
        router = self.routers[name] = RouterProcess(folder / name, [*sections, *SETTINGS], workers)
        router.start()

    @property
    def north(self) -> RouterProcess:
        """Router with the console."""
        return self.routers["North"]

    def stop(self) -> None:
        """Kill the clients and all routers."""
        self.clients.stop()
        for router in self.routers.values():
            router.kill()
