"""Acceptance and refusal of control messages of a neighbour router."""

import pytest

from sluice.router.log import LogSettings, ModuleSettings
from tests.component.engine.interior_router import INTERIOR, InteriorRouter
from tests.peer.talk import frames, message, of, transfer

MOST = 32 << 20  # octets of a control message
LOUD = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})


@pytest.fixture(params=[1, 2], ids=["1-worker", "2-workers"])
def host(routers, request):
    return InteriorRouter(routers(request.param, INTERIOR))


def test_unsettled_control_message_is_accepted(host):
    peer = host.peer()
    peer.feed(transfer(1, 0, message(b"m")))
    host.router.settle()
    (disposition,) = of(frames(peer), "disposition")
    assert (disposition.settled, disposition.state.descriptor) == (True, 0x24)
    assert len(host.network.calls) == 2


def test_oversized_control_message_is_dropped_and_logged(routers):
    host = InteriorRouter(routers(1, INTERIOR, log=LOUD))
    peer = host.peer()
    peer.feed(transfer(1, 0, message(bytes(MOST)), settled=True, part=16_000))
    peer.feed(transfer(1, 1, message(b"next"), settled=True))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, message(b"next"))]
    lines = [entry.text for entry in host.router.log.recent() if "too large" in entry.text]
    assert lines == [f"[C{peer.client.number}] A control message of the peer was dropped: it is too large"]
