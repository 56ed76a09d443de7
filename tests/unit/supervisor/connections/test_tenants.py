"""Address spaces of tenants (brokers-and-edge.md L-10, L-11)."""

from __future__ import annotations

import pytest

from sluice.router.config.load import load_text
from sluice.supervisor.connections.admission import Deny
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.tenants import tenant_of

CONFIGURATION = """
router {
    id: A
    mode: interior
}
listener {
    name: shared
    port: 0
    role: %s
    multiTenant: %s
}
"""


def client(hostname: str | None, role: str = "normal", multi_tenant: str = "yes") -> RegisteredConnection:
    """Return the connection of a client whose open has this hostname."""
    listener = load_text("router.conf", CONFIGURATION % (role, multi_tenant)).listeners[0]
    made = RegisteredConnection(7, listener, "l:1", "p:2", "key")
    made.hostname = hostname
    return made


@pytest.mark.parametrize(
    ("hostname", "vhost", "prefix"),
    [("h", None, "h/"), ("h", "v", "v/"), (None, "v", "v/"), (None, None, None), ("a/b", "v", "v/")],
)
def test_vhost_or_else_hostname_names_space(hostname: str | None, vhost: str | None, prefix: str | None) -> None:
    assert tenant_of(client(hostname), vhost) == prefix


@pytest.mark.parametrize(("hostname", "vhost", "named"), [("t/a", None, "hostname 't/a'"), ("t", "t/a", "vhost 't/a'")])
def test_space_with_slash_in_its_name_is_refused(hostname: str, vhost: str | None, named: str) -> None:
    """Address b of tenant t/a would be address a/b of tenant t."""
    refusal = tenant_of(client(hostname), vhost)
    assert isinstance(refusal, Deny)
    assert refusal.description is not None
    assert refusal.description.endswith(named)


@pytest.mark.parametrize(("role", "multi_tenant"), [("normal", "no"), ("inter-router", "yes"), ("edge", "yes")])
def test_connections_without_tenants_have_no_space(role: str, multi_tenant: str) -> None:
    assert tenant_of(client("t/a", role, multi_tenant), "v") is None
