"""Core without processes. Replicas, which apply the published deltas, play the workers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.control import messages
from sluice.supervisor.children.worker import WorkerCorruptError, WorkerFaultError, WorkerStage
from tests.unit.ops import wire
from tests.unit.supervisor.core_with_replicas import IN_PROCESS, CoreWithReplicas
from tests.unit.supervisor.harness import AppliedTable, configuration_text


@pytest.fixture
def router():
    return CoreWithReplicas()


def test_changes_of_wake_share_one_delta(router):
    epoch = router.core.journal.epoch
    conn = router.connect(0)
    for number in range(10):
        router.attach(0, conn, "out", f"a{number}")
    router.flush()
    assert router.core.journal.epoch == epoch + 1


def test_refusals_are_answered_at_once(router):
    conn = router.connect(1)
    router.attach(1, conn, "out", None)
    router.flush()
    (answer,) = router.replicas[1].answers
    assert answer == messages.Refused(conn, 0, "qd:no-route-to-dest", "No route to the destination node")


def test_id_is_reused_after_acknowledged_removal(router):
    conn = router.connect(0)
    link = router.attach(0, conn, "in", "a")
    router.settle()
    number = router.core.table.records["M0a"].id
    router.detach(0, conn, link)
    router.flush()
    router.take(0)
    router.take(1)
    router.attach(0, conn, "in", "b")
    assert router.core.table.records["M0b"].id != number
    router.settle()
    assert router.reset == [number]
    router.attach(0, conn, "in", "c")
    assert router.core.table.records["M0c"].id == number


def test_lost_workers_are_in_no_snapshot():
    router = CoreWithReplicas(2)
    router.kill(0)
    router.flush()  # settled only after the acknowledgement of the other worker
    router.core.receive(router.replicas[1].worker, messages.Resync())
    router.flush()
    assert router.replicas[1].table.workers == {1: (1, "up")}


def test_port_closed_by_malformed_record_names_writer(router):
    with pytest.raises(WorkerCorruptError, match="cut off") as caught:
        router.core.receive(router.replicas[1].worker, messages.PortClosed(2, 1, "cut off"))
    assert caught.value.worker is router.core.workers[2]


@pytest.mark.parametrize(("writer", "generation"), [(2, 7), (9, 1)], ids=["earlier-generation", "no-worker"])
def test_port_closed_towards_lost_worker_is_ignored(router, writer, generation):
    router.core.receive(router.replicas[1].worker, messages.PortClosed(writer, generation, "cut off"))
    router.settle()


def test_address_removals_follow_loss_of_worker(router):
    conn = router.connect(2)
    router.attach(2, conn, "out", "a")
    router.settle()
    before = len(router.replicas[0].ops)
    router.kill(2)
    router.settle()
    names = [op[0] for op in router.replicas[0].ops[before:]]
    assert names[:3] == ["-c", "worker", "-addr"]


def test_new_worker_serves_after_its_own_delta(router):
    router.kill(2)
    router.settle()
    worker = router.core.workers[2]
    assert (worker.generation, worker.stage) == (2, WorkerStage.SERVING)
    router.kill(2)
    router.flush()
    router.take(0, everything=True)
    router.take(1, everything=True)
    worker = router.core.workers[2]
    assert worker.stage.name == "LIVE"  # has its table, but not yet the delta about itself
    router.take(2)
    assert worker.stage.name == "SERVING"


def test_resync_replaces_table_of_worker(router):
    conn = router.connect(0)
    router.attach(0, conn, "out", "a")
    router.flush()
    lagging = router.replicas[2]
    lagging.queue.clear()
    lagging.ops = []
    router.core.receive(lagging.worker, messages.Resync())
    router.flush()
    router.settle()
    assert lagging.epoch == router.core.journal.epoch
    assert lagging.table.of("M0a") == router.replicas[0].table.of("M0a") != []
    assert len(router.replicas[0].answers) == 1


def test_worker_without_first_delta_serves_after_resync(router):
    router.kill(2)
    router.flush()
    router.take(0, everything=True)
    router.take(1, everything=True)
    fresh = router.replicas[2]
    assert fresh.worker.stage.name == "LIVE"
    fresh.queue.clear()
    router.core.receive(fresh.worker, messages.Resync())
    router.flush()
    assert fresh.worker.stage.name == "SERVING"


def test_snapshots_contain_in_process_addresses(router):
    for replica in router.replicas.values():
        attributes = {op[2]: op[3].get("inproc") for op in replica.ops if op[0] == "addr"}
        assert attributes == dict.fromkeys(reversed(IN_PROCESS), True)


def test_local_message_without_octets_is_refused(router):
    with pytest.raises(WorkerFaultError, match="came without its octets"):
        router.core.receive(router.replicas[0].worker, messages.Local("M0$management", 1))


def test_snapshot_holds_listeners_settings_and_exchanges():
    text = configuration_text() + (
        "exchange {\n name: x\n address: ex\n}\n"
        "exchange {\n name: y\n address: ex\n}\n"
        "binding {\n name: b\n exchangeName: x\n bindingKey: a.*\n nextHopAddress: hop\n}\n"
    )
    router = CoreWithReplicas(2, text)
    ops = router.replicas[0].ops
    (listener,) = [op for op in ops if op[0] == "profile"]
    assert (listener[1], listener[2]["linkCapacity"], listener[2]["role"]) == ("main", 250, "normal")
    (patterns,) = [op[1:] for op in ops if op[0] == "settings"]
    assert patterns[0][0][0] == "fallback/#"
    assert patterns[1] == "balanced"
    assert len([op for op in ops if op[0] == "exchange"]) == 1
    assert len([op for op in ops if op[0] == "bind"]) == 1


def test_identities_count_links_after_configured_objects():
    router = CoreWithReplicas(1)
    conn = router.connect(0)
    router.attach(0, conn, "in", None)
    router.attach(0, conn, "in", None)
    router.flush()
    assert [answer.identity for answer in router.replicas[0].answers] == [2, 3]


@pytest.mark.parametrize(
    "message",
    [
        messages.Log("NOWHERE", "info", ""),
        messages.Log("SERVER", "loud", ""),
        messages.Logged({"NOWHERE": [0] * 7}, []),
        messages.Logged({"SERVER": [0] * 6}, []),
    ],
)
def test_invalid_log_messages_are_refused(router, message):
    with pytest.raises(WorkerFaultError):
        router.core.receive(router.replicas[0].worker, message)


ACTIONS = ("connect", "consumer", "producer", "dynamic", "fallback", "detach", "close", "take", "flush", "kill")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(0, 7)), max_size=60))
def test_random_events_keep_replicas_consistent(actions):
    router = CoreWithReplicas()
    connections: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for action, index, number in actions:
        replica = router.replicas.get(index)
        if replica is None or not replica.worker.live:
            router.settle()
            continue
        known = [conn for conn in connections[index] if conn in replica.worker.connections]
        links = sorted(replica.links)
        if action == "connect":
            connections[index].append(router.connect(index))
        elif action == "take":
            router.take(index)
        elif action == "flush":
            router.flush()
        elif action == "kill":
            router.kill(index)
        elif action == "detach" and links:
            router.detach(index, *links[number % len(links)])
        elif known:
            conn = known[number % len(known)]
            if action == "consumer":
                router.attach(index, conn, "out", f"a{number}")
            elif action == "producer":
                router.attach(index, conn, "in", f"a{number}")
            elif action == "dynamic":
                router.attach(index, conn, "out", None, dynamic=True)
            elif action == "fallback":
                router.attach(index, conn, "out", f"fallback/{number % 2}", caps=[["qd.fallback"], False])
            elif action == "close":
                router.close(index, conn)
    router.settle()
    reference = router.replicas[0].table
    assert set(reference.addresses.values()) == set(router.core.table.records)
    for replica in router.replicas.values():
        assert replica.table.addresses == reference.addresses
        assert replica.table.consumers == reference.consumers
        answered = {(answer.conn, answer.link) for answer in replica.answers}
        assert answered >= set(replica.links), "a link without an answer"
    snapshot = AppliedTable(wire(router.core.events.snapshot_ops()))
    assert (snapshot.addresses, snapshot.consumers) == (reference.addresses, reference.consumers)
    for index, replica in list(router.replicas.items()):
        for conn in list(replica.worker.connections):
            router.close(index, conn)
    router.settle()
    assert sorted(router.core.table.records) == IN_PROCESS
