"""The real supervisor, zygote and channels, with stand-in workers."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.unit.supervisor.harness import (
    PATIENCE,
    StandInClient,
    SupervisorProcess,
    attach_fields,
    configuration_text,
    until,
)

pytestmark = pytest.mark.starts


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(text=None, workers=2, command=(), **environment):
        supervisor = SupervisorProcess(tmp_path, text or configuration_text(workers), command, **environment)
        started.append(supervisor)
        return supervisor

    yield begin
    for supervisor in started:
        supervisor.close()


@pytest.fixture
def clients():
    opened = []

    def connect(supervisor):
        client = StandInClient(supervisor.port())
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


def connect_to_both_workers(supervisor, connect):
    first, second = connect(supervisor), connect(supervisor)
    assert {first.worker, second.worker} == {0, 1}
    return first, second


def reconnect(supervisor, connect):
    """Connect a client after a worker was killed. A connection handed to a worker just before its exit is lost with
    it."""

    def attempt():
        try:
            return connect(supervisor)
        except ConnectionError:
            return None

    return until(attempt, "no connection")


def children(supervisor):
    return psutil.Process(supervisor.process.pid).children(recursive=True)


def ended(process):
    """Return True if the process has exited, even if nobody has read its exit status."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_start_is_logged_in_order(start):
    supervisor = start()
    supervisor.port()
    texts = "\n".join(supervisor.lines)
    order = ["Container Name: QDR", "Standalone mode", "Version: ", "Configured Listener", "Operational, 2",
             "Process VmSize", "Listening on 127.0.0.1"]  # fmt: skip
    places = [texts.index(text) for text in order]
    assert places == sorted(places)
    assert f"(process ID {supervisor.process.pid})" in texts
    assert supervisor.lines[-1].endswith("(main)")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGQUIT, 0), (signal.SIGINT, -signal.SIGINT)]
)
def test_signals_end_supervisor_without_leftovers(start, clients, number, status):
    supervisor = start()
    client = clients(supervisor)
    processes = children(supervisor)
    assert len(processes) == 3
    assert supervisor.end(number) == status
    assert client.closed_by_peer()
    until(lambda: all(map(ended, processes)), "processes are left")
    supervisor.wait_for("SERVER .notice. Shut Down")
    supervisor.wait_for(r"\[C1\] Closing connection on shutdown")
    assert not [line for line in supervisor.lines if "did not exit within" in line]


def test_sighup_keeps_supervisor_running(start, clients):
    supervisor = start()
    clients(supervisor)
    supervisor.process.send_signal(signal.SIGHUP)
    clients(supervisor)
    assert supervisor.end(signal.SIGTERM) == 0


def test_killed_supervisor_leaves_no_processes(start):
    supervisor = start()
    supervisor.port()
    processes = children(supervisor)
    assert len(processes) == 3
    supervisor.end(signal.SIGKILL)
    until(lambda: all(map(ended, processes)), "processes are left")


def test_connections_are_spread_and_numbered(start, clients):
    supervisor = start()
    opened = [clients(supervisor) for _ in range(6)]
    assert [client.number for client in opened] == [1, 2, 3, 4, 5, 6]
    assert sorted(client.worker for client in opened) == [0, 0, 0, 1, 1, 1]
    opened[0].opened()
    supervisor.wait_for(r"SERVER \(info\) \[C6\] Accepted connection to 127\.0\.0\.1:\d+ from 127\.0\.0\.1:\d+")
    supervisor.wait_for(r"\[C1\] Connection Opened: dir=in host=127\.0\.0\.1:\d+ vhost= encrypted=no auth=no "
                        r"user=anonymous container_id=c props=$")  # fmt: skip
    opened[0].close()
    supervisor.wait_for(r"ROUTER_CORE \(info\) \[C1\] Connection Closed")


def test_attached_consumer_is_known_to_all_workers(start, clients):
    first, second = connect_to_both_workers(supervisor := start(), clients)
    for number in range(50):
        link = first.attach("out", f"queue.{number}")
        answer = first.receive("attached")
        assert (answer["link"], answer["kind"], answer["phase"]) == (link, "address", 0)
        table = second.table()
        assert table.addresses[answer["addr"]] == f"M0queue.{number}"
        assert table.of(f"M0queue.{number}") == [(first.worker, link, (1 << 20) + link)]
    supervisor.wait_for(r"ROUTER_CORE \(info\) \[C1\]\[L2\] Link attached: dir=out source=")


