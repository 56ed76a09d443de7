"""Standing clients of amqpload come back after their router was killed; pairs beside them end on a signal."""

import time

import psutil
import pytest

from loadtests import reconnect_rows
from loadtests.configuration import configuration_text, listener, router_section
from loadtests.processes import BenchRouter, MeasureError, Relay, finish_load, start_load
from loadtests.reconnect_rows import StandingClients
from tests.system.router import free_port, poll

CLIENTS = 50


def test_standing_clients_of_several_processes_come_back_after_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect_rows, "per_process", lambda: CLIENTS - 1)
    text = configuration_text(router_section(), listener(port=free_port()))
    with BenchRouter(1, text=text) as router, StandingClients(router.port, CLIENTS) as clients:
        clients.wait(began=0)
        killed = time.monotonic()
        router.kill_and_restart()
        assert clients.wait(killed) > 0


def test_standing_clients_without_router_are_reported() -> None:
    with StandingClients(free_port(), 1, stall_seconds=0.5) as clients, pytest.raises(MeasureError, match="0 of 1 are"):
        clients.wait(began=0)


def test_pairs_end_on_sigterm_with_report(relay: Relay) -> None:
    ports = {"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True}
    pairs = start_load({**ports, "rate": 1000, "seconds": 60, "warm": 60})
    sending = psutil.Process(pairs.pid)
    poll(lambda: sending.num_threads() > 1, "threads of senders and receivers")
    pairs.terminate()
    report = finish_load(pairs)
    assert report["sent"] == report["accepted"]
    assert report["seconds"] < 30
    assert report["latency_us"]["max"] == 0  # all were sent in the first 60 seconds
