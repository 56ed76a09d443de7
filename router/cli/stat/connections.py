"""`qdstat -c` and `-e`: show connections."""

from typing import Any

from sluice.router.cli.client import Row
from sluice.router.cli.stat.context import StatContext
from sluice.router.cli.table import Cells, long_time

_MECHANISMS = {"GSSAPI": "Kerberos", "EXTERNAL": "x.509"}
_HEADS = [
    "id", "host", "container", "role", "proto", "dir", "security", "authentication", "tenant", "last dlv", "uptime",
]  # fmt: skip
_EDGE_HEADS = ["id", "host", "container", "role", "dir", "security", "authentication", "tenant", "active"]


def show(context: StatContext) -> None:
    """Show all connections."""
    rows: list[Cells] = [
        (
            one["identity"],
            one["host"],
            one["container"],
            one["role"],
            one["protocol"],
            one["dir"],
            security(one),
            authentication(one),
            tenant(one["tenant"]),
            _age(one["lastDlvSeconds"]),
            _age(one["uptimeSeconds"]),
        )
        for one in context.rows("connection", limited=True)
    ]
    context.table("Connections", _HEADS, rows)


def show_edge(context: StatContext) -> None:
    """Show the connections from and to edge routers."""
    connections = context.rows("connection", limited=True)
    if not connections:
        context.display.line("No Edge Router Connections")
    rows: list[Cells] = [
        (
            one["identity"],
            one["host"],
            one["container"],
            one["role"],
            one["dir"],
            security(one),
            authentication(one),
            tenant(one["tenant"]),
            one["active"],
        )
        for one in connections
        if one["role"] == "edge"
    ]
    if rows:
        context.table("Connections", _EDGE_HEADS, rows)


def security(connection: Row) -> str:
    """Return the encryption of a connection as text."""
    if not connection["isEncrypted"]:
        return "no-security"
    if connection["sasl"] == "GSSAPI":
        return "Kerberos"
    return f"{connection['sslProto']}({connection['sslCipher']})"


def authentication(connection: Row) -> str:
    """Return user and authentication mechanism of a connection as text."""
    if not connection["isAuthenticated"]:
        return "no-auth"
    mechanism = connection["sasl"]
    if mechanism == "ANONYMOUS":
        return "anonymous-user"
    name = str(_MECHANISMS.get(mechanism, mechanism))
    return f"{connection['user']}({name})" if connection["user"] else name


def tenant(text: str | None) -> str:
    """Return a tenant or host name without its trailing slash."""
    return (text or "").removesuffix("/")


def _age(seconds: Any) -> str:
    return "-" if seconds is None else long_time(seconds)