def test_links_are_removed_with_connection(start, clients):
    first, second = connect_to_both_workers(start(), clients)
    first.attach("out", "queue")
    first.attach("in", "other")
    first.receive("attached")
    first.receive("attached")
    assert second.table().of("M0other") == []
    first.close()
    until(lambda: second.table().of("M0queue") is None and second.table().of("M0other") is None, "addresses stay")


def test_address_outlives_link_while_it_has_another(start, clients):
    first, second = connect_to_both_workers(start(), clients)
    link = first.attach("out", "queue")
    second.attach("in", "queue")
    number = first.receive("attached")["addr"]
    assert second.receive("attached")["addr"] == number
    first.send(t="detach", link=link)
    until(lambda: second.table().of("M0queue") == [], "consumer stays")
    first.attach("out", "queue")
    assert first.receive("attached")["addr"] == number


def test_killed_worker_is_replaced_and_removed(start, clients):
    supervisor = start()
    victim, survivor = connect_to_both_workers(supervisor, clients)
    victim.attach("out", "queue")
    survivor.attach("out", "queue")
    victim.receive("attached")
    survivor.receive("attached")
    died = time.monotonic()
    victim.send(t="die")
    assert victim.closed_by_peer()
    until(lambda: survivor.table().workers[victim.worker] == (2, "up"), "no second generation")
    assert time.monotonic() - died < 2
    table = survivor.table()
    assert [consumer[0] for consumer in table.of("M0queue")] == [survivor.worker]
    supervisor.wait_for(rf"Worker {victim.worker} \(process {victim.pid}\) crashed with 1 connections")
    replacement = until(lambda: (c := reconnect(supervisor, clients)).worker == victim.worker and c, "not used")
    assert replacement.pid != victim.pid
    assert replacement.table().of("M0queue") == table.of("M0queue")
    replacement.attach("out", "queue")
    assert replacement.receive("attached")["kind"] == "address"


def test_repeated_worker_exits_are_survived(start, clients):
    supervisor = start()
    survivor = clients(supervisor)
    for _ in range(6):
        victim = until(lambda: (c := reconnect(supervisor, clients)).worker != survivor.worker and c, "not replaced")
        victim.send(t="die")
        assert victim.closed_by_peer()
        survivor.attach("out", "queue")  # answered whether the other worker is dead, starting or alive
        survivor.receive("attached")
    assert supervisor.end(signal.SIGTERM) == 0


def test_simultaneous_exit_of_all_workers_is_survived(start, clients):
    supervisor = start()
    first, second = connect_to_both_workers(supervisor, clients)
    first.send(t="die")
    second.send(t="die")
    assert first.closed_by_peer()
    assert second.closed_by_peer()
    assert reconnect(supervisor, clients).pid not in (first.pid, second.pid)
    supervisor.wait_for("a new one replaces it", 2)


def test_exit_of_only_worker_is_survived(start, clients):
    supervisor = start(workers=1)
    client = clients(supervisor)
    client.send(t="die")
    assert client.closed_by_peer()
    assert reconnect(supervisor, clients).pid != client.pid


