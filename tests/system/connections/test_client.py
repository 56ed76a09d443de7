"""The router's client, blocking and asyncio, against real routers."""

import asyncio

import pytest

from sluice.router.client import Accepted, Backoff, LinkDetachedError, Message, Released, aconnect, connect
from sluice.router.client.blocking import SyncReceiver, SyncSender
from tests.system.fixtures import Fresh, Start
from tests.system.router import SETTINGS, RouterProcess, listener

PATIENCE = 20.0


def test_messages_between_two_clients_arrive(router: RouterProcess, fresh: Fresh) -> None:
    """Each client has its own connection, so that with three workers deliveries cross them."""
    url, address = f"amqp://127.0.0.1:{router.port}", fresh()
    large = b"x" * 1_000_000
    with connect(url, timeout=PATIENCE) as taking, connect(url, timeout=PATIENCE) as giving:
        assert taking.remote["container"]
        receiver = taking.receiver(address, window=20)
        sender = giving.sender(address)
        sendings = [sender.state.send(Message({"n": number})) for number in range(100)]  # fewer than its credit
        giving.poll()
        for number in range(100):
            delivery = receiver.receive(timeout=PATIENCE)
            assert delivery.message.body == {"n": number}
            delivery.accept()
        giving.wait(lambda: all(sending.done for sending in sendings), PATIENCE)
        assert [sending.result() for sending in sendings] == [Accepted()] * 100
        sender.send(large, settled=True, timeout=PATIENCE)
        assert receiver.receive(timeout=PATIENCE).octets == large


def test_message_without_consumer_is_released(router: RouterProcess, fresh: Fresh) -> None:
    with connect(f"127.0.0.1:{router.port}", timeout=PATIENCE) as connection:
        sender = connection.sender(None)
        assert sender.send(Message("x", to=fresh()), timeout=PATIENCE) == Released()
        with pytest.raises(LinkDetachedError, match="amqp:not-found"):
            connection.sender("unavailable.x", timeout=PATIENCE)


def test_request_with_dynamic_reply_address_is_answered(router: RouterProcess, fresh: Fresh) -> None:
    """Server and client are two tasks of one connection; the client's address is dynamic."""
    address = fresh()

    async def main() -> None:
        async with await aconnect(f"127.0.0.1:{router.port}", timeout=PATIENCE) as connection:
            requests = await connection.receiver(address, timeout=PATIENCE)
            answers = await connection.receiver(None, timeout=PATIENCE)
            to_any = await connection.sender(None, timeout=PATIENCE)

            async def serve() -> None:
                delivery = await requests.receive(timeout=PATIENCE)
                delivery.accept()
                request = delivery.message
                answer = Message(request.body + 1, to=request.reply_to, correlation_id=request.message_id)
                assert await to_any.send(answer, timeout=PATIENCE) == Accepted()

            server = asyncio.ensure_future(serve())
            question = Message(41, to=address, reply_to=answers.address, message_id=7)
            assert await to_any.send(question, timeout=PATIENCE) == Accepted()
            delivery = await answers.receive(timeout=PATIENCE)
            delivery.accept()
            answer = delivery.message
            assert (answer.body, answer.correlation_id) == (42, 7)
            await server

    asyncio.run(main())


def links_usable(receiver: SyncReceiver, sender: SyncSender) -> bool:
    """Return whether both links are usable."""
    return receiver.state.attached and sender.state.ready


def test_restarted_router_gets_links_attached_again(start: Start) -> None:
    """Both links are attached to the restarted router, and no message is sent twice."""
    sections = [listener(), *SETTINGS]
    first = start(sections)
    port = first.port
    with connect(f"127.0.0.1:{port}", reconnect=Backoff(first=0.05, most=0.5), timeout=PATIENCE) as connection:
        receiver, sender = connection.receiver("balanced.a"), connection.sender("balanced.a")
        sender.send(Message(1), settled=True, timeout=PATIENCE)
        assert receiver.receive(timeout=PATIENCE).message.body == 1
        first.stop()
        while links_usable(receiver, sender):
            connection.poll(0.02)
        start([("listener", {"host": "127.0.0.1", "port": port}), *SETTINGS])
        while not links_usable(receiver, sender):
            connection.poll(0.02)
        sender.send(Message(2), settled=True, timeout=PATIENCE)
        assert receiver.receive(timeout=PATIENCE).message.body == 2
