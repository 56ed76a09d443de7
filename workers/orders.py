"""Dispatch of the supervisor's orders to the parts of a worker that handle them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, get_args

from sluice.router.control import login_messages
from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

# Orders about one connection. An order is dropped if its connection has ended.
ConnectionOrder = (
    login_messages.SaslOffer
    | login_messages.SaslChallenge
    | login_messages.SaslOutcome
    | control.Permit
    | control.Admitted
    | control.Denied
    | control.Attached
    | control.Refused
    | control.Decided
    | control.Postponed
    | control.Detached
    | control.Gone
    | control.Link
    | control.Unlink
    | control.CloseLink
    | control.Close
    | control.WithdrawCredit
)
CONNECTION_ORDERS: Final = frozenset(get_args(ConnectionOrder))


class OrderHandlers:
    """Handlers of orders by type, which the parts of a worker register. Owner: the worker."""

    def __init__(self, clients: "Mapping[int, ConnectionHandler]") -> None:
        """Create it without handlers. clients: connections by number."""
        self._clients = clients
        # A handler is called with the connection and the order.
        self.of_connections: HandlerTable[ConnectionHandler] = HandlerTable(ConnectionOrder)
        # A handler is called with the octets that came with the order, if any, and the order.
        self.others: HandlerTable[bytes | None] = HandlerTable(control.Order, but=CONNECTION_ORDERS)

    def check_complete(self) -> None:
        """Raise ValueError if a type of order has no handler."""
        self.of_connections.check_complete()
        self.others.check_complete()

    def handle(self, order: control.Order, octets: bytes | None) -> None:
        """Call the handler of an order. An order about a connection that has ended is dropped."""
        if type(order) not in CONNECTION_ORDERS:
            self.others.handle(octets, order)
            return
        client = self.connection_of(order)
        if client is not None:
            self.of_connections.handle(client, order)

    def connection_of(self, order: control.Order) -> "ConnectionHandler | None":
        """Return the connection that an order names; None: it names none, or that connection has ended."""
        return self._clients.get(getattr(order, "conn", 0))
