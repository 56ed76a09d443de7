"""`python -m loadtests.wakes`: parsing of strace's output."""

import pytest

from loadtests.wakes import calls, describe, wakes

TRACE = """\
100.000000 epoll_wait(3, [{events=EPOLLIN, data={u32=7, u64=7}}], 256, -1) = 1 <0.500000>
100.500100 recvfrom(7, ""..., 98304, MSG_DONTWAIT, NULL, NULL) = 154 <0.000020>
100.501120 sendto(8, ""..., 154, MSG_DONTWAIT|MSG_NOSIGNAL, NULL, 0) = 154 <0.000030>
100.501200 epoll_wait(3, [], 256, 0) = 0 <0.000010>
100.501300 madvise(0x7f0000000000, 4096, MADV_DONTNEED) = 0 <0.004000>
100.505400 epoll_wait(3,  <unfinished ...>) = ?
strace: Process 9 detached
100.505500 epoll_wait(3, [{events=EPOLLIN, data={u32=7, u64=7}}], 256, -1) = 1 <0.100000>
"""


def test_wakes_are_split_at_epoll_wait() -> None:
    found = list(wakes(calls(TRACE.splitlines())))
    assert [len(wake.calls) for wake in found] == [2, 1]
    assert found[0].seconds == pytest.approx(0.0012)
    assert found[0].in_calls == pytest.approx(0.00005)
    gap, before, after = found[0].gap()
    assert gap == pytest.approx(0.001)
    assert (before, after) == ("recvfrom(7)", "sendto(8)")
    assert found[1].calls[0].name == "madvise"


def test_wake_is_described_with_its_calls() -> None:
    first, second = wakes(calls(TRACE.splitlines()))
    text = describe(second, first.began)
    assert "0.001 s: 4,290 µs, 4,000 µs of it in 1 calls: 1 madvise 4000 µs" in text
    assert "computed longest, 200 µs, between madvise(0x7f0000000000) and the next wait" in text
