"""fe2o3-amqp, a client for Rust, through routers and edge routers, alone and together with other libraries."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.conftest import ClientLauncher
from tests.system.edges import EdgeNetwork, edge, with_edges
from tests.system.router import SETTINGS, RouterProcess, Section, listener

COUNT = 50
#: Messages that are sent without waiting for outcomes; the router gives producers credit for 250.
MANY = 2000
ACCEPTED = ["accepted"]
#: Seconds of idleTimeoutSeconds of the listener `short`, and milliseconds of the client's own idle time-out.
IDLE = 1
IDLE_OF_CLIENT = 1000
#: Milliseconds for which a client sends nothing but heartbeats.
PAUSE = 2500
#: Octets: one frame, more than a frame of 16 KiB, more than the router holds back before a message streams.
SIZES = [100, 100_000, 5_000_000]
LISTENERS: list[Section] = [listener("short", idleTimeoutSeconds=IDLE), *SETTINGS]
#: Outcomes that a receiver chooses, and what the sender is told.
OUTCOMES = {
    "accept": ACCEPTED,
    "reject": ["rejected", "amqp:not-allowed", "not today"],
    "release": ["released"],
    "modify": ["modified", True, True],
}


class SenderReceiverRouters:
    """Routers at which messages enter and leave; they may be the same."""

    def __init__(self, into: RouterProcess, out: RouterProcess) -> None:
        self.into = into
        self.out = out


def kind(name: str) -> Any:
    """A kind of path. The tests of each kind share their routers, and so a process of pytest-xdist."""
    return pytest.param(name, marks=pytest.mark.xdist_group(f"rust-{name}"))


@pytest.fixture(scope="module", params=[kind(name) for name in ("1-worker", "3-workers", "from-edge", "to-edge")])
def _path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SenderReceiverRouters]:
    site = EdgeNetwork()

    def start(name: str, sections: list[Section], workers: int = 3) -> RouterProcess:
        folder = tmp_path_factory.mktemp(f"router{name}-")
        router = site.routers[name] = RouterProcess(folder, [*sections, *LISTENERS], workers)
        router.start()
        return router

    try:
        if request.param.endswith("edge"):
            interior = start("A", with_edges("A"))
            at_edge = start("E", edge("E", interior))
            site.wait_reached("E")
            yield (
                SenderReceiverRouters(at_edge, interior)
                if request.param == "from-edge"
                else SenderReceiverRouters(interior, at_edge)
            )
        else:
            alone = start("Q", [listener()], int(request.param[0]))
            yield SenderReceiverRouters(alone, alone)
    finally:
        site.stop()


@pytest.fixture
def path(_path: SenderReceiverRouters, request: pytest.FixtureRequest) -> SenderReceiverRouters:
    """Path of a module's messages: through a router of one or three workers, from or to an edge router."""
    request.node.routers = list({_path.into, _path.out})
    return _path


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test has used."""
    return "balanced/" + re.sub(r"\W+", "-", request.node.name)


#: Tests of one connection alone need one kind of router only.
one_router = pytest.mark.parametrize("_path", [kind("3-workers")], indirect=True)


@one_router
@pytest.mark.parametrize("mechanism", ["none", "ANONYMOUS"])
def test_connect_without_user(path: SenderReceiverRouters, rust: ClientLauncher, address: str, mechanism: str) -> None:
    where = f"amqp://127.0.0.1:{path.into.port}?mechanism={mechanism}"
    receiver = rust("receive", where, address, COUNT)
    receiver.wait_for("attached")
    assert rust("send", where, address, COUNT).result() == COUNT
    assert receiver.result() == [str(n) for n in range(COUNT)]


@pytest.mark.parametrize("how", ["send", "send-settled"])
def test_send_arrives_in_order(path: SenderReceiverRouters, rust: ClientLauncher, address: str, how: str) -> None:
    receiver = rust("receive", path.out.port, address, COUNT)
    receiver.wait_for("attached")
    assert rust(how, path.into.port, address, COUNT).result() == COUNT
    assert receiver.result() == [str(n) for n in range(COUNT)]


@pytest.mark.parametrize("credit", [100, 1000])
def test_pipelined_sends_arrive_in_order(
    path: SenderReceiverRouters, rust: ClientLauncher, address: str, credit: int
) -> None:
    """With less credit than messages the client gives it again by itself."""
    receiver = rust("receive", path.out.port, address, MANY, credit)
    receiver.wait_for("attached")
    assert rust("pipeline", path.into.port, address, MANY).result() == {"accepted": MANY}
    assert receiver.result() == [str(n) for n in range(MANY)]


def test_manual_credit_limits_deliveries(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    """Batches are accepted with one disposition each."""
    receiver = rust("batches", path.out.port, address, 3, 4)
    receiver.wait_for("attached")
    assert rust("pipeline", path.into.port, address, 12).result() == {"accepted": 12}
    assert receiver.result() == [[str(4 * batch + n) for n in range(4)] for batch in range(3)]


def test_drain_takes_credit_back(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    assert rust("drain", path.into.port, address, 3).result() == ["0", "1", "2", "late"]


@pytest.mark.parametrize("of_receiver", ["first", "second"])
@pytest.mark.parametrize("of_sender", ["first", "second"])
def test_sender_learns_each_outcome(
    path: SenderReceiverRouters, rust: ClientLauncher, address: str, of_sender: str, of_receiver: str
) -> None:
    """Settle modes of either link: with second, the receiver settles after the sender."""
    receiver = rust("dispose", path.out.port, address, of_receiver, *OUTCOMES)
    receiver.wait_for("attached")
    sender = rust("outcomes", path.into.port, address, of_sender, *OUTCOMES)
    assert sender.result() == list(OUTCOMES.values())
    assert receiver.result() == list(OUTCOMES)


def test_large_messages_arrive_unchanged(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    receiver = rust("receive-large", path.out.port, address, len(SIZES))
    receiver.wait_for("attached")
    assert rust("send-large", path.into.port, address, *SIZES).result() == [ACCEPTED] * len(SIZES)
    assert receiver.result() == SIZES


def test_large_messages_cross_small_frames_and_windows(
    path: SenderReceiverRouters, rust: ClientLauncher, address: str
) -> None:
    where = f"amqp://127.0.0.1:{path.out.port}?frame=512&window=7"
    receiver = rust("receive-large", where, address, 2)
    receiver.wait_for("attached")
    assert rust("send-large", path.into.port, address, *SIZES[:2]).result() == [ACCEPTED] * 2
    assert receiver.result() == SIZES[:2]


def test_sections_arrive_unchanged(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    receiver = rust("receive-sections", path.out.port, address)
    receiver.wait_for("attached")
    assert rust("send-sections", path.into.port, address).result() == ACCEPTED
    assert receiver.result() == []


def test_receiver_gets_no_message_above_its_limit(
    path: SenderReceiverRouters, rust: ClientLauncher, address: str
) -> None:
    receiver = rust("receive-limited", path.out.port, address, 1, 300)
    receiver.wait_for("attached")
    too_long, short = rust("outcomes", path.into.port, address, "first", "x" * 500, "short").result()
    assert too_long[:2] == ["rejected", "amqp:link:message-size-exceeded"]
    assert short == ACCEPTED
    assert receiver.result() == ["short"]


def test_anonymous_sender_reaches_receivers(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    receiver = rust("receive", path.out.port, address, 3)
    receiver.wait_for("attached")
    # A sender with an address waits until its router has a way to the receiver; one without does not.
    assert rust("send", path.into.port, address, 1).result() == 1
    assert rust("anonymous", path.into.port, address, "one", "two").result() == [ACCEPTED] * 2
    assert receiver.result() == ["0", "one", "two"]
    assert rust("anonymous", path.into.port, f"{address}-nobody", "three").result() == [["released"]]


def test_requests_are_answered(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    """Answers go to a dynamic address, from a sender without an address."""
    rust("server", path.out.port, address).wait_for("attached")
    clients = [rust("request", path.into.port, address, "one", "two", "three") for _ in range(2)]
    for client in clients:
        assert client.result() == ["ONE", "TWO", "THREE"]


def test_multicast_reaches_each_receiver(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    multicast = address.replace("balanced", "multicast")
    receivers = [rust("receive", path.out.port, multicast, COUNT) for _ in range(3)]
    for receiver in receivers:
        receiver.wait_for("attached")
    assert rust("send", path.into.port, multicast, COUNT).result() == COUNT
    for receiver in receivers:
        assert receiver.result() == [str(n) for n in range(COUNT)]


def test_links_reattach_after_detach(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    """The client detaches its links without closing them, and attaches them again by the same names."""
    assert rust("reattach", path.into.port, address, COUNT).result() == [str(n) for n in range(COUNT)] * 2


def test_unsettled_message_is_modified_when_receiver_detaches(
    path: SenderReceiverRouters, rust: ClientLauncher, address: str
) -> None:
    """The client attaches again with the message in its map of unsettled deliveries, which the router has forgotten."""
    receiver = rust("resume", path.out.port, address)
    receiver.wait_for("attached")
    assert rust("outcomes", path.into.port, address, "first", "one").result() == [["modified", True, False]]
    receiver.wait_for("resumed")
    assert rust("outcomes", path.into.port, address, "first", "two").result() == [ACCEPTED]
    assert receiver.result() == ["one", "two"]


@one_router
def test_refused_links_report_conditions(path: SenderReceiverRouters, rust: ClientLauncher) -> None:
    for command in ("send", "receive"):
        assert "Node not found" in rust(command, path.into.port, "unavailable/rust", 1).failure()
    assert "coordinator must be configured" in rust("transact", path.into.port, "x", 1).failure()


@one_router
def test_heartbeats_keep_connection_open(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    """Router and client are silent for longer than the idle time-out of either."""
    receiver = rust("receive", path.into.port, address, 2)
    receiver.wait_for("attached")
    where = f"amqp://127.0.0.1:{path.into.ports['short']}?idle={IDLE_OF_CLIENT}"
    assert rust("pause", where, address, PAUSE).result() == 2
    assert receiver.result() == ["before", "after"]


@one_router
def test_silent_client_is_closed(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    receiver = rust("receive", path.into.ports["short"], address, 1)
    receiver.wait_for("attached")
    before = len(path.into.lines)
    os.kill(receiver.process.pid, signal.SIGSTOP)
    path.into.wait_log("local-idle-timeout expired", after=before)
    os.kill(receiver.process.pid, signal.SIGCONT)
    assert "local-idle-timeout expired" in receiver.failure()


@pytest.mark.parametrize("_path", [kind("1-worker")], indirect=True)
def test_client_leaves_silent_router(path: SenderReceiverRouters, rust: ClientLauncher, address: str) -> None:
    where = f"amqp://127.0.0.1:{path.into.port}?idle={IDLE_OF_CLIENT}"
    receiver = rust("receive", where, address, 1)
    receiver.wait_for("attached")
    workers = path.into.worker_pids()
    try:
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        assert "SessionStopped" in receiver.failure()
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


@one_router
@pytest.mark.parametrize("other", ["jms", "go"])
def test_messages_to_other_client_and_back(
    path: SenderReceiverRouters, rust: ClientLauncher, other: str, address: str, request: pytest.FixtureRequest
) -> None:
    clients: ClientLauncher = request.getfixturevalue(other)
    for number, (sender, receiver) in enumerate(((rust, clients), (clients, rust))):
        taking = receiver("receive", path.out.port, f"{address}-{number}", COUNT)
        taking.wait_for("attached")
        assert sender("send", path.into.port, f"{address}-{number}", COUNT).result() == COUNT
        assert taking.result() == [str(n) for n in range(COUNT)]


def test_requests_to_proton_and_from_it(
    path: SenderReceiverRouters, rust: ClientLauncher, proton: ClientLauncher, address: str
) -> None:
    proton("server", path.out.port, f"{address}-proton").wait_for("attached")
    rust("server", path.out.port, f"{address}-rust").wait_for("attached")
    assert rust("request", path.into.port, f"{address}-proton", "one", "two").result() == ["ONE", "TWO"]
    assert proton("client", path.into.port, f"{address}-rust", "one", "two").result() == ["ONE", "TWO"]
