"""End of a connection whose links are ended over several turns."""

from typing import Any

import pytest

from sluice.router.amqp.connection import Connection
from sluice.router.client.sender import Sender
from tests.unit.router.amqp.stub import ConnectionPair, RecordingHandler

LINKS = 100  # more than one turn ends


class RecordingServer(RecordingHandler):
    """Handler that records the peer's close, and optionally fails while doing so."""

    fails = False

    def on_closing(self, connection: Connection, error: Any) -> bool:
        self.notes.append(("closing", error))
        if self.fails:
            raise RuntimeError("a fault of ours")
        return False

    def on_fault(self, connection: Connection, fault: BaseException) -> None:
        self.notes.append(("fault", str(fault)))

    def go_on(self) -> None:
        """Take all turns that links are waiting for."""
        while self.scheduler.go_on():
            self.feed(b"")


@pytest.mark.parametrize(("gone", "fails"), [(False, False), (True, False), (True, True)])
def test_close_by_peer_is_reported_after_all_links_have_ended(gone: bool, fails: bool) -> None:
    pair = ConnectionPair()
    pair.server = server = RecordingServer()
    server.fails = fails
    session = pair.session()
    for number in range(LINKS):
        pair.client.attach(session, str(number), Sender(pair.client))
    pair.run()
    server.go_on()
    server.notes.clear()
    pair.client.connection.close("a:b", "because")
    server.feed(pair.client.connection.take_output())
    assert ("closing", ("a:b", "because")) not in server.notes  # links remain
    if gone:
        server.connection.transport_lost()
        server.connection.release()
    server.go_on()
    ended = None if gone else ("a:b", "because")
    assert [each for each in server.notes if each[0] != "detached"] == [
        ("closing", ("a:b", "because")),
        *([("fault", "a fault of ours")] if fails else []),
        ("closed", ended),
    ]
