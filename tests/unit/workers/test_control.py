"""The worker's end of the channel that connections are handed over by."""

import os
import socket
from typing import Any

import pytest

from router.ipc.control import WorkerSetup, encode_handover
from supervisor.control import make_endpoints, make_keys
from workers.control import HANDOVER_OCTETS, Control


class Setup:
    """A control whose supervisor is only the other end of the hand-over pair."""

    def __init__(self):
        self.near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keys, endpoints = make_keys(), make_endpoints()
        setup = WorkerSetup(
            worker=0,
            generation=1,
            workers=1,
            region_fd=-1,
            eventfds=[],
            handover_fd=far.detach(),
            pub_endpoint=endpoints.pub,
            ctl_endpoint=endpoints.ctl,
            server_public=keys.server_public,
            client_public=keys.client_public,
            client_secret=keys.client_secret,
            cpu=None,
            router={},
            log={},
        )
        self.adopted: list[tuple[Any, int]] = []
        self.control = Control(
            setup, lambda message, raw: None, lambda epoch, ops: None, lambda *given: self.adopted.append(given)
        )

    def give(self, data):
        """Hand a connection over; its client's end."""
        client, given = socket.socketpair()
        with given:
            socket.send_fds(self.near, [data], [given.fileno()])
        self.control.adopt()
        return client

    def close(self):
        self.near.close()
        self.control.close()


@pytest.fixture
def setup():
    made = Setup()
    yield made
    made.close()


def handover(**more):
    message: Any = {"conn": 7, "offer": "main", "peer": "127.0.0.1:1", **more}
    return encode_handover(message)


def test_a_connection_that_can_be_read(setup):
    with setup.give(handover()) as client:
        ((message, descriptor),) = setup.adopted
        assert message == {"conn": 7, "offer": "main", "peer": "127.0.0.1:1"}
        os.close(descriptor)
        assert client.recv(1) == b""
    assert setup.control.pending == []


@pytest.mark.parametrize(
    "data",
    [handover(initiate={"host": "h", "user": "u" * HANDOVER_OCTETS}), handover()[:-1], b'{"conn":7,"offer":1}'],
    ids=["too long", "cut", "incomplete"],
)
def test_a_connection_that_cannot_be_read_is_closed(setup, data):
    with setup.give(data) as client:
        assert client.recv(1) == b"", "its descriptor is closed"
    ((message, _),) = setup.control.pending
    assert (message["t"], message["conn"], message["error"][0]) == ("closed", 7, "amqp:internal-error")
    assert setup.adopted == []
    setup.give(handover()).close()
    assert len(setup.adopted) == 1
    os.close(setup.adopted[0][1])


def test_a_hand_over_without_a_number_is_told(setup):
    with setup.give(b"\xff") as client:
        assert client.recv(1) == b""
    ((message, _),) = setup.control.pending
    assert (message["t"], message["level"]) == ("log", "error")
