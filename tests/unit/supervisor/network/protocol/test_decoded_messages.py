"""Cache of decoded messages: equal octets are decoded once, within bounds."""

import pytest

from sluice.supervisor.network.protocol import decoded_messages, messages
from sluice.supervisor.network.protocol.annotations import ControlMessageError
from sluice.supervisor.network.protocol.decoded_messages import DecodedMessages


@pytest.fixture
def cache() -> DecodedMessages:
    return DecodedMessages()


def hello(number: int, names: int = 1) -> bytes:
    """Return a HELLO that names some routers."""
    return messages.encode_hello(f"R{number}", 1, [f"router-{each}" for each in range(names)])


def test_equal_messages_are_decoded_once(cache: DecodedMessages) -> None:
    first = cache.decode(hello(1))
    assert first == messages.decode(hello(1))
    assert cache.decode(hello(1)) is first
    assert cache.decode(hello(2)) == messages.decode(hello(2))


def test_long_message_is_not_kept(cache: DecodedMessages) -> None:
    tail = hello(1, 1000)
    first = cache.decode(tail)
    assert first == messages.decode(tail)
    assert cache.decode(tail) is not first


def test_oldest_message_is_forgotten_beyond_limit(cache: DecodedMessages) -> None:
    first, last = cache.decode(hello(0)), hello(decoded_messages._MESSAGES)
    for number in range(1, decoded_messages._MESSAGES):
        cache.decode(hello(number))
    assert cache.decode(hello(0)) is first
    kept = cache.decode(last)
    assert cache.decode(last) is kept
    assert cache.decode(hello(0)) is not first


def test_malformed_message_is_an_error_each_time(cache: DecodedMessages) -> None:
    for _ in range(2):
        with pytest.raises(ControlMessageError):
            cache.decode(b"no message")
