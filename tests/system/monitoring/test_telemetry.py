"""Telemetry sums equal the clients' counts through loss of links, of the process, and of disk space."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.peer import frames, message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.monitoring.telemetry import rows, total, wait_total
from tests.system.router import FILES, SETTINGS, RouterProcess, Section, listener, poll

OUTCOMES = {"accepted": frames.ACCEPTED, "rejected": frames.REJECTED, "released": frames.RELEASED}


def sections(path: Path, **more: object) -> list[Section]:
    telemetry = {"path": path, "interval": 1, "fileSeconds": 1, **more}
    return [listener(), *SETTINGS, ("telemetry", telemetry)]


def process_of(router: RouterProcess) -> psutil.Process:
    """Return the telemetry process."""
    found = [each for each in router.family() if "sluice.supervisor.telemetry.process" in _words(each)]
    assert len(found) == 1
    return found[0]


def _words(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), "sluice.supervisor.telemetry.process" if process.name().endswith("-tel") else ""]
    except psutil.Error:
        return []


def pass_some(router: RouterProcess, address: str, count: int, outcome: str = "accepted") -> None:
    """Send and receive `count` messages over two new connections, then close both."""
    into, out = AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)
    receiver, sender = out.receiver(address, count), into.sender(address)
    for number in range(count):
        delivery = sender.send(message.message(number))
        receiver.next().settle(OUTCOMES[outcome])
        assert sender.outcome(delivery).name == outcome
    for peer in (into, out):
        peer.close()


def test_telemetry_sums_equal_the_counts_of_clients(start: Start, tmp_path: Path, workers: int) -> None:
    """Both links that stay attached and links detached between two samples are counted."""
    path = tmp_path / "telemetry"
    router = start(sections(path), workers)
    counts = {f"balanced/a{number}": 10 + number for number in range(8)}
    for address, count in counts.items():
        pass_some(router, address, count)
    pass_some(router, "balanced/r", 7, "rejected")
    into, out = AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)
    receiver, sender = out.receiver("balanced/stays", 100), into.sender("balanced/stays")
    for _ in range(25):
        sender.send(message.message("x"), settled=True)
        receiver.next()
    router.stop()

    links, flows = rows(path, "fact_link"), rows(path, "fact_flow")
    for address, count in {**counts, "balanced/r": 7, "balanced/stays": 25}.items():
        assert total(links, "deliveries", address=address, dir="in") == count
        assert total(links, "deliveries", address=address, dir="out") == count
        assert total(flows, "deliveries", address=address) == count
    for address, count in counts.items():
        assert total(links, "accepted", address=address, dir="in") == count
        assert sum(sum(dict(row["settle_hist"] or ()).values()) for row in links if row["address"] == address) == count
    assert total(links, "rejected", address="balanced/r", dir="in") == 7
    assert total(links, "presettled", address="balanced/stays", dir="out") == 25
    all_workers = rows(path, "fact_worker")
    assert total(all_workers, "accepted") == sum(counts.values())
    assert total(all_workers, "ingress") == sum(counts.values()) + 7 + 25
    assert {row["worker"] for row in all_workers} == set(range(workers))
    crossing = sum(row["deliveries"] for row in flows if row["worker_in"] != row["worker_out"])
    assert total(rows(path, "fact_ring"), "transfers") == crossing
    assert (crossing > 0) == (workers > 1)

    names = {row["link_id"]: row["address"] for row in rows(path, "dim_link")}
    assert all(names[flow["link_out"]] == flow["address"] for flow in flows)
    assert all(names[flow["link_in"]] == flow["address"] for flow in flows if flow["link_in"] is not None)
    containers = {row["connection_id"] for row in rows(path, "dim_connection")}
    assert {flow["connection_out"] for flow in flows} <= containers
    kinds = [row["kind"] for row in rows(path, "event")]
    assert kinds.count("connection open") == 20
    assert kinds.count("connection close") == 20


@pytest.mark.long
def test_telemetry_process_killed_loses_and_repeats_nothing(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "telemetry"
    router = start(sections(path))
    pass_some(router, "balanced/d", 10)
    wait_total(path, "fact_flow", "deliveries", 10)
    first = process_of(router)
    os.kill(first.pid, signal.SIGKILL)
    router.wait_log("telemetry process is restarted")
    pass_some(router, "balanced/d", 15)
    wait_total(path, "fact_flow", "deliveries", 25)
    assert process_of(router).pid != first.pid
    pass_some(router, "balanced/d", 5)
    router.stop()
    assert total(rows(path, "fact_flow"), "deliveries", address="balanced/d") == 30
    assert total(rows(path, "fact_worker"), "ingress") == 30
    kinds = [row["kind"] for row in rows(path, "event")]
    assert (kinds.count("connection open"), kinds.count("connection close")) == (6, 6)


def test_telemetry_folder_unwritable_delays_rows_only(start: Start, tmp_path: Path) -> None:
    """The rows are kept and written once the folder can be written."""
    path = tmp_path / "telemetry"
    path.write_text("not a folder")
    router = start(sections(path))
    router.wait_log("Telemetry cannot be written to .*telemetry|Earlier telemetry in .* cannot be read")
    pass_some(router, "balanced/w", 10)
    path.unlink()
    router.wait_log("Telemetry can be written to .* again")
    wait_total(path, "fact_flow", "deliveries", 10, address="balanced/w")


def test_telemetry_disk_full_delays_rows_only(start: Start, tmp_path: Path) -> None:
    """Clients are not affected, and the rows are written once there is room: none missing, none twice."""
    path = tmp_path / "telemetry"
    router = start(sections(path))
    pass_some(router, "balanced/f", 5)
    wait_total(path, "fact_flow", "deliveries", 5)
    process = process_of(router).pid
    unlimited = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (100, unlimited[1]))
    pass_some(router, "balanced/f", 10)
    router.wait_log("Telemetry cannot be written to .*: File too large")
    pass_some(router, "balanced/f", 10)
    assert total(rows(path, "fact_flow"), "deliveries", address="balanced/f") == 5
    resource.prlimit(process, resource.RLIMIT_FSIZE, unlimited)
    router.wait_log("Telemetry can be written to .* again")
    wait_total(path, "fact_flow", "deliveries", 25)
    assert process_of(router).pid == process
    router.stop()
    assert total(rows(path, "fact_flow"), "deliveries", address="balanced/f") == 25
    assert total(rows(path, "fact_worker"), "ingress") == 25


def test_telemetry_rows_reach_a_receiver_live(start: Start, tmp_path: Path) -> None:
    router = start(sections(tmp_path / "telemetry"))
    receiver = AmqpPeer.opened(router.port).receiver("_local/$telemetry", 10_000)
    pass_some(router, "balanced/l", 12)
    found = 0
    while found < 12:
        payload = receiver.next().payload
        body = message.body(payload)
        for line in bytes(body).decode().splitlines():
            row = json.loads(line)
            assert row["router"] == "QDR"
            if row.get("link_out") is not None and row["address"] == "balanced/l":
                found += row["deliveries"]
    assert found == 12


def test_telemetry_is_switched_on_and_off_by_management(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "telemetry"
    router = start([listener(), *SETTINGS, FILES])
    assert not [each for each in router.family() if each.name().endswith("-tel")]
    management = Management(AmqpPeer.opened(router.port))
    management.create("telemetry", "t", path=str(path), interval=1, fileSeconds=1)
    pass_some(router, "balanced/m", 3)
    wait_total(path, "fact_flow", "deliveries", 3, address="balanced/m")
    management.delete("telemetry", "t")
    poll(lambda: not [each for each in router.family() if each.name().endswith("-tel")], "the process has ended")


def _open_from(host: str, port: int) -> tuple[AmqpPeer, int]:
    """Open a connection from a source address; return the peer and its local port."""
    opened = socket.create_connection(("127.0.0.1", port), source_address=(host, 0))
    peer = AmqpPeer(opened)
    peer.open()
    return peer, opened.getsockname()[1]


def test_placements_choose_the_worker_of_new_connections(start: Start) -> None:
    router = start([listener("in"), *SETTINGS], 3)
    port = router.ports["in"]
    management = Management(AmqpPeer.opened(port))
    management.create("placement", "here", host="127.0.0.7/32", worker=2)
    placed = [_open_from("127.0.0.7", port) for _ in range(5)]
    (worker,) = {router.worker_of(local) for _, local in placed}
    assert psutil.Process(worker).name().endswith("-w2")
    management.delete("placement", "here")
    others = [_open_from("127.0.0.7", port) for _ in range(4)]
    assert worker not in {router.worker_of(local) for _, local in others}  # the worker has the most connections
