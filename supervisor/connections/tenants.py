"""Address space of a client on a listener with `multiTenant: yes` (docs/spec/brokers-and-edge.md L-10, L-11).

Addresses of tenants: routing-semantics.md 12.
"""

from typing import Final

from sluice.router.amqp.errors import INVALID_FIELD
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.supervisor.connections.admission import Deny
from sluice.supervisor.connections.connections import RegisteredConnection

SEPARATOR: Final = "/"


def tenant_of(connection: RegisteredConnection, vhost: str | None) -> str | Deny | None:
    """Return the prefix of all mobile addresses of a client: the name of its address space and a slash.

    vhost: name of the vhost whose rules apply to the connection; None without vhost policy. Then the space is the
    hostname in the client's open, which separates only clients that want to be separate.

    Returns None if the addresses have no prefix. Returns Deny if the name of the space contains a slash, because
    address b of tenant t/a would be address a/b of tenant t.
    """
    if not connection.origin.multi_tenant or connection.origin.role in BETWEEN_ROUTERS:
        return None
    space = connection.hostname if vhost is None else vhost
    if space is None:
        return None
    if SEPARATOR in space:
        name = "hostname" if vhost is None else "vhost"
        return Deny(INVALID_FIELD, f"The name of a tenant must not contain a slash: {name} '{space}'")
    return space + SEPARATOR
