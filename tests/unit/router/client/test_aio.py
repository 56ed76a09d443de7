"""asyncio client, connected to a small broker in this process."""

import asyncio
import socket
from typing import Any
from unittest.mock import patch

import pytest

from sluice.router.client import (
    Accepted,
    Backoff,
    ConnectionFailedError,
    LinkDetachedError,
    Message,
    Rejected,
    StaleDeliveryError,
    UnsettledError,
    aconnect,
)
from sluice.router.client import outcome as outcomes
from tests.unit.router.client.server import EngineBroker
from tests.unit.supervisor.auth.waiting import soon

PATIENCE = 10.0
QUICK = Backoff(first=0.01, most=0.05)

IDLE_MS = 2000  # idle time-out of a broker whose client sends nothing; a slow machine may use part of it


@pytest.fixture
def broker():
    with EngineBroker() as running:
        yield running


def test_message_is_sent_and_received(broker):
    async def main():
        async with await aconnect(broker.url, timeout=PATIENCE) as connection:
            sender = await connection.sender("q", timeout=PATIENCE)
            assert await sender.send(Message("hello"), timeout=PATIENCE) == Accepted()
            assert await sender.send(Message("again"), settled=True, timeout=PATIENCE) is None
            receiver = await connection.receiver("q")
            for body in ("hello", "again"):
                delivery = await receiver.receive(timeout=PATIENCE)
                assert delivery.message.body == body
                delivery.accept()
            with pytest.raises(TimeoutError):
                await receiver.receive(timeout=0.05)
            await receiver.close()

    asyncio.run(main())
    assert [state for _, state in broker.heard] == [outcomes.encode(Accepted())] * 2


def test_gathering_connection_pauses_after_short_read(broker):
    async def main():
        async with await aconnect(broker.url) as connection:
            sender, receiver = await connection.sender("q"), await connection.receiver("q")
            connection.gather = 0.01
            assert connection._protocol is not None
            transport: Any = connection._protocol.transport
            for number in range(2):
                with patch.object(transport, "pause_reading", wraps=transport.pause_reading) as paused:
                    await sender.send(Message(number), settled=True, timeout=PATIENCE)
                    assert (await receiver.receive(timeout=PATIENCE)).message.body == number
                assert paused.called

    asyncio.run(main())


def test_messages_that_nobody_awaits_wake_no_call(broker):
    async def main():
        async with await aconnect(broker.url) as connection:
            receiver = await connection.receiver("q", window=0)
            receiver.flow(5)
            connection.progress()
            connection.awaited = lambda: False
            with patch.object(connection, "progress", wraps=connection.progress) as progress:
                with broker.lock:
                    broker.queues["q"].append(Message(1).encode())
                    broker.give()
                await soon(lambda: receiver.state.arrived)
                assert not progress.called
            assert (await receiver.receive(timeout=PATIENCE)).message.body == 1

    asyncio.run(main())


def test_tasks_share_sender_and_receiver(broker):
    async def main():
        async with await aconnect(broker.url) as connection:
            sender, receiver = await connection.sender("q"), await connection.receiver("q", window=7)

            async def take():
                delivery = await receiver.receive(timeout=PATIENCE)
                delivery.accept()
                return delivery.message.body

            sends = [sender.send(Message(n), timeout=PATIENCE) for n in range(300)]
            outcome, taken = await asyncio.gather(asyncio.gather(*sends), asyncio.gather(*[take() for _ in range(300)]))
            assert outcome == [Accepted()] * 300
            assert sorted(taken) == [*range(300)]

    asyncio.run(main())


def test_cancelled_receive_loses_no_message(broker):
    async def main():
        async with await aconnect(broker.url) as connection:
            sender, receiver = await connection.sender("q"), await connection.receiver("q")
            for number in range(20):
                waiting = asyncio.ensure_future(receiver.receive())
                await asyncio.sleep(0)
                await sender.send(Message(number), timeout=PATIENCE)
                waiting.cancel()
                if (await asyncio.wait([waiting]))[0] and not waiting.cancelled():
                    assert waiting.result().message.body == number
                else:
                    assert (await receiver.receive(timeout=PATIENCE)).message.body == number

    asyncio.run(main())


