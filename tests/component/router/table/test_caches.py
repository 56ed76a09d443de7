"""Caches with keys chosen by clients: their memory does not grow with the length of the keys."""

import tracemalloc

import pytest

from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

LONG = 60_000  # octets of a key
MANY = 60
ROOM = LONG * MANY // 4


def subject(number):
    return {"subject": "a/" + "x" * LONG + str(number)}


def address(number):
    return {"to": "balanced.hop/" + "x" * LONG + str(number)}


@pytest.mark.parametrize(("target", "fields"), [("exchange", subject), (None, address)])
def test_caches_do_not_keep_long_keys(routers, target, fields):
    router = routers()
    sending = router.connect()
    sending.feed(start() + producer(0, target))
    router.settle()
    frames(sending)

    def send(number):
        octets = message(b"x", **fields(number))
        sending.feed(transfer(0, number, octets))
        router.settle()
        frames(sending)

    send(0)
    tracemalloc.start()
    try:
        for number in range(1, MANY):
            send(number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < ROOM


def test_links_do_not_keep_long_addresses(routers):
    """Each anonymous link remembers its last address."""
    router = routers()
    length = 12_000  # an attach must fit a frame
    long = "balanced/" + "x" * length
    consuming, sending = router.connect(), router.connect()
    consuming.feed(start() + consumer(0, long))
    sending.feed(start() + b"".join(producer(handle, None) for handle in range(MANY)))
    router.settle()
    octets = message(b"x", to=long)
    tracemalloc.start()
    try:
        for handle in range(MANY):
            sending.feed(transfer(handle, handle, octets))
            router.settle()
            assert of(frames(consuming), "transfer")
            frames(sending)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < length * MANY // 4
    consuming.feed(settle(0, MANY - 1, ACCEPTED))
