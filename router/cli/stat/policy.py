"""`qdstat -p`, `--vhosts`, `--vhostgroups` and `--vhoststats`: show the policy."""

from typing import Any

from sluice.router.cli.client import Row
from sluice.router.cli.stat.connections import tenant
from sluice.router.cli.stat.context import StatContext
from sluice.router.cli.table import Cells

_NIL = "(nil)"
_ATTRIBUTES = ["attr", "value"]
_CONFIGURATION = [
    ("Maximum Concurrent Connections", "maxConnections"),
    ("Maximum Message Size", "maxMessageSize"),
    ("Enable Vhost Policy", "enableVhostPolicy"),
    ("Enable Vhost Name Patterns", "enableVhostNamePatterns"),
    ("Policy Directory", "policyDir"),
]
_STATUS = [
    ("Connections Processed", "connectionsProcessed"),
    ("Connections Denied", "connectionsDenied"),
    ("Connections Current", "connectionsCurrent"),
    ("Links Denied", "linksDenied"),
    ("Maximum Message Size Denied", "maxMessageSizeDenied"),
    ("Total Denials", "totalDenials"),
]
_VHOST = [
    "hostname", "maxConnections", "maxMessageSize", "maxConnectionsPerUser", "maxConnectionsPerHost",
    "allowUnknownUser",
]  # fmt: skip
_GROUP_NUMBERS = [
    "maxConnectionsPerUser", "maxConnectionsPerHost", "maxMessageSize", "maxFrameSize", "maxSessionWindow",
    "maxSessions", "maxSenders", "maxReceivers",
]  # fmt: skip
_GROUP_BOOLEANS = [
    "allowDynamicSource", "allowAnonymousSender", "allowUserIdProxy", "allowWaypointLinks", "allowDynamicLinkRoutes",
    "allowAdminStatusUpdate", "allowFallbackLinks",
]  # fmt: skip
_GROUP_TEXTS = ["users", "remoteHosts", "sources", "targets", "sourcePattern", "targetPattern"]
_VHOST_STATS = [
    "hostname", "connectionsApproved", "connectionsDenied", "connectionsCurrent", "sessionDenied", "senderDenied",
    "receiverDenied", "maxMessageSizeDenied",
]  # fmt: skip


def show(context: StatContext) -> None:
    """Show the policy and its counters."""
    found = context.rows("policy")[0]
    rows: list[Cells] = [(title, found[column]) for title, column in _CONFIGURATION]
    rows.append(("Default Vhost", found["defaultVhost"] or _NIL))
    context.table("Policy Configuration", _ATTRIBUTES, rows)
    context.display.line()
    status: list[Cells] = [(title, found[column]) for title, column in _STATUS]
    context.table("Policy Status", _ATTRIBUTES, status)


def show_vhosts(context: StatContext) -> None:
    """Show the vhosts, with the number of their groups."""
    vhosts = context.rows("vhost")
    if not vhosts:
        context.display.line("No Vhosts")
        return
    rows: list[Cells] = [
        [tenant(vhost["hostname"]), *(vhost[column] for column in _VHOST[1:]), len(vhost["groups"] or {})]
        for vhost in vhosts
    ]
    context.table("Vhosts", [*_VHOST, "groups"], rows)


def show_vhost_groups(context: StatContext) -> None:
    """Show the user groups of all vhosts: one table with numbers and booleans, then a table with lists for each."""
    vhosts = context.rows("vhost")
    if not vhosts:
        context.display.line("No Vhosts")
        return
    defaults = context.node_call("GET-SCHEMA")["entityTypes"]["vhostUserGroupSettings"]["attributes"]
    groups: list[tuple[str, str, Row]] = [
        (tenant(vhost["hostname"]), name, settings)
        for vhost in vhosts
        for name, settings in (vhost["groups"] or {}).items()
    ]

    def setting(settings: Row, name: str) -> Any:
        """Return the value of a setting, or its default in the schema."""
        value = settings.get(name)
        if value is None:
            value = defaults.get(name, {}).get("default")
        if value is None:
            return False if name in _GROUP_BOOLEANS else _NIL
        return value

    columns = [*_GROUP_NUMBERS, *_GROUP_BOOLEANS]
    rows: list[Cells] = [
        [vhost, group, *(setting(settings, column) for column in columns)] for vhost, group, settings in groups
    ]
    context.table("Vhost Groups", ["vhost", "group", *columns], rows)
    for vhost, group, settings in groups:
        context.display.line()
        texts = [(name, setting(settings, name)) for name in _GROUP_TEXTS]
        lists: list[Cells] = [("vhost", vhost), ("group", group), *texts]
        context.table(f"Vhost '{vhost}' UserGroup '{group}'", _ATTRIBUTES, lists)


def show_vhost_stats(context: StatContext) -> None:
    """Show the counters of each vhost, and its users with their hosts."""
    stats = context.rows("vhostStats")
    if not stats:
        context.display.line("No Vhost Stats")
        return
    rows: list[Cells] = [[tenant(one["hostname"]), *(one[column] for column in _VHOST_STATS[1:])] for one in stats]
    context.table("Vhost Stats", _VHOST_STATS, rows)
    context.display.line()
    users: list[Cells] = [
        (tenant(one["hostname"]), user, ", ".join(hosts))
        for one in stats
        for user, hosts in (one["perUserState"] or {}).items()
    ]
    context.table("Vhost User Stats", ["vhost", "user", "remote hosts"], users)
