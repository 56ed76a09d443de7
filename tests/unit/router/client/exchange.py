"""Core of a client without sockets, connected to the engine's server side."""

from collections.abc import Callable, Iterable
from typing import Any

from sluice.router.client.core import ClientCore, Options
from tests.unit.router.amqp.stub import RecordingHandler, endings

NOW = 1.0


class CoreExchange:
    """Client and the server that it is connected to. cut: splits the octets that the client reads."""

    def __init__(
        self,
        cut: Callable[[bytes], Iterable[bytes]] = lambda octets: [octets],
        server: type[RecordingHandler] = RecordingHandler,
    ) -> None:
        self.cut = cut
        self.server_type = server
        self.core = ClientCore(Options(container="c", max_frame=512))
        endings.append(lambda: self.core.lost("the test is over"))

    def connect(self) -> None:
        """Connect the client to a new server."""
        self.server = self.server_type(max_frame=512)
        self.core.start(NOW)
        self.run()

    def reconnect(self) -> None:
        """Lose the transport and connect again."""
        self.core.lost("gone")
        self.connect()

    def run(self) -> None:
        """Exchange octets until neither end has output."""
        moved = True
        while moved:
            ours = self.core.output(NOW)
            self.server.feed(ours)
            while self.server.scheduler.go_on():
                self.server.feed(b"")
            theirs = self.server.connection.take_output()
            for piece in self.cut(theirs):
                self.core.receive(piece, NOW)
            moved = bool(ours or theirs)

    @property
    def outcomes(self) -> list[tuple[Any, ...]]:
        """Outcomes that the server received: (delivery-id, state, settled)."""
        return [note[1:] for note in self.server.notes if note[0] == "outcome"]
