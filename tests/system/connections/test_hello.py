"""`sluice hello`: a newcomer's first message, and its explanations of failures."""

from __future__ import annotations

import socket

from tests.system import tools
from tests.system.fixtures import Connect, Fresh, Start
from tests.system.router import RouterProcess, listener


def test_hello_message_returns_from_router(router: RouterProcess) -> None:
    ended = tools.run("hello", router.port)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "Sent to 'hello', accepted, and received again: Hello through the router\n"


def test_hello_with_missing_router_explains_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, without a listener
        ended = tools.run("hello", unused.getsockname()[1])
    assert (ended.code, ended.out) == (4, "")
    assert "connection refused\n  no router listens there" in ended.err


def test_hello_with_refused_link_explains_failure(start: Start) -> None:
    router = start([listener(), ("router", {"defaultDistribution": "unavailable"})])
    ended = tools.run("hello", router.port, "greetings")
    assert (ended.code, ended.out) == (3, "")
    assert "refused a link: amqp:not-found: Node not found\n" in ended.err
    assert "`sluice explain greetings`" in ended.err


def test_hello_beside_silent_receiver_explains_failure(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    """The copy for another receiver, which does not settle it, keeps the outcome from the sender."""
    address = fresh("multicast")
    connect().receiver(address).flow(10)
    ended = tools.run("hello", router.port, address, "-t", "2")
    assert (ended.code, ended.out) == (3, "")
    assert "did not report the message as accepted within 2 seconds" in ended.err
