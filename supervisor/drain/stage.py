"""Stages of a drain: clients first, then brokers, then other routers. For a take-over other routers come first."""

from enum import IntEnum

from sluice.router.addressing.address import LOCAL
from sluice.router.config.roles import BETWEEN_ROUTERS, EDGE, INTER_EDGE, INTER_ROUTER, ROUTE_CONTAINER
from sluice.supervisor.connections.connections import RegisteredConnection


class DrainStage(IntEnum):
    """Stage in which a connection is closed. Each stage begins when no connection of the earlier ones is left."""

    NETWORK = -1  # with a take-over: all connections of routers, since two processes must not have one id in a network
    CLIENTS = 0  # clients, and edge routers with their clients
    BROKERS = 1  # connections of link routes and auto links, which clients may use until the end
    ROUTERS = 2  # connections over which the messages of others travel, and clients that only use management


def stage_of(connection: RegisteredConnection, *, taken_over: bool = False) -> DrainStage:
    """Return the stage in which an open connection is closed. taken_over: another process takes over."""
    role, accepted = connection.origin.role, connection.initiator is None
    if taken_over and role in BETWEEN_ROUTERS:
        return DrainStage.NETWORK
    if role in (INTER_ROUTER, INTER_EDGE) or (role == EDGE and not accepted):
        return DrainStage.ROUTERS
    if role == EDGE:
        return DrainStage.CLIENTS
    if role == ROUTE_CONTAINER or not accepted:
        return DrainStage.BROKERS
    return DrainStage.ROUTERS if only_manages(connection) else DrainStage.CLIENTS


def only_manages(connection: RegisteredConnection) -> bool:
    """Return True if a client has links to the router itself, and otherwise only links for the answers."""
    manages = False
    for link in connection.links.values():
        record = link.record
        if record is None:
            return False
        if record.inproc:
            manages = True
        elif not (link.consumer and record.key.startswith(LOCAL)):
            return False
    return manages
