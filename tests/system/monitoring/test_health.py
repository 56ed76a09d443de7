"""/healthz, /livez and /readyz: readiness and its reasons while workers die and the router stops."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.fixtures import Start
from tests.system.http import WEB, get, scrape, wait_page
from tests.system.router import RouterProcess, listener, poll

SECTIONS = [WEB]
JSON = {"Accept": "application/json"}


def test_healthz_answers_as_dispatch(router: RouterProcess) -> None:
    reply = get(router.ports["web"], "/healthz")
    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (200, b"OK\n", "text/plain")


def test_healthy_router_passes_checks(router: RouterProcess) -> None:
    web = router.ports["web"]
    assert get(web, "/livez").text == "[+] workers: serving\nlivez check passed\n"
    ready = get(web, "/readyz")
    assert ready.status == 200
    lines = ready.text.splitlines()
    assert f"[+] workers: {router.workers} of {router.workers} serve" in lines
    assert f"[+] listener web: 127.0.0.1:{web}" in lines
    assert lines[-1] == "readyz check passed"
    checks = get(web, "/readyz", **JSON).json()
    assert checks["passed"] is True
    assert [check["name"] for check in checks["checks"]][:2] == ["running", "workers"]


def test_missing_worker_makes_router_unready_but_live(start: Start) -> None:
    """The replacement cannot start while the zygote, which forks it, is stopped."""
    router = start([listener(), WEB], workers=3)
    web = router.ports["web"]
    zygote = next(process for process in router.family() if process.pid != router.pid and process.children())
    before = scrape(web)
    os.kill(zygote.pid, signal.SIGSTOP)
    try:
        os.kill(router.worker_pids()[1], signal.SIGKILL)
        poll(lambda: get(web, "/readyz").status == 503, "not ready")
        reply = get(web, "/readyz")
        assert "2 of 3 serve: worker " in reply.text
        assert reply.text.endswith("readyz check failed\n")
        assert get(web, "/readyz", **JSON).json()["passed"] is False
        assert get(web, "/livez").status == 200
        assert get(web, "/healthz").body == b"OK\n"
        wait_page(web, "a worker is missing", sluice_worker_up=2, sluice_ready=0)
    finally:
        os.kill(zygote.pid, signal.SIGCONT)
    poll(lambda: get(web, "/readyz").status == 200, "ready again")
    restarts = before.sum("sluice_worker_restarts_total") + 1
    wait_page(web, "another took its place", sluice_worker_restarts_total=restarts, sluice_worker_up=3, sluice_ready=1)


def test_router_without_workers_is_not_ready(start: Start) -> None:
    router = start([listener(), WEB])
    web = router.ports["web"]
    zygote = next(process for process in router.family() if process.pid != router.pid and process.children())
    os.kill(zygote.pid, signal.SIGSTOP)
    try:
        os.kill(router.worker_pids()[0], signal.SIGKILL)
        poll(lambda: get(web, "/readyz").status == 503, "not ready")
        assert "no worker has served for 0 seconds; this check fails after 60" in get(web, "/livez").text
        assert get(web, "/livez").status == 200
    finally:
        os.kill(zygote.pid, signal.SIGCONT)
    poll(lambda: get(web, "/readyz").status == 200, "ready again")


@pytest.mark.parametrize("workers", [1], ids=["1-worker"])
def test_stopping_router_is_not_ready(start: Start, workers: int) -> None:
    """A worker that does not end keeps the router draining until its time-out."""
    router = start([listener(), WEB], workers)
    web, worker = router.ports["web"], router.worker_pids()[0]
    os.kill(worker, signal.SIGSTOP)
    os.kill(router.pid, signal.SIGTERM)
    reply = poll(lambda: (found := get(web, "/readyz")).status == 503 and found, "not ready")
    assert "[-] running: the router is shutting down" in reply.text
    assert get(web, "/livez").status == 200
    assert router.wait_exit() == 0
