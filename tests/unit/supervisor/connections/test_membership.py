"""Admission of other routers by `allowedRouters`."""

from __future__ import annotations

import os

import pytest

from sluice.router.config.load import load_text
from sluice.router.control.messages import Opened
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.membership import ROUTER_NOT_ALLOWED, Membership

CONFIGURATION = """
router {
    id: A
    mode: interior
}
listener {
    name: routers
    port: 0
    role: inter-router
    %s
}
"""


class GuardedListener:
    """Listener for other routers with `allowedRouters`, and the identity of its next peer."""

    def __init__(self, allowed: str | None) -> None:
        line = "" if allowed is None else f"allowedRouters: {allowed}"
        self.listener = load_text("router.conf", CONFIGURATION % line).listeners[0]
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        self.identity: str | None = None
        self.membership = Membership(lambda connection, message: self.identity, self.log)

    def admits(self, container: str, identity: str | None) -> bool:
        self.identity = identity
        connection = RegisteredConnection(7, self.listener, "l:1", "10.0.0.1:2", "key")
        message = Opened(conn=7, container=container, hostname=None, user=None, properties={}, tls=None)
        refusal = self.membership.refusal(connection, message)
        assert refusal in (None, ROUTER_NOT_ALLOWED)
        return refusal is None


@pytest.mark.parametrize(
    ("allowed", "container", "identity", "admitted"),
    [
        (None, "B", None, True),
        ("CN=B", "any", "CN=B", True),
        ("CN=B", "B", "CN=C", False),
        ("CN=B", "B", None, False),
        ("CN=B => B", "B", "CN=B", True),
        ("CN=B => B", "C", "CN=B", False),
        ("CN=B => B | CN=C => C", "C", "CN=C", True),
        ("CN=B => B | CN=C => C", "C", "CN=B", False),
        ("*", "B", None, True),
    ],
)
def test_router_is_admitted_by_identity_and_container(
    allowed: str | None, container: str, identity: str | None, admitted: bool
) -> None:
    assert GuardedListener(allowed).admits(container, identity) is admitted


def test_refused_router_is_logged_with_its_identity() -> None:
    guarded = GuardedListener("CN=B")
    for _ in range(3):
        assert not guarded.admits("C", None)
    (entry,) = guarded.log.recent()
    assert (entry.module, entry.level) == ("ROUTER_CORE", "warning")
    assert entry.text == (
        "[C7] Router 'C' (no identity) from 10.0.0.1:2 may not join: "
        "allowedRouters of listener 'routers' does not name it"
    )
