"""Input buffer: octets that are not taken stay, in their order, for the next read."""

import pytest

from sluice.router.client.input_buffer import READ, InputBuffer


def read_into(buffer: InputBuffer, octets: bytes) -> int:
    """Write octets to the free part, as a transport does; return their number."""
    room = buffer.room
    count: int = min(len(octets), len(room))
    room[:count] = octets[:count]
    return count


@pytest.mark.parametrize("frame", [1, 7, 1000])
def test_octets_left_over_come_before_the_next_read(frame):
    sent = bytes(index % 251 for index in range(10_000))
    taken = []

    def feed(octets: memoryview) -> int:
        whole: int = len(octets) - len(octets) % frame
        taken.append(bytes(octets[:whole]))
        return whole

    buffer = InputBuffer()
    for at in range(0, len(sent), 333):
        assert not buffer.pass_on(read_into(buffer, sent[at : at + 333]), feed)
    assert b"".join(taken) == sent[: len(sent) - len(sent) % frame]


def test_full_buffer_grows_while_nothing_is_taken():
    sent = bytes(index % 251 for index in range(3 * READ))
    buffer, at = InputBuffer(), 0
    while at < len(sent):
        at += (count := read_into(buffer, sent[at:]))
        filled = buffer.pass_on(count, lambda octets: 0)
        assert filled == (at in (READ, 2 * READ))
    found: list[bytes] = []
    buffer.pass_on(0, lambda octets: found.append(bytes(octets)) or len(octets))  # type: ignore[func-returns-value]
    assert found == [sent]
