"""Socket activation: listeners use sockets that the service manager has opened."""

from __future__ import annotations

import os
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from sluice.router.client import Accepted, Message, connect
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, command, free_port, listener

WORKER_COUNTS = (1, 3)
PATIENCE = 20.0
PASSING = Path(__file__).with_name("passing.py")


def start_with(start: Start, workers: int, sections: list[Section], **passed: int) -> RouterProcess:
    """Start a router with listening sockets of these names and ports."""
    given = ",".join(f"{name}={port}" for name, port in passed.items())
    return start(sections, workers, program=[sys.executable, str(PASSING), given, command()[0]])


def pass_one(port: int) -> None:
    """Send a message through the router, and receive it on another connection."""
    url = f"127.0.0.1:{port}"
    with connect(url, timeout=PATIENCE) as taking, connect(url, timeout=PATIENCE) as giving:
        receiver = taking.receiver("a", timeout=PATIENCE)
        sending = giving.sender("a").state.send(Message("x"))
        giving.poll()
        receiver.receive(timeout=PATIENCE).accept()
        giving.wait(lambda: sending.done, PATIENCE)
        assert sending.result() == Accepted()


def listening(pid: int) -> set[int]:
    """Return the ports on which a process listens."""
    return {each.laddr.port for each in psutil.Process(pid).net_connections("tcp") if each.status == "LISTEN"}


def reload(router: RouterProcess, sections: list[Section]) -> None:
    router.configure(sections)
    seen = len(router.lines)
    os.kill(router.pid, signal.SIGHUP)
    router.wait_log("AGENT .notice. Configuration reloaded", PATIENCE, after=seen)


def test_listeners_use_sockets_of_their_address_and_of_their_name(start: Start, workers: int) -> None:
    """The router could not bind these ports: another socket listens on them."""
    first, second, page = free_port(), free_port(), free_port()
    sections = [listener(port=first), listener("named"), listener("http", http=True, port=page)]
    router = start_with(start, workers, sections, x=first, named=second, web=page)
    assert router.ports == {"": first, "named": second, "http": page}
    for port in (first, second):
        pass_one(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{page}/readyz", timeout=PATIENCE) as answer:
        assert answer.status == 200
    assert listening(router.pid) == {first, second, page}
    for child in psutil.Process(router.pid).children(recursive=True):
        assert listening(child.pid) == set()
        assert not {name for name in child.environ() if name.startswith("LISTEN_") and child.environ()[name]}


def test_socket_without_listener_is_closed_with_a_warning(start: Start, workers: int) -> None:
    first, second = free_port(), free_port()
    router = start_with(start, workers, [listener(port=first)], used=first, unused=second)
    assert f"Socket 'unused' of the service manager (127.0.0.1:{second}) is closed" in router.log
    assert listening(router.pid) == {first}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", second), PATIENCE)
    pass_one(first)


def test_listener_removed_and_added_again_gets_its_socket(start: Start, workers: int) -> None:
    first, second = free_port(), free_port()
    kept, moving = listener("kept", port=first), listener("moving", port=second)
    router = start_with(start, workers, [kept, moving], a=first, b=second)
    with connect(f"127.0.0.1:{second}", timeout=PATIENCE) as client:
        reload(router, [kept])
        router.wait_log("Deleted Listener", PATIENCE)
        # The connection stays. A new client waits in the queue of the socket, which systemd holds open.
        waiting = socket.create_connection(("127.0.0.1", second), PATIENCE)
        seen = len(router.lines)
        reload(router, [kept, listener("moving", port=second, idleTimeoutSeconds=60)])
        router.wait_log(rf"Listening on 127\.0\.0\.1:{second} ", PATIENCE, after=seen)
        router.wait_log(rf"Accepted connection to 127\.0\.0\.1:{second} from .*:{waiting.getsockname()[1]}", PATIENCE)
        waiting.close()
        client.receiver("still", timeout=PATIENCE)
    pass_one(second)
    reload(router, [listener("kept", port=first, idleTimeoutSeconds=60), moving])  # keeps both sockets
    pass_one(first)
    pass_one(second)