def test_worker_exits_under_load_leave_no_state(start, clients):
    """At any moment of a worker's exit, each attach is answered or its connection closed, and no state is left."""
    supervisor = start()
    port = supervisor.port()
    outcomes = []

    def user(seed):
        random = Random(seed)
        for _ in range(100):
            try:
                client = StandInClient(port)
                slots = range(client.number * 8, client.number * 8 + random.randint(1, 6))
                for slot in slots:
                    client.attach(random.choice(("in", "out")), f"queue.{random.randint(0, 20)}", slot=slot)
                for _ in slots:
                    client.receive("attached")
                if random.random() < 0.03:
                    client.send(t="die")
                client.close()
                outcomes.append("answered")
            except ConnectionError:
                outcomes.append("lost")

    users = [threading.Thread(target=user, args=(seed,)) for seed in range(6)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join()
    assert len(outcomes) == 600  # a timeout would have ended a user early
    assert outcomes.count("answered") > 300
    client = reconnect(supervisor, clients)
    until(lambda: sorted(client.table().addresses.values()) == ["L$management", "M0$management"], "addresses are left")
    assert not [line for line in supervisor.lines if "critical" in line]


def test_worker_failing_at_start_ends_router(start):
    supervisor = start(SLUICE_STANDIN_FAULT="start")
    assert supervisor.process.wait(PATIENCE) == 1
    supervisor.wait_for(r"SERVER \(critical\) Workers exited 5 times within 10 seconds before they were ready")


def test_malformed_message_kills_its_worker(start, clients):
    supervisor = start()
    client = clients(supervisor)
    client.send(t="detach")  # without a link
    assert client.closed_by_peer()
    log_pattern = r"SERVER \(critical\) Worker \d .* sent a bad message: "
    supervisor.wait_for(log_pattern + r"events of a worker: .*missing required field `link` .*'detach'")
    reconnect(supervisor, clients)


def test_message_with_internal_error_affects_no_other(start, clients):
    supervisor = start(FAULTY_ADDRESS="x")
    client = clients(supervisor)
    client.opened()
    lines = [attach_fields(7, "in", "x"), attach_fields(8, "in", "y")]
    # both lines go into one message
    client.socket.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert client.receive("attached")["link"] == 8
    supervisor.wait_for("SERVER .critical. Internal error while handling message attach of worker")


def test_taken_port_ends_router(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = configuration_text().replace("port: 0", f"port: {port}")
        supervisor = start(text)
        assert supervisor.process.wait(PATIENCE) == 1
    supervisor.wait_for(rf"SERVER \(error\) Listener error on 127\.0\.0\.1:{port}: Address already in use")
    supervisor.wait_for(rf"SERVER \(critical\) Shutting down, required listener failed 127\.0\.0\.1:{port}")


def test_missing_shared_memory_ends_router(start):
    supervisor = start(command=("sh", "-c", 'ulimit -f 0; exec "$@"', "sh"))
    assert supervisor.process.wait(PATIENCE) == 1
    supervisor.wait_for(r"SERVER \(critical\) The router cannot start: .*memory region: size of \d+ octets: ")


def test_unforkable_worker_is_started_later(start, clients):
    """The system refuses to fork for a while. The router continues with the remaining workers."""
    supervisor = start()
    victim, survivor = connect_to_both_workers(supervisor, clients)
    (zygote,) = psutil.Process(supervisor.process.pid).children()
    soft, hard = zygote.rlimit(psutil.RLIMIT_NOFILE)
    zygote.rlimit(psutil.RLIMIT_NOFILE, (3, hard))  # cannot receive the hand-over socket
    victim.send(t="die")
    assert victim.closed_by_peer()
    supervisor.wait_for(rf"SERVER \(error\) Worker {victim.worker} cannot be started: Too many open files")
    survivor.attach("out", "queue")
    survivor.receive("attached")
    zygote.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    until(lambda: survivor.table().workers[victim.worker][1] == "up", "not replaced")


def test_missing_worker_module_ends_router(start):
    supervisor = start(WORKER_MODULE="no.such.module")
    assert supervisor.process.wait(PATIENCE) == 1
    supervisor.wait_for("ModuleNotFoundError: No module named 'no'")
    supervisor.wait_for(r"SERVER \(critical\) The process that starts workers has exited. Shutting down")


def test_processes_have_distinct_command_lines(start):
    """Scripts find a router by its command line, which must be the supervisor's alone."""
    supervisor = start()
    supervisor.port()
    process = psutil.Process(supervisor.process.pid)

    def shown(one):
        with open(f"/proc/{one.pid}/cmdline", "rb") as line:
            return line.read()

    assert process.cmdline() == list(supervisor.process.args)
    (zygote,) = process.children()
    workers = zygote.children()
    assert workers
    assert shown(zygote) == b"sluice: zygote\0"
    assert sorted(map(shown, workers)) == [b"sluice: worker %d\0" % number for number in range(len(workers))]


def test_killed_zygote_ends_router(start):
    supervisor = start()
    supervisor.port()
    (zygote,) = psutil.Process(supervisor.process.pid).children()
    zygote.kill()
    assert supervisor.process.wait(PATIENCE) == 1
    supervisor.wait_for(r"SERVER \(critical\) The process that starts workers has exited. Shutting down")


def test_hung_worker_is_replaced_and_blocks_no_answer(start, clients):
    supervisor = start(DEADLINE="0.5")
    hung, other = connect_to_both_workers(supervisor, clients)
    os.kill(hung.pid, signal.SIGSTOP)
    other.attach("out", "queue")
    assert other.receive("attached")["kind"] == "address"
    supervisor.wait_for(rf"Worker {hung.worker} \(process {hung.pid}\) has not acknowledged a change")
    until(lambda: other.table().workers[hung.worker] == (2, "up"), "not replaced")


def test_hung_worker_gets_no_connections_and_is_replaced(start, clients):
    supervisor = start(PROBE="0.4")
    hung, other = connect_to_both_workers(supervisor, clients)
    os.kill(hung.pid, signal.SIGSTOP)
    sockets = [socket.create_connection(("127.0.0.1", supervisor.port()), PATIENCE) for _ in range(4)]
    for client in sockets:  # connections handed to the hung worker are taken back
        with client, client.makefile("r") as lines:
            assert json.loads(lines.readline())["worker"] == other.worker
    supervisor.wait_for(rf"Worker {hung.worker} \(process {hung.pid}\) has not responded for \d+ seconds and gets")
    assert clients(supervisor).worker == other.worker
    supervisor.wait_for(rf"Worker {hung.worker} \(process {hung.pid}\) has not responded for \d+ seconds and is killed")
    supervisor.wait_for(rf"Worker {hung.worker} \(process {hung.pid}\) crashed with 1 connections")
    until(lambda: other.table().workers[hung.worker] == (2, "up"), "not replaced")


def test_worker_hung_for_short_time_is_used_again(start, clients):
    supervisor = start(workers=1, PROBE="0.4")
    only = clients(supervisor)
    os.kill(only.pid, signal.SIGSTOP)
    supervisor.wait_for("gets no connections meanwhile")
    waiting = socket.create_connection(("127.0.0.1", supervisor.port()), PATIENCE)
    os.kill(only.pid, signal.SIGCONT)
    supervisor.wait_for(rf"Worker 0 \(process {only.pid}\) responds again")
    with waiting, waiting.makefile("r") as lines:
        assert json.loads(lines.readline())["pid"] == only.pid
    assert only.table().workers[0] == (1, "up")


def test_stopped_router_kills_no_worker(start, clients):
    """The router is stopped for longer than a worker may be silent. The processes continue in any order."""
    supervisor = start(PROBE="0.4")
    first, second = connect_to_both_workers(supervisor, clients)
    processes = [supervisor.process.pid, first.pid, second.pid]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.5)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    first.attach("out", "queue")
    assert first.receive("attached")["kind"] == "address"
    time.sleep(1)  # two probes
    assert not [line for line in supervisor.lines if "responded" in line]
    assert second.table().workers[first.worker] == (1, "up")


def test_worker_hung_at_start_is_replaced(start, clients):
    supervisor = start(DEADLINE="0.5", SLUICE_STANDIN_FAULT="hang")
    clients(supervisor)
    supervisor.wait_for(r"Worker \d \(process \d+\) is not ready after", 2)


def test_workers_hung_at_start_do_not_end_router(start):
    """Hung workers may wait for a descriptor of the supervisor. Workers that exit on their own would end the router."""
    supervisor = start(DEADLINE="0.1", SLUICE_STANDIN_FAULT="hang always")
    supervisor.wait_for(r"Worker \d \(process \d+\) is not ready after", 8)
    assert not [line for line in supervisor.lines if "Shutting down" in line]


def test_connections_beyond_descriptors_are_refused_temporarily(start, clients):
    supervisor = start()
    supervisor.port()
    process = psutil.Process(supervisor.process.pid)
    idle = min(process.num_fds() for _ in range(100))  # a file may be open for a moment, as for the history
    first = clients(supervisor)
    until(lambda: process.num_fds() == idle, "descriptors of a connection that was handed over")
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
    free = min(set(range(max(used) + 2)) - used)
    process.rlimit(psutil.RLIMIT_NOFILE, (free, hard))
    refused = socket.create_connection(("127.0.0.1", supervisor.port()), PATIENCE)
    with refused:
        assert refused.recv(1) == b""
    supervisor.wait_for(r"SERVER \(error\) New connections are refused: Too many open files")
    process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    clients(supervisor)
    first.attach("out", "queue")
    first.receive("attached")


def test_serving_router_has_one_named_socket_which_other_users_cannot_reach(start):
    """No other program may be able to connect to a socket, except the user's own to the socket of take-overs."""
    supervisor = start()
    supervisor.port()
    pids = [supervisor.process.pid, *(child.pid for child in children(supervisor))]
    inodes = {
        link.partition("[")[2].rstrip("]")
        for pid in pids
        for each in Path(f"/proc/{pid}/fd").iterdir()
        if (link := _link(each)).startswith("socket:")
    }
    with open("/proc/net/unix") as listing:
        rows = [line.split() for line in listing]
    names = {row[7] for row in rows if len(row) > 7 and row[6] in inodes}
    assert not any(name.startswith("@") for name in names)
    offer = {name for name in names if Path(name).exists()}
    assert {Path(name).name for name in offer} == {"takeover"}
    assert len(names - offer) == 2, "each worker has a socket for deltas"
    folder = Path(offer.pop()).parent.stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (os.geteuid(), 0o700)
    assert supervisor.end(signal.SIGTERM) == 0


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # closed in the meantime
        return ""
