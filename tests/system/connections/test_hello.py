"""`make hello`: a newcomer's first message, sent by a real client, and its explanations of failures."""

import socket
import subprocess
import sys

from tests.system.fixtures import Start
from tests.system.router import ROOT, RouterProcess, listener

#: Seconds for the whole script, whose own limit is 10 s.
TIMEOUT = 30.0


def run_hello(port: int) -> subprocess.CompletedProcess[str]:
    """Run the script against a port of this machine."""
    arguments = [sys.executable, str(ROOT / "scripts" / "hello.py"), f"amqp://127.0.0.1:{port}"]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def test_hello_message_returns_from_router(router: RouterProcess) -> None:
    ended = run_hello(router.port)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "Sent to 'hello', accepted, and received again: Hello through the router\n"


def test_missing_router_is_explained() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, without a listener
        ended = run_hello(unused.getsockname()[1])
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "did not open an AMQP connection" in ended.stderr
    assert "Is the router running? 'make run' starts one." in ended.stderr


def test_refused_link_is_explained(start: Start) -> None:
    ended = run_hello(start([listener(), ("router", {"defaultDistribution": "unavailable"})]).port)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "refused a link: amqp:not-found: Node not found" in ended.stderr
