"""Operation TRACE: the frames of a connection, sent to the requester."""

import pytest

from sluice.router.control import messages
from sluice.supervisor.connections.watches import MAX_WATCHES
from sluice.supervisor.management.trace import MAX_SECONDS
from tests.peer.management import ManagementReply
from tests.unit.supervisor.management.managed_router import request


def ask(router, connection, **limits):
    """Request a trace of the connection with this identity; return the answer."""
    (answer,) = router.raw(request({"operation": "TRACE", "connection": connection, **limits}))
    return answer


def report(router, connection, *lines, ended=False):
    """Report frames as a worker does; return the bodies that are sent to requesters."""
    router.sent.clear()
    traced = messages.Traced(conn=connection.number, lines=list(lines), lost=0, ended=ended)
    router.core.receive(router.workers[0], traced)
    return [ManagementReply.of(octets).body for _, octets, _ in router.sent]


def test_trace_sends_frames_until_connection_ends(router):
    connection = router.connection()
    answer = ask(router, "1", seconds=2.5)
    assert (answer.outcome, answer.body) == ((200, "OK"), {"connection": "1"})
    assert router.workers[0].outbox[-1] == messages.Watch(1, True, 2500)
    assert report(router, connection, (12.5, "-> open")) == [[[12.5, "-> open"]]]
    assert report(router, connection, ended=True) == [[]]
    assert report(router, connection, (13.0, "-> close")) == []


def test_trace_ends_after_requested_lines(router):
    connection = router.connection()
    assert ask(router, "1", lines=2).status == 200
    assert report(router, connection, (1.0, "a"), (2.0, "b"), (3.0, "c")) == [[[1.0, "a"], [2.0, "b"]], []]
    assert router.workers[0].outbox[-1] == messages.Watch(1, False)


@pytest.mark.parametrize("identity", ["2", "x", "-1", "", "1" * 5000, None])
def test_trace_of_unknown_connection_is_refused(router, identity):
    router.connection()
    answer = ask(router, identity)
    assert (answer.status, len(answer.description) < 100) == (404, True)


@pytest.mark.parametrize("seconds", [0, -1, MAX_SECONDS + 1, True, "5", float("nan"), float("inf")])
def test_trace_for_invalid_time_is_refused(router, seconds):
    router.connection()
    assert ask(router, "1", seconds=seconds).outcome == (
        400, f"'seconds' must be a number above 0, at most {MAX_SECONDS}",
    )  # fmt: skip
    assert len(router.core.watches) == 0


@pytest.mark.parametrize("lines", [0, -3, "many"])
def test_trace_of_invalid_number_of_lines_is_refused(router, lines):
    router.connection()
    assert ask(router, "1", lines=lines).status == 400
    assert len(router.core.watches) == 0


def test_number_of_traces_is_bounded(router):
    router.connection()
    for _ in range(MAX_WATCHES):
        assert ask(router, "1").status == 200
    assert ask(router, "1").outcome == (500, f"{MAX_WATCHES} connections are being traced already")


def test_trace_ends_when_requester_is_gone(router):
    connection = router.connection()
    ask(router, "1")
    router.reachable = False
    report(router, connection, (1.0, "a"))
    assert router.workers[0].outbox[-1] == messages.Watch(1, False)
