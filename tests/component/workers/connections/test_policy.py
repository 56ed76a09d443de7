"""Limits of a connection: those of the policy decision, otherwise the listener's (security.md P-61)."""

from tests.peer.talk import frames


def test_open_and_begin_carry_policy_limits(connect_limited):
    _, peer = connect_limited(max_frame=1000, sessions=7, window=5999)
    opened, begun = frames(peer)
    assert (opened.max_frame_size, opened.channel_max, begun.incoming_window) == (1000, 6, 5)


def test_missing_limits_come_from_listener(connect_limited):
    _, peer = connect_limited(message=10)
    opened, begun = frames(peer)
    assert (opened.max_frame_size, opened.channel_max, begun.incoming_window) == (4096, 99, 2147483647)
