"""Alerts about landers, on pages of real ones: each fires in the trouble that it names, and only then."""

from __future__ import annotations

import os
import resource
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from sluice.router.client import Rejected, connect
from tests.pipeline.landers import PATIENCE, LanderProcess, SendingThread, message, send_all
from tests.promql import PIPELINE_RULES, rules
from tests.system.http import Metrics
from tests.system.monitoring.alert_history import PROMTOOL, AlertHistory
from tests.system.router import SETTINGS, RouterProcess, free_port, listener, poll

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(PROMTOOL is None, reason="no promtool in build/tools or on the path: make packaging-tools"),
]
ADDRESS = "balanced.a"


@pytest.fixture
def router(tmp_path: Path) -> Iterator[RouterProcess]:
    folder = tmp_path / "router"
    folder.mkdir()
    made = RouterProcess(folder, [listener(port=free_port()), *SETTINGS])
    made.start()
    yield made
    made.kill()


def land(router: RouterProcess, tmp_path: Path, *words: str) -> LanderProcess:
    return LanderProcess(url(router), tmp_path / "landing", "--id", "l", "--metrics", "0", *words).ready()


def url(router: RouterProcess) -> str:
    return f"amqp://127.0.0.1:{router.port}"


def page(lander: LanderProcess) -> Metrics:
    with urllib.request.urlopen(lander.wait_line(r"metrics at (http://\S+)")[1], timeout=10) as answer:
        return Metrics(answer.read().decode())


def observe(lander: LanderProcess, tmp_path: Path) -> AlertHistory:
    return AlertHistory(tmp_path, lambda new: page(lander), PIPELINE_RULES, "sluice-landers")


def wait_metric(lander: LanderProcess, condition: Callable[[float], bool], name: str) -> None:
    poll(lambda: condition(page(lander).sum(name)), name, PATIENCE)


def test_killed_lander_raises_lander_down(router: RouterProcess, tmp_path: Path) -> None:
    with land(router, tmp_path) as lander:
        history = observe(lander, tmp_path)
        history.pass_calm_minutes(3)
        lander.kill()
        history.pass_minutes(7)
        history.expect("SluiceLanderDown")
    history.check()


def test_lost_router_raises_lander_not_attached(router: RouterProcess, tmp_path: Path) -> None:
    with land(router, tmp_path) as lander:
        history = observe(lander, tmp_path)
        history.pass_calm_minutes(3)
        router.kill()
        wait_metric(lander, lambda value: value == 0, "sluice_lander_attached")
        history.pass_minutes(7)
        history.expect("SluiceLanderNotAttached", address=ADDRESS)
        router.start()
        wait_metric(lander, lambda value: value == 1, "sluice_lander_attached")
        history.pass_minutes(1)
        history.expect()
    history.check()


def test_full_disk_raises_cannot_write(router: RouterProcess, tmp_path: Path) -> None:
    with land(router, tmp_path) as lander:
        history = observe(lander, tmp_path)
        history.pass_calm_minutes(4)
        before = resource.prlimit(lander.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lander.process.pid, resource.RLIMIT_FSIZE, (100, before[1]))
        sending = SendingThread(url(router), [message(number) for number in range(100)])
        wait_metric(lander, bool, "sluice_lander_write_failing")
        history.pass_minutes(4)
        history.expect("SluiceLanderCannotWrite", address=ADDRESS)
        resource.prlimit(lander.process.pid, resource.RLIMIT_FSIZE, before)
        sending.done()
        wait_metric(lander, lambda value: value == 0, "sluice_lander_write_failing")
        history.pass_minutes(1)
        history.expect()
    history.check()


def test_unread_messages_raise_near_limit_and_held(router: RouterProcess, tmp_path: Path) -> None:
    """The limit is low, and no query reads. A segment may exceed it, so both alerts fire at once."""
    with land(router, tmp_path, "--stage-high", "64K", "--land-bytes", "16K") as lander:
        history = observe(lander, tmp_path)
        history.pass_calm_minutes(7)
        sending = SendingThread(url(router), [os.urandom(1000) for _ in range(300)])
        wait_metric(lander, bool, "sluice_lander_held")
        wait_metric(lander, lambda value: value >= 65536, "sluice_lander_staged_octets")
        history.pass_minutes(7)
        history.expect("SluiceLandingHeld", "SluiceLandingNearLimit")
        assert sending.is_alive(), "the senders wait"
    history.check()


def test_oversized_messages_raise_messages_not_landed(router: RouterProcess, tmp_path: Path) -> None:
    with land(router, tmp_path, "--max-message", "1K") as lander:
        history = observe(lander, tmp_path)
        send_all(url(router), [message(1)])
        history.pass_calm_minutes(7)
        with connect(url(router)) as connection:
            sender = connection.sender(ADDRESS, timeout=PATIENCE)

            def reject() -> None:
                (result,) = sender.send_all([bytes.fromhex("005375b0000007d0") + bytes(2000)], timeout=PATIENCE)
                assert isinstance(result, Rejected)

            history.pass_minutes(4, reject)
            history.expect("SluiceMessagesNotLanded", address=ADDRESS)
        history.pass_minutes(6)
        history.expect()
    history.check()


#: Alerts that these tests do not bring about, each with the reason.
LEFT_OUT = {
    "SluiceLandingBehind": "needs ten minutes without a reader",
    "SluiceLandingDiskFull": "needs a disk of its own",
}


def test_alerts_are_brought_about_or_left_out_with_reason() -> None:
    text = Path(__file__).read_text("utf-8").partition("LEFT_OUT =")[0]
    tried = {name for name in rules("alert", PIPELINE_RULES) if f'"{name}"' in text}
    assert tried | LEFT_OUT.keys() == rules("alert", PIPELINE_RULES).keys()
    assert not tried & LEFT_OUT.keys()
