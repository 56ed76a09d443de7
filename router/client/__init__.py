"""AMQP 1.0 client on the router's engine: blocking (`connect`) and for asyncio (`aconnect`)."""

from router.client.aio import AsyncConnection, AsyncReceiver, AsyncSender, aconnect
from router.client.attach import Terminus
from router.client.backoff import Backoff
from router.client.blocking import SyncConnection, SyncReceiver, SyncSender, connect
from router.client.errors import (
    ClientError,
    ConnectionFailedError,
    LinkDetachedError,
    StaleDeliveryError,
    UnsettledError,
)
from router.client.links import Delivery
from router.client.message import DataSections, Message, Sequences
from router.client.outcome import Accepted, Modified, OtherState, Outcome, Rejected, Released
from router.client.tls import Tls

__all__ = [
    "Accepted",
    "AsyncConnection",
    "AsyncReceiver",
    "AsyncSender",
    "Backoff",
    "ClientError",
    "ConnectionFailedError",
    "DataSections",
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
    "SyncReceiver",
    "SyncSender",
    "Terminus",
    "Tls",
    "UnsettledError",
    "aconnect",
    "connect",
]