def test_drain_ends_iteration(broker):
    async def main():
        async with await aconnect(broker.url) as connection:
            sender = await connection.sender("q")
            for number in range(3):
                await sender.send(Message(number))
            receiver = await connection.receiver("q", window=0)
            receiver.flow(10)
            await receiver.drain(timeout=PATIENCE)
            bodies = []
            async for delivery in receiver:
                bodies.append(delivery.message.body)
                delivery.accept()
                if len(bodies) == 3:
                    break
            assert bodies == [0, 1, 2]

    asyncio.run(main())


def test_large_messages_are_sent_while_socket_is_full(broker):
    body = b"x" * 8_000_000

    async def main():
        async with await aconnect(broker.url) as connection:
            sender, receiver = await connection.sender("q"), await connection.receiver("q")
            await asyncio.gather(*[sender.send(Message(body), timeout=PATIENCE) for _ in range(3)])
            for _ in range(3):
                assert (await receiver.receive(timeout=PATIENCE)).message.body == body

    asyncio.run(main())


def test_refused_link_gives_reason(broker):
    broker.refused.add("q")
    broker.outcomes["r"] = outcomes.encode(Rejected("a:b", "why"))

    async def main():
        async with await aconnect(broker.url) as connection:
            with pytest.raises(LinkDetachedError, match="amqp:not-found: no q"):
                await connection.sender("q", timeout=PATIENCE)
            sender = await connection.sender("r")
            assert await sender.send(Message(1), timeout=PATIENCE) == Rejected("a:b", "why")
        with pytest.raises(ConnectionFailedError):
            await sender.send(Message(1))

    asyncio.run(main())


def test_connection_to_closed_port_fails():
    async def main(port):
        with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}"):
            await aconnect(f"127.0.0.1:{port}")
        with pytest.raises(TimeoutError):
            await aconnect(f"127.0.0.1:{port}", reconnect=QUICK, timeout=0.1)
        with EngineBroker() as broker:
            async with await aconnect([f"127.0.0.1:{port}", broker.url], timeout=PATIENCE) as connection:
                assert connection.remote["container"] == "server"

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        asyncio.run(main(unused.getsockname()[1]))


@pytest.mark.parametrize("cut", [EngineBroker.cut, lambda broker: broker.say("amqp:connection:forced", "go")])
def test_reconnection_attaches_links_and_resends_nothing(broker, cut):
    broker.outcomes["q"] = None

    async def main():
        async with await aconnect(broker.url, reconnect=QUICK) as connection:
            sender, receiver = await connection.sender("q"), await connection.receiver("in")
            await (await connection.sender("in")).send(Message("one"), timeout=PATIENCE)
            old = await receiver.receive(timeout=PATIENCE)
            sending = asyncio.ensure_future(sender.send(Message("lost")))
            while not broker.queues["q"]:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(cut, broker)
            with pytest.raises(UnsettledError, match="the outcome is unknown"):
                await asyncio.wait_for(sending, PATIENCE)
            broker.outcomes.clear()
            assert await sender.send(Message("again"), timeout=PATIENCE) == Accepted()
            with pytest.raises(StaleDeliveryError):
                old.accept()
            assert list(broker.queues["q"]) == [Message(body).encode() for body in ("lost", "again")]
            assert (await receiver.receive(timeout=PATIENCE)).message.body == "one"

    asyncio.run(main())
    assert broker.connected == 2


def test_idle_connection_sends_heartbeats():
    async def main(url):
        async with await aconnect(url, idle=0) as connection:
            await asyncio.sleep(1.5 * IDLE_MS / 1000)
            assert await (await connection.sender("q")).send(Message(1), timeout=PATIENCE) == Accepted()

    with EngineBroker(idle_ms=IDLE_MS) as broker:
        asyncio.run(main(broker.url))
        assert broker.connected == 1
