"""AMQP 1.0 client on the router's engine: blocking (`connect`) and for asyncio (`aconnect`)."""

from typing import TYPE_CHECKING, Any

from sluice.router.client.attach import Terminus
from sluice.router.client.backoff import Backoff
from sluice.router.client.blocking import (
    SyncConnection,
    SyncCoordinator,
    SyncReceiver,
    SyncSender,
    SyncTransaction,
    connect,
)
from sluice.router.client.errors import (
    ClientError,
    ConnectionFailedError,
    LinkDetachedError,
    StaleDeliveryError,
    TransactionError,
    UnsettledError,
)
from sluice.router.client.links import Delivery
from sluice.router.client.message import DataSections, Message, Sequences
from sluice.router.client.outcome import (
    Accepted,
    Declared,
    Modified,
    OtherState,
    Outcome,
    Rejected,
    Released,
    Transactional,
)
from sluice.router.client.tls import Tls

if TYPE_CHECKING:
    from sluice.router.client.aio import AsyncConnection, AsyncReceiver, AsyncSender, aconnect

__all__ = [
    "Accepted",
    "AsyncConnection",
    "AsyncReceiver",
    "AsyncSender",
    "Backoff",
    "ClientError",
    "ConnectionFailedError",
    "DataSections",
    "Declared",
    "Delivery",
    "LinkDetachedError",
    "Message",
    "Modified",
    "OtherState",
    "Outcome",
    "Rejected",
    "Released",
    "Sequences",
    "StaleDeliveryError",
    "SyncConnection",
    "SyncCoordinator",
    "SyncReceiver",
    "SyncSender",
    "SyncTransaction",
    "Terminus",
    "Tls",
    "TransactionError",
    "Transactional",
    "UnsettledError",
    "aconnect",
    "connect",
]


def __getattr__(name: str) -> Any:
    """Import the asyncio client at its first use: asyncio costs programs that block 50 ms at their start."""
    if name in ("AsyncConnection", "AsyncReceiver", "AsyncSender", "aconnect"):
        from sluice.router.client import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
