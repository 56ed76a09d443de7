"""Answers to accepted attaches: each waits until the workers concerned know its address, and no longer."""

import pytest

from sluice.supervisor.children.worker import WorkerFaultError
from tests.unit.supervisor.core_with_replicas import IN_PROCESS, CoreWithReplicas


@pytest.fixture
def router():
    return CoreWithReplicas()


def test_consumer_waits_for_all_workers_and_producer_for_own(router):
    conn = router.connect(0)
    router.attach(0, conn, "out", "a")
    router.attach(0, conn, "in", "b")
    router.flush()
    own = router.replicas[0]
    assert own.answers == []
    router.take(0)
    assert [answer.link for answer in own.answers] == [1]
    router.take(1)
    assert len(own.answers) == 1
    router.take(2)
    assert [answer.link for answer in own.answers] == [1, 0]


def test_producer_of_known_address_does_not_wait(router):
    conn = router.connect(0)
    router.attach(0, conn, "in", "a")
    router.settle()
    router.attach(0, conn, "in", "a")
    router.attach(0, conn, "in", None)
    router.flush()
    assert [answer.kind for answer in router.replicas[0].answers] == ["address", "address", "anonymous"]


def test_detached_link_gets_no_answer(router):
    conn = router.connect(0)
    link = router.attach(0, conn, "out", "a")
    router.attach(0, conn, "in", "b")
    router.flush()
    router.detach(0, conn, link)
    router.close(0, conn)
    router.settle()
    assert router.replicas[0].answers == []
    assert sorted(router.core.table.records) == IN_PROCESS


def test_lost_worker_does_not_block_answers(router):
    conn = router.connect(0)
    router.attach(0, conn, "out", "a")
    router.flush()
    router.take(0)
    router.take(1)
    assert router.replicas[0].answers == []
    router.kill(2)
    router.flush()
    assert len(router.replicas[0].answers) == 1
    assert router.respawned == 0
    router.take(0)
    assert router.respawned == 0
    router.take(1)
    assert router.respawned == 1


def test_slot_in_use_is_refused_and_worker_can_be_removed(router):
    conn = router.connect(0)
    router.attach(0, conn, "out", "a", slot=5, gen=7)
    with pytest.raises(WorkerFaultError, match="slot 5, generation 7 is already in use"):
        router.attach(0, conn, "out", "a", slot=5, gen=7)
    router.kill(0)
    router.settle()
    assert sorted(router.core.table.records) == IN_PROCESS


def test_link_is_up_once_its_answer_is_sent(router):
    """Management shows the link as active, and the supervisor may close it with an error, from then on."""
    conn = router.connect(0)
    links = router.replicas[0].worker.connections[conn].links
    consumer, anonymous = router.attach(0, conn, "out", "a"), router.attach(0, conn, "in", None)
    router.flush()
    assert (links[consumer].up, links[anonymous].up) == (False, True)
    router.settle()
    assert links[consumer].up


def test_producer_waits_for_the_id_of_its_address_at_its_own_worker_only(router):
    conn = router.connect(2)
    router.attach(2, conn, "in", "a")
    router.flush()
    router.take(0)
    router.take(1)
    assert router.replicas[2].answers == []
    router.take(2)
    (answer,) = router.replicas[2].answers
    assert answer.addr == router.core.table.records["M0a"].id
