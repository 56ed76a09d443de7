"""Management agent: long answers in slices, bounds, internal errors, answers without a receiver."""

import asyncio
import gc
import time

import pytest

from router.control import messages
from supervisor.addresses.inprocess import LocalMessage
from supervisor.management import agent as agents
from supervisor.management import operations
from supervisor.management.request import decode
from supervisor.management.response import Response, encode
from tests.peer.management import PREFIX, Answer
from tests.unit.supervisor.management.desk import VERBOSE, Desk, request

LINKS = 10_000
QUERY_LINKS = request(
    {"operation": "QUERY", "entityType": PREFIX + "router.link"},
    {"attributeNames": ["identity", "linkName", "deliveryCount", "settleRate", "owningAddr"]},
)


@pytest.fixture(scope="module")
def busy():
    desk = Desk(links=LINKS + 1)
    connection = desk.connection()
    for number in range(LINKS):
        desk.link(connection, "out" if number % 2 else "in", f"a{number % 20}")
    return desk


def test_many_rows_are_made_in_slices(busy):
    """Other events get their turn between two slices, and other requests are answered meanwhile."""
    busy.sent.clear()
    longest = 0.0
    busy.agent.handle(LocalMessage(0, None, QUERY_LINKS))
    assert not busy.sent
    busy.agent.handle(LocalMessage(0, None, request({"operation": "GET-ANNOTATIONS"}, correlation_id="short")))
    assert len(busy.sent) == 1, "a short one overtakes"
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
    answer = Answer.of(busy.sent[1][1])
    assert len(answer.body["results"]) == LINKS
    assert turns > 3
    assert longest < 0.1, "a slice is a few milliseconds; the last one puts the answer together"


def test_a_page_of_many_rows(busy):
    rows = busy.query("router.link", "identity", offset=LINKS - 3, count=500)
    assert [row["identity"] for row in rows] == [str(number) for number in list(busy.core.links.by_identity)[-3:]]


def test_links_that_go_while_rows_are_made():
    desk = Desk(links=400)
    stays, goes = desk.connection(), desk.connection()
    kept = [desk.link(stays, "in", None) for _ in range(100)]
    for _ in range(200):
        desk.link(goes, "in", None)
    steps = desk.agent._types[PREFIX + "router.link"].query(
        decode(0, None, request({"operation": "QUERY"}, {"attributeNames": ["identity"]}))
    )
    next(steps)
    desk.core.receive(desk.workers[0], messages.Closed(conn=goes.number, error=None))
    octets = encode(result(steps), "r", None)
    assert [row[0] for row in Answer.of(octets).body["results"]] == [str(number) for number in kept]


def result(steps):
    """Return the value that a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def test_answers_in_the_making_are_bounded(busy):
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
        assert busy.went_on == 0
        busy.later.popleft()()
    assert busy.agent.ready()
    assert busy.went_on == 1
    while busy.later:
        busy.later.popleft()()
    assert len(busy.sent) == begun
    assert busy.went_on == 1
    assert all(len(Answer.of(octets).body["results"]) == LINKS for _, octets, _ in busy.sent)


def test_a_fault_is_answered_and_logged(monkeypatch):
    def broken(request, context):
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(operations.OPERATIONS, "BROKEN", broken)
    desk = Desk(log=VERBOSE)
    assert desk.ask("BROKEN").outcome == (500, "Internal Server Error")
    (entry,) = [entry for entry in desk.log.recent() if entry.level == "critical"]
    assert "ZeroDivisionError: oops" in entry.text
    assert desk.ask("GET-ANNOTATIONS").status == 200


def test_answers_go_where_the_request_came_from():
    desk = Desk()
    desk.raw(request({"operation": "GET-ANNOTATIONS"}, reply_to="somewhere"))
    assert [(address, near) for address, _, near in desk.sent] == [("somewhere", 1)]


def test_nobody_to_get_the_answer():
    desk = Desk()
    desk.reachable = False
    assert desk.ask("GET-ANNOTATIONS").status == 200


def test_further_answers(monkeypatch):
    """An operation may send several answers, with a subject."""
    kept = []

    def watch(request, context):
        kept.append((request, context))
        return Response()

    monkeypatch.setitem(operations.OPERATIONS, "WATCH", watch)
    desk = Desk()
    assert desk.ask("WATCH").status == 200
    given, context = kept[0]
    assert context.answer(given, Response.of(200, [[1.5, "text"]])) is True
    answer = Answer.of(desk.sent[-1][1])
    assert answer.body == [[1.5, "text"]]


def create(number, **more):
    return request(
        {"operation": "CREATE", "type": PREFIX + "router.config.address", "name": f"x{number}"},
        {"prefix": f"x{number}"},
        correlation_id=str(number),
        **more,
    )


def test_answers_that_wait_for_the_workers_are_bounded_for_each_connection():
    desk = Desk()
    asked = 0
    while desk.agent.ready(7):
        desk.agent.handle(LocalMessage(0, 7, create(asked)))
        desk.finish()  # a change that takes longer than a slice counts when it is made
        asked += 1
    assert asked == agents.MAX_WAITING
    assert not desk.sent, "no worker goes by them yet"
    assert desk.agent.ready(8), "others are not held up"
    desk.raw(request({"operation": "GET-ANNOTATIONS"}), 8)
    assert desk.agent.ready(7)
    assert desk.went_on == 1


def test_of_a_request_that_waits_little_is_kept():
    desk = Desk()
    large = "x" * (agents.MAX_WAITING_OCTETS // 4)
    for number in range(8):
        assert desk.agent.ready(7)
        octets = request(
            {"operation": "CREATE", "type": PREFIX + "router.config.address", "more": large}, {"prefix": f"x{number}"}
        )
        desk.agent.handle(LocalMessage(0, 7, octets))
    answers = desk.raw(request({"operation": "GET-ANNOTATIONS"}), 8)
    assert sorted(answer.status for answer in answers) == [200] + [201] * 8


def test_long_correlation_ids_count(monkeypatch):
    desk = Desk()
    monkeypatch.setattr(agents, "MAX_WAITING_OCTETS", 10_000)
    asked = 0
    while desk.agent.ready(7):
        octets = request(
            {"operation": "CREATE", "type": PREFIX + "router.config.address"},
            {"prefix": f"x{asked}"},
            correlation_id="c" * 3_000,
        )
        desk.agent.handle(LocalMessage(0, 7, octets))
        desk.finish()
        asked += 1
    assert asked == 4


def test_nothing_overtakes_a_change_that_waits():
    """A pending change holds up its own connection and no other."""
    desk = Desk()
    desk.live.hold()
    desk.agent.handle(LocalMessage(0, 7, create(0)))
    assert not desk.agent.ready(7)
    assert desk.agent.ready(8)
    desk.live.release()
    desk.loop.run_until_complete(asyncio.sleep(0))
    assert desk.agent.ready(7)
    (answer, _) = desk.raw(request({"operation": "GET-ANNOTATIONS"}), 8)
    assert answer.status in (200, 201)
    assert [address.prefix for address in desk.live.configuration.addresses][-1] == "x0"
