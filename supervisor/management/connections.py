"""Type connection: one row for each open connection, and the operation that closes one (management.md 5.9, 6.5)."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from sluice.router.config.roles import BETWEEN_ROUTERS, EDGE, INTER_EDGE, INTER_ROUTER
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.management import values
from sluice.supervisor.management.core_type import PREFIX, Column, CoreType, constant, forbidden
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, FORBIDDEN, NOT_FOUND, Response, StatusError
from sluice.supervisor.network.neighbour_connections import COST_PROPERTY

FORCED: Final = "amqp:connection:forced"
FORCED_TEXT: Final = "Connection forced-closed by management request"
_IN: Final = values.string("in")
_OUT: Final = values.string("out")


class ConnectionCoreRow(NamedTuple):
    """Connection with sums over its links; times are CLOCK_MONOTONIC in ns."""

    connection: RegisteredConnection
    now: int
    last_delivery: int  # 0: no delivery yet
    active: bool  # False: an edge router's connection that is a standby uplink
    incoming: int  # deliveries of the present links
    outgoing: int


def _tls(name: str) -> Any:
    return lambda row: values.string(getattr(row.connection.tls, name, None))


def _is_encrypted(row: ConnectionCoreRow) -> bytes:
    return values.boolean(row.connection.tls is not None)


def _last_delivery(row: ConnectionCoreRow) -> bytes:
    return values.uint(max(0, row.now - row.last_delivery) // 1_000_000_000 if row.last_delivery else None)


def _cost(row: ConnectionCoreRow) -> bytes:
    """Return the cost of a connection to another router: the higher of both ends'."""
    connection = row.connection
    if connection.origin.role not in (INTER_ROUTER, INTER_EDGE):
        return values.NULL
    announced = (connection.properties or {}).get(COST_PROPERTY, 1)
    return values.long(max(connection.origin.cost, announced if isinstance(announced, int) else 1))


class ConnectionCoreType(CoreType):
    """Connections in order of opening."""

    name = PREFIX + "connection"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": lambda row: values.string(f"connection/{row.connection.peer}"),
        "identity": lambda row: values.string(str(row.connection.number)),
        "host": lambda row: values.string(row.connection.peer),
        "role": lambda row: values.string(row.connection.origin.role),
        "protocol": constant(values.string("amqp")),
        "dir": lambda row: _IN if row.connection.initiator is None else _OUT,
        "container": lambda row: values.string(row.connection.container),
        "sasl": lambda row: values.string(row.connection.mechanism),
        "isAuthenticated": lambda row: values.boolean(row.connection.mechanism is not None),
        "user": lambda row: values.string(row.connection.user),
        "isEncrypted": _is_encrypted,
        "sslProto": _tls("protocol"),
        "sslCipher": _tls("cipher"),
        "properties": lambda row: values.properties(row.connection.properties or {}),
        "sslSsf": lambda row: values.long(getattr(row.connection.tls, "ssf", 0)),
        "tenant": lambda row: values.string(row.connection.tenant),
        "type": constant(values.string(name)),
        "ssl": lambda row: values.boolean(row.connection.origin.ssl_profile is not None),
        "opened": lambda row: values.boolean(row.connection.opened),
        "active": lambda row: values.boolean(row.active),
        "adminStatus": lambda row: values.string("deleted" if row.connection.closing else "enabled"),
        "operStatus": lambda row: values.string("closing" if row.connection.closing else "up"),
        "uptimeSeconds": lambda row: values.uint(int(row.now / 1e9 - row.connection.opened_at)),
        "lastDlvSeconds": _last_delivery,
        "enableProtocolTrace": lambda row: values.boolean(bool(row.connection.trace)),
    }
    more: ClassVar[Mapping[str, Column]] = {
        "deliveriesIn": lambda row: values.ulong(row.incoming),
        "deliveriesOut": lambda row: values.ulong(row.outgoing),
        "cost": _cost,
    }

    def rows(self) -> Iterable[RegisteredConnection]:
        """Return all open connections."""
        return self.context.core.connections.opened.values()

    def row(self, item: RegisteredConnection) -> ConnectionCoreRow | None:
        """Return the row of a connection with the counters of its links, or None if the connection is gone."""
        if self.context.core.connections.opened.get(item.number) is not item:
            return None
        uplink = self.context.core.uplink
        active = uplink is None or item.origin.role != EDGE or uplink.uses(item)
        last, incoming, outgoing = item.last_delivery, 0, 0
        for link in item.links.values():
            counters = self.context.region.link_counters(link.worker, link.slot)
            if counters is not None and counters["generation"] == link.generation:
                last = max(last, counters["last_delivery"])
                if link.consumer:
                    outgoing += counters["deliveries"]
                else:
                    incoming += counters["deliveries"]
        return ConnectionCoreRow(item, time.monotonic_ns(), last, active, incoming, outgoing)

    def find(self, identity: str | None, name: str | None) -> RegisteredConnection:
        """Return the connection with this number. Names are not supported."""
        if identity is None:
            raise StatusError(BAD_REQUEST, "Name not supported. Identity required")
        found = self._by_number(identity)
        if found is None:
            raise StatusError(NOT_FOUND)
        return found

    def _by_number(self, identity: str | None) -> RegisteredConnection | None:
        number = int(identity) if identity is not None and identity.isascii() and identity.isdigit() else None
        return None if number is None else self.context.core.connections.opened.get(number)

    def update(self, request: Request) -> Response | None:
        """Close a connection or switch its frame trace. The answer follows when the worker has applied the trace
        setting. brokers-and-edge.md ED-25.
        """
        request.refuse_unknown(self.entity_type)
        body = request.body()
        if not isinstance(body, dict):
            raise StatusError(BAD_REQUEST)
        connection = self._by_number(request.identity or _text(body.get("identity")))
        core = self.context.core
        if connection is None or (request.connection is not None and request.connection not in core.connections.opened):
            raise StatusError(BAD_REQUEST)
        status, trace = body.get("adminStatus"), body.get("enableProtocolTrace")
        if status is None and trace is None:
            raise StatusError(BAD_REQUEST)
        if status is not None:
            if status not in ("enabled", "deleted"):
                raise StatusError(BAD_REQUEST)
            if connection.origin.role in BETWEEN_ROUTERS or not request.rights.closes:
                raise StatusError(FORBIDDEN, "You are not allowed to perform this operation.")
        if trace is not None:
            core.connections.trace(connection, trace is True)
        if status == "deleted" and not connection.closing:
            self._close(connection, request)
        response = self.shown(connection)
        if trace is None or connection.closing:
            return response
        request.shrink()
        core.settings.when_in_force(lambda: self.context.answer(request, response))
        return None

    def _close(self, connection: RegisteredConnection, request: Request) -> None:
        """Close a connection after the answer has been sent, possibly over the same connection.

        routing-semantics.md O-6.
        """
        connection.closing = True
        by = "" if request.connection is None else f" from connection [C{request.connection}]"
        self.context.log.info("ROUTER_CORE", f"[C{connection.number}] Connection force-closed by request{by}")
        self.context.later(lambda: self.context.core.connections.close(connection, FORCED, FORCED_TEXT))

    def delete(self, request: Request) -> Response:
        """Refuse the request: UPDATE closes connections."""
        return forbidden(request)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str) else None
