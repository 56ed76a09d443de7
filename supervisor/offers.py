"""What workers know of listeners and connectors: attributes that hand-overs refer to. No input or output here.

An offer never changes. A listener or connector whose attributes change makes a new one, and connections from then on
refer to that; the old one goes when the last connection that refers to it has ended, so that none arrives at a worker
that no longer knows what it may do.
"""
from collections.abc import Iterable
from typing import Final

from router.config.entities import ConnectorConfig, ListenerConfig
from router.ipc.control import OP_OFFER_GONE
from supervisor.configure import offer_op
from supervisor.table import Op, Table


class _Offer:
    """One offer. Owner: Offers."""

    __slots__ = ("connections", "op", "retired")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.connections = 0
        self.retired = False


class Offers:
    """All offers that workers know, by key. Owner: the core."""

    def __init__(self, table: Table, listeners: Iterable[ListenerConfig]) -> None:
        """Those of the listeners of the start have their names as keys."""
        self._table: Final = table
        self._offers: dict[str, _Offer] = {
            listener.name: _Offer(offer_op(listener, listener.name)) for listener in listeners if not listener.http
        }
        self._made = 0

    def ops(self) -> list[Op]:
        """All of them, for a snapshot."""
        return [offer.op for offer in self._offers.values()]

    def add(self, endpoint: ListenerConfig | ConnectorConfig) -> tuple[str, int]:
        """Make an offer; its key, and the epoch that tells the workers."""
        self._made += 1
        offer_key = f"{endpoint.name} {self._made}"
        op = offer_op(endpoint, offer_key)
        self._offers[offer_key] = _Offer(op)
        return offer_key, self._table.change(op)

    def retire(self, offer_key: str) -> None:
        """No further connection will refer to it."""
        self._offers[offer_key].retired = True
        self._forget_unused(offer_key)

    def enter(self, offer_key: str) -> None:
        """A connection refers to it."""
        self._offers[offer_key].connections += 1

    def leave(self, offer_key: str) -> None:
        """That connection has ended."""
        self._offers[offer_key].connections -= 1
        self._forget_unused(offer_key)

    def _forget_unused(self, offer_key: str) -> None:
        offer = self._offers[offer_key]
        if offer.retired and not offer.connections:
            del self._offers[offer_key]
            self._table.change([OP_OFFER_GONE, offer_key])
