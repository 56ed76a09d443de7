"""Running connectors, with real sockets and a worker that is only the other end of a socket pair."""

import asyncio
import os
import socket

import pytest
from msgspec.structs import replace

from sluice.router.config.load import load_text
from sluice.router.control.handover import InitiateData
from sluice.supervisor.connectors.dial import is_connected_to_itself
from tests.unit.supervisor.harness import configuration_text
from tests.unit.supervisor.listeners.test_acceptor import AcceptorWithWorkers, until

SECTION = """
connector {
    name: c
    role: route-container
    saslUsername: u
    saslPassword: pass:p
}
"""
CONNECTOR = load_text("router.conf", configuration_text() + SECTION).connectors[0]


class ConnectorsWithBroker(AcceptorWithWorkers):
    """Connectors beside an acceptor, and a listening broker."""

    def __init__(self):
        super().__init__(workers=1)
        self.broker = socket.create_server(("127.0.0.1", 0))
        self.config = replace(CONNECTOR, port_text=str(self.broker.getsockname()[1]))
        self.connectors = self.services.connectors
        self.core.waker.connect(self.loop, self.settle)

    def settle(self):
        while self.core.take_delta() is not None:
            pass

    def message(self):
        return self.connectors.shown(self.config)["connectionMsg"]

    def close(self):
        self.connectors.stop()
        self.broker.close()
        super().close()


def run(scenario):
    async def body():
        setup = ConnectorsWithBroker()
        try:
            await scenario(setup)
        finally:
            setup.close()

    asyncio.run(body())


def test_connection_is_handed_over_with_credentials():
    async def scenario(setup):
        setup.connectors.replace([setup.config])
        message, given = await setup.receive(0)
        given.close()
        assert message.initiate == InitiateData("127.0.0.1", "u", "p")

    run(scenario)


def test_failed_attempt_is_reported_and_retried(monkeypatch):
    monkeypatch.setattr("sluice.supervisor.connectors.state.AFTER_FAILURE", 0.01)

    async def scenario(setup):
        given, faults = setup.acceptor.give, [RuntimeError("out of luck")]

        def give(connection, opened, to):
            if faults:
                raise faults.pop()
            given(connection, opened, to)

        setup.acceptor.give = give
        setup.connectors.replace([setup.config])
        message, accepted = await setup.receive(0)
        accepted.close()
        assert message.conn == 2, "the second attempt"
        assert "out of luck" in setup.message()

    run(scenario)


def test_unreadable_password_file_leaves_text(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)

    async def scenario(setup):
        setup.connectors.replace([replace(setup.config, sasl_password=f"file:{path}")])
        message, given = await setup.receive(0)
        given.close()
        assert message.initiate.password == f"file:{path}", "as in Dispatch"

    run(scenario)


def test_blocking_password_file_leaves_text(tmp_path, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.connectors.connectors.PASSWORD_SECONDS", 0.01)
    reader, writer = os.pipe()
    monkeypatch.setattr("sluice.router.config.password.open_regular", lambda path, flags: os.dup(reader))

    async def scenario(setup):
        setup.connectors.replace([replace(setup.config, sasl_password="file:x")])
        message, given = await setup.receive(0)
        given.close()
        assert message.initiate.password == "file:x"

    run(scenario)
    os.close(writer)
    os.close(reader)


def test_connection_to_itself_is_detected():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.connect(own.getsockname())
        assert is_connected_to_itself(own)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as other:
        assert not is_connected_to_itself(other)


def test_unknown_host_name_is_reported():
    async def scenario(setup):
        config = replace(setup.config, host="no-such-host.invalid")
        setup.connectors.replace([config])
        await until(lambda: "failed: proton:io" in setup.connectors.shown(config)["connectionMsg"])

    run(scenario)


@pytest.mark.parametrize("host", ["\0", "a" * 300, ".."])
def test_invalid_host_name_is_reported(host):
    async def scenario(setup):
        config = replace(setup.config, host=host)
        setup.connectors.replace([config])
        await until(lambda: "failed: proton:io" in setup.connectors.shown(config)["connectionMsg"])

    run(scenario)
