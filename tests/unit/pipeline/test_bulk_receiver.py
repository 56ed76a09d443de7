"""Bulk receiver without sockets, connected to the engine's server side."""

import random
import struct
from itertools import pairwise
from typing import Any

import pytest

from sluice.pipeline.bulk import WINDOW, BulkState
from sluice.router.amqp import codec
from sluice.router.client import Accepted, Released
from sluice.router.client.attach import Terminus
from tests.unit.router.client.exchange import NOW, CoreExchange

ACCEPTED = codec.encode_described(0x24, [])
MOST = 2000
SIZES = (0, 1, 100, 3000, 700, MOST, MOST + 1, 5)


def octets(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


class BulkReceiveExchange(CoreExchange):
    """Receiver and its server, which sends the messages given to `send`."""

    def __init__(self, cut=lambda octets: [octets], credit=100, most=MOST):
        super().__init__(cut)
        session = self.core.session(WINDOW)
        self.state: Any = BulkState(session, source=Terminus("r"), target=Terminus(), max_message_size=most, name="r")
        session.add(self.state)
        self.state.flow(credit)
        self.connect()

    def connect(self):
        super().connect()
        (self.sender,) = self.server.links

    def send(self, *messages, **options):
        sent = [self.sender.send(each, **options) for each in messages]
        self.run()
        return sent


def content(batch):
    """Return the messages of a batch, and check its buffers."""
    offsets = struct.unpack(f"={batch.rows + 1}i", batch.offsets)
    assert offsets[-1] == batch.octets == len(batch.messages)
    assert len(batch.arrived) == 8 * batch.rows
    return [bytes(batch.messages)[a:b] for a, b in pairwise(offsets)]


@pytest.mark.parametrize("piece", [1, 7, 100, 10**6])
def test_messages_are_received_whole_for_any_split(piece):
    exchange = BulkReceiveExchange(cut=lambda data: [data[at : at + piece] for at in range(0, len(data), piece)])
    exchange.send(*map(octets, SIZES))
    batch = exchange.state.take()
    assert content(batch) == [octets(size) for size in SIZES if size <= MOST]
    assert exchange.state.rejected == 2
    assert exchange.state.take() is None
    # Messages that were too long are rejected at once, the others are settled together.
    assert [b"amqp:link:message-size-exceeded" in state for _, state, _ in exchange.outcomes] == [True, True]
    assert exchange.state.settle(batch, Accepted())
    exchange.run()
    assert exchange.outcomes[2:] == [(number, ACCEPTED, True) for number in (0, 1, 2, 4, 5, 7)]


def test_take_within_message_leaves_it():
    whole: list[Any] = []

    def cut(data):
        for at in range(0, len(data), 50):
            yield data[at : at + 50]
            batch = exchange.state.take()
            if batch is not None:
                whole.append(batch)

    exchange = BulkReceiveExchange()
    exchange.cut = cut
    exchange.send(*(octets(size) for size in (900, 10, 1500, 3000, 20)))
    assert [each for batch in whole for each in content(batch)] == [octets(size) for size in (900, 10, 1500, 20)]
    for batch in whole:
        assert exchange.state.settle(batch, Released())
    exchange.run()
    assert [number for number, _, _ in exchange.outcomes if number != 3] == [0, 1, 2, 4]


def test_batch_memory_outlives_receiver():
    exchange = BulkReceiveExchange()
    exchange.send(b"abc", b"def")
    view = memoryview(exchange.state.take().messages)
    exchange.core.lost("gone")
    del exchange
    assert bytes(view) == b"abcdef"
    assert view.readonly


@pytest.mark.parametrize("seed", range(10))
def test_batches_are_unchanged_while_memory_of_others_is_used_again(seed):
    """Batches of all lengths are dropped in any order, some with a view of their octets that stays, within messages."""
    rng = random.Random(seed)
    kept: list[Any] = []
    views: list[tuple[memoryview, bytes]] = []
    taken: list[bytes] = []
    sent: list[bytes] = []

    def cut(data):
        middle = rng.randrange(len(data) + 1)
        yield data[:middle]
        take()
        yield data[middle:]

    def take() -> None:
        batch = exchange.state.take()
        if batch is not None:
            kept.append((batch, content(batch)))
            taken.extend(kept[-1][1])

    exchange = BulkReceiveExchange(credit=100_000, most=100_000)
    exchange.cut = cut
    for _ in range(60):
        scale = rng.choice((1, 10, 3000))
        messages = [rng.randbytes(rng.randrange(20 * scale)) for _ in range(rng.choice((1, 3, 3000 // scale)))]
        sent += messages
        exchange.send(*messages)
        take()
        while len(kept) > rng.randrange(4):
            batch, before = kept.pop(rng.randrange(len(kept)))
            assert content(batch) == before
            if rng.random() < 0.2:
                views.append((memoryview(batch.messages), b"".join(before)))
            del batch
    assert taken == sent
    assert views
    assert all(bytes(view) == before for view, before in views)


def test_settled_messages_are_taken_alike():
    exchange = BulkReceiveExchange()
    exchange.send(b"one", settled=True)
    exchange.send(b"two")
    batch = exchange.state.take()
    assert content(batch) == [b"one", b"two"]
    exchange.state.settle(batch, Accepted())
    exchange.run()
    assert exchange.outcomes == [(1, ACCEPTED, True)]


def test_credit_is_granted_again_after_reconnection():
    exchange = BulkReceiveExchange(credit=3)
    exchange.send(*(b"x" for _ in range(5)))
    batch = exchange.state.take()
    assert (batch.rows, exchange.state.credit) == (3, 0)
    exchange.core.lost("gone")
    assert not exchange.state.settle(batch, Accepted())
    assert exchange.state.rows == 0
    exchange.connect()
    exchange.send(b"y", b"y", b"y", b"y")
    again = exchange.state.take()
    assert content(again) == [b"y"] * 3
    assert not exchange.state.settle(batch, Accepted())  # belongs to the earlier link
    assert exchange.state.settle(again, Accepted())


def test_receiver_without_size_bound_is_refused():
    with pytest.raises(ValueError, match="max_message_size is 0"):
        BulkReceiveExchange(most=0)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_octets_only_end_the_connection(seed):
    chance = random.Random(seed)

    def cut(data):
        damaged = bytearray(data)
        for _ in range(chance.randrange(3) if len(sent) > 3 else 0):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        yield bytes(damaged)

    sent: list[Any] = []
    exchange = BulkReceiveExchange(cut=cut)
    for size in SIZES:
        if exchange.core.closing or exchange.sender.ended:
            break
        sent += exchange.send(octets(size), octets(size // 2))
        batch = exchange.state.take()
        if batch is not None:
            assert sum(map(len, content(batch))) == batch.octets
            exchange.state.settle(batch, Accepted())
    exchange.core.lost("over")
    assert exchange.state.rows == 0


def test_peer_may_use_all_credit_without_flow():
    credit = 20_000
    exchange = BulkReceiveExchange(credit=credit)
    for _ in range(credit):
        exchange.sender.send(b"x")
    while theirs := exchange.server.connection.take_output():
        exchange.core.receive(theirs, NOW)
    assert exchange.state.rows == credit
