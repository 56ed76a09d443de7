"""Management agent: long answers in slices, bounds, internal errors, answers without a receiver."""

import asyncio
import gc
import time

import pytest

from sluice.router.control import messages
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.management import agent as agents
from sluice.supervisor.management import operations
from sluice.supervisor.management.request import decode
from sluice.supervisor.management.response import Response, encode
from tests.peer.management import PREFIX, ManagementReply
from tests.unit.supervisor.management.managed_router import VERBOSE, ManagedRouter, request

LINKS = 10_000
QUERY_LINKS = request(
    {"operation": "QUERY", "entityType": PREFIX + "router.link"},
    {"attributeNames": ["identity", "linkName", "deliveryCount", "settleRate", "owningAddr"]},
)


@pytest.fixture(scope="module")
def busy():
    router = ManagedRouter(links=LINKS + 1)
    connection = router.connection()
    for number in range(LINKS):
        router.link(connection, "out" if number % 2 else "in", f"a{number % 20}")
    return router


def test_long_query_is_answered_in_slices(busy):
    """Other events get their turn between two slices, and other requests are answered meanwhile."""
    busy.sent.clear()
    longest = 0.0
    busy.agent.handle(LocalMessage(0, None, QUERY_LINKS))
    assert not busy.sent
    busy.agent.handle(LocalMessage(0, None, request({"operation": "GET-ANNOTATIONS"}, correlation_id="short")))
    assert len(busy.sent) == 1, "a short request overtakes"
    turns = 0
    gc.disable()  # collecting the garbage of other tests is no part of a slice
    try:
        while busy.later:
            began = time.thread_time()
            busy.later.popleft()()
            longest = max(longest, time.thread_time() - began)
            turns += 1
    finally:
        gc.enable()
    answer = ManagementReply.of(busy.sent[1][1])
    assert len(answer.body["results"]) == LINKS
    assert turns > 3
    assert longest < 0.1, "a slice takes a few milliseconds; the last one composes the answer"


def test_page_of_many_rows_is_returned(busy):
    rows = busy.query("router.link", "identity", offset=LINKS - 3, count=500)
    assert [row["identity"] for row in rows] == [str(number) for number in list(busy.core.links.by_identity)[-3:]]


def test_links_removed_during_query_are_omitted():
    router = ManagedRouter(links=400)
    staying, leaving = router.connection(), router.connection()
    kept = [router.link(staying, "in", None) for _ in range(100)]
    for _ in range(200):
        router.link(leaving, "in", None)
    steps = router.agent._types[PREFIX + "router.link"].query(
        decode(0, None, request({"operation": "QUERY"}, {"attributeNames": ["identity"]}))
    )
    next(steps)
    router.core.receive(router.workers[0], messages.Closed(conn=leaving.number, error=None))
    octets = encode(result(steps), "r", None)
    assert [row[0] for row in ManagementReply.of(octets).body["results"]] == [str(number) for number in kept]


