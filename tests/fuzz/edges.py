"""Input of another edge router on an inter-edge connection."""

from typing import Any

from tests.fuzz.conversation import ClientModel
from tests.peer.neighbour import properties
from tests.peer.types import Map


class EdgeModel(ClientModel):
    """Another edge router: its receivers are for its clients, and its messages go to the router's clients."""

    def open_properties(self) -> Map:
        more: dict[str, Any] = {"sluice.edge": f"{self.number:016x}", "sluice.inter-edge": 1}
        return properties(**more)
