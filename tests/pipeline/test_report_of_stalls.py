"""Report about a real router whose clients hold each other up: each cause is named, the most urgent first."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sluice.router.client.blocking import SyncConnection, connect
from sluice.router.client.errors import ClientError
from sluice.router.client.message import Message
from tests.pipeline.java import environment
from tests.system.router import ROOT, SETTINGS, RouterProcess, listener

pytestmark = pytest.mark.long

EACH = 0.05  # seconds that the slow consumer takes for a message
SLOW_MESSAGES = 2000  # 100 seconds of its work: more than a whole minute of the report
PREFETCH = 1000
#: More than the slow consumer takes. With fewer, the sender would wait for outcomes with credit left: its capacity
#: grows to the prefetch and more.
SENT = 2 * SLOW_MESSAGES


class ClientThread:
    """Client that calls `step` with its link until exit of the context."""

    def __init__(self, url: str, container: str, attach: Callable[[SyncConnection], Any], step: Callable[[Any], Any]):
        self._ended = threading.Event()
        self._step = step
        self._connection = connect(url, timeout=10, container=container)
        self._link = attach(self._connection)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    self._step(self._link)
                except TimeoutError:
                    continue
        except ClientError:
            pass  # the router was stopped
        finally:
            self._connection.close()

    def __enter__(self) -> ClientThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)


def receive(outcome: str, work: threading.Event, taken: threading.Semaphore | None = None) -> Callable[[Any], None]:
    """Return a step that works EACH seconds on a delivery, if `taken` counts them, and settles it with the outcome."""

    def step(receiver: Any) -> None:
        delivery = receiver.receive(timeout=0.2)
        if taken is not None:
            work.wait(EACH)
            taken.release()
        getattr(delivery, outcome)()

    return step


@contextmanager
def clients(url: str) -> Iterator[threading.Semaphore]:
    """Run the clients. Yield the semaphore that counts the messages of the slow consumer."""
    taken, never = threading.Semaphore(0), threading.Event()
    message = Message(b"x")

    def sender(address: str) -> Callable[[SyncConnection], Any]:
        return lambda connection: connection.sender(address, timeout=10)

    def receiver(address: str, window: int) -> Callable[[SyncConnection], Any]:
        return lambda connection: connection.receiver(address, timeout=10, window=window)

    def send_at_leisure(link: Any) -> None:
        link.send(message, timeout=1)
        never.wait(EACH)

    with (
        ClientThread(url, "billing-1", receiver("balanced/orders", PREFETCH), receive("accept", never, taken)),
        ClientThread(
            url, "shop-1", sender("balanced/orders"), lambda link: link.send_all([message] * SENT, timeout=400)
        ),
        ClientThread(url, "leaver-1", receiver("balanced/returns", 10), receive("release", never)),
        ClientThread(url, "returner-1", sender("balanced/returns"), send_at_leisure),
        ClientThread(url, "lonely-1", sender("balanced/nobody"), lambda link: link.send(message, timeout=0.5)),
    ):
        yield taken


def texts(page: str) -> list[str]:
    """Return the entries of *What to do* as text."""
    listed = page.partition('<ol class="todo">')[2].partition("</ol>")[0]
    return [unescape(re.sub(r"<[^>]+>", "", item)) for item in listed.split("</li>")[:-1]]


@pytest.mark.timeout(500)
def test_report_names_each_cause_and_the_slow_consumer_first(java_runs, tmp_path: Path):
    telemetry = tmp_path / "telemetry"
    section = ("telemetry", {"path": telemetry, "interval": 1, "fileSeconds": 1})
    folder = tmp_path / "router"
    folder.mkdir()
    router = RouterProcess(folder, [listener("amqp"), *SETTINGS, section], 1)
    router.start()
    with ExitStack() as running:
        running.callback(router.stop)
        with clients(f"amqp://127.0.0.1:{router.ports['amqp']}") as taken:
            for _ in range(SLOW_MESSAGES):
                assert taken.acquire(timeout=60)
            # Before the clients end, who would give back what they have prefetched. The stop writes the last rows.
            running.close()
    program: list[str | Path] = [ROOT / ".venv" / "bin" / "sluice", "pipeline", "report", "--telemetry", telemetry]
    done = subprocess.run(
        program, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    slow, nobody, returned = texts(page)
    assert slow.startswith("balanced/orders: billing-* is slow")
    assert "affected: shop-*" in slow
    assert nobody.startswith("balanced/nobody: nobody receives")
    assert returned.startswith("balanced/returns: leaver-* gave back")
    assert "rejected" not in returned
    assert "raise" not in slow + nobody
    assert "Deliveries a second, by minute" in page