def result(steps):
    """Return the value that a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def test_unfinished_answers_are_bounded(busy):
    """Further requests wait at their source until an answer is complete."""
    busy.sent.clear()
    query = request({"operation": "QUERY", "entityType": PREFIX + "router.link"}, {"attributeNames": ["identity"]})
    begun = 0
    while busy.agent.ready():
        busy.agent.handle(LocalMessage(0, None, query))
        begun += 1
    assert begun == agents.MAX_UNFINISHED
    while not busy.sent:
        assert not busy.agent.ready()
        assert busy.continued == 0
        busy.later.popleft()()
    assert busy.agent.ready()
    assert busy.continued == 1
    while busy.later:
        busy.later.popleft()()
    assert len(busy.sent) == begun
    assert busy.continued == 1
    assert all(len(ManagementReply.of(octets).body["results"]) == LINKS for _, octets, _ in busy.sent)


def test_internal_error_is_answered_and_logged(monkeypatch):
    def broken(request, context):
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(operations.OPERATIONS, "BROKEN", broken)
    router = ManagedRouter(log=VERBOSE)
    assert router.ask("BROKEN").outcome == (500, "Internal Server Error")
    (entry,) = [entry for entry in router.log.recent() if entry.level == "critical"]
    assert "ZeroDivisionError: oops" in entry.text
    assert router.ask("GET-ANNOTATIONS").status == 200


def test_answer_prefers_worker_of_request():
    router = ManagedRouter()
    router.raw(request({"operation": "GET-ANNOTATIONS"}, reply_to="somewhere"))
    assert [(address, near) for address, _, near in router.sent] == [("somewhere", 1)]


def test_answer_without_receiver_is_dropped():
    router = ManagedRouter()
    router.reachable = False
    assert router.ask("GET-ANNOTATIONS").status == 200


def test_operation_may_answer_repeatedly(monkeypatch):
    """An operation may send several answers, with a subject."""
    kept = []

    def watch(request, context):
        kept.append((request, context))
        return Response()

    monkeypatch.setitem(operations.OPERATIONS, "WATCH", watch)
    router = ManagedRouter()
    assert router.ask("WATCH").status == 200
    given, context = kept[0]
    assert context.answer(given, Response.of(200, [[1.5, "text"]])) is True
    answer = ManagementReply.of(router.sent[-1][1])
    assert answer.body == [[1.5, "text"]]


def create(number, **more):
    return request(
        {"operation": "CREATE", "type": PREFIX + "router.config.address", "name": f"x{number}"},
        {"prefix": f"x{number}"},
        correlation_id=str(number),
        **more,
    )


def test_pending_answers_are_bounded_per_connection():
    router = ManagedRouter()
    count = 0
    while router.agent.ready(7):
        router.agent.handle(LocalMessage(0, 7, create(count)))
        router.finish()  # a change that takes longer than a slice counts when it is made
        count += 1
    assert count == agents.MAX_WAITING
    assert not router.sent, "no worker has acknowledged them yet"
    assert router.agent.ready(8), "other connections are not held up"
    router.raw(request({"operation": "GET-ANNOTATIONS"}), 8)
    assert router.agent.ready(7)
    assert router.continued == 1


def test_pending_request_keeps_little_memory():
    router = ManagedRouter()
    large = "x" * (agents.MAX_WAITING_OCTETS // 4)
    for number in range(8):
        assert router.agent.ready(7)
        octets = request(
            {"operation": "CREATE", "type": PREFIX + "router.config.address", "more": large}, {"prefix": f"x{number}"}
        )
        router.agent.handle(LocalMessage(0, 7, octets))
    answers = router.raw(request({"operation": "GET-ANNOTATIONS"}), 8)
    assert sorted(answer.status for answer in answers) == [200] + [201] * 8


def test_long_correlation_ids_count_as_octets(monkeypatch):
    router = ManagedRouter()
    monkeypatch.setattr(agents, "MAX_WAITING_OCTETS", 10_000)
    count = 0
    while router.agent.ready(7):
        octets = request(
            {"operation": "CREATE", "type": PREFIX + "router.config.address"},
            {"prefix": f"x{count}"},
            correlation_id="c" * 3_000,
        )
        router.agent.handle(LocalMessage(0, 7, octets))
        router.finish()
        count += 1
    assert count == 4


def test_requests_of_connection_wait_for_pending_change():
    """A pending change holds up its own connection and no other."""
    router = ManagedRouter()
    router.live.hold()
    router.agent.handle(LocalMessage(0, 7, create(0)))
    assert not router.agent.ready(7)
    assert router.agent.ready(8)
    router.live.release()
    router.loop.run_until_complete(asyncio.sleep(0))
    assert router.agent.ready(7)
    (answer, _) = router.raw(request({"operation": "GET-ANNOTATIONS"}), 8)
    assert answer.status in (200, 201)
    assert [address.prefix for address in router.live.configuration.addresses][-1] == "x0"
