"""Rows of a scripted management node, and types of the fixtures of these tests."""

import re
from collections.abc import Callable

ROUTER = {
    "id": "QDR.A", "version": "1.19.0", "mode": "interior", "area": "0", "linkRouteCount": 1, "autoLinkCount": 2,
    "linkCount": 3, "nodeCount": 4, "addrCount": 5, "connectionCount": 6,
}  # fmt: skip
TOTALS = {
    "workerThreads": 4, "uptimeSeconds": 90061, "memoryUsage": 333447168, "presettledDeliveries": 1000,
    "droppedPresettledDeliveries": 1, "acceptedDeliveries": 2, "rejectedDeliveries": 3, "releasedDeliveries": 4,
    "modifiedDeliveries": 5, "deliveriesDelayed1Sec": 6, "deliveriesDelayed10Sec": 7, "deliveriesStuck": 8,
    "deliveriesRedirectedToFallback": 9, "linksBlocked": 10, "deliveriesIngress": 11, "deliveriesEgress": 12,
    "deliveriesTransit": 13, "deliveriesIngressRouteContainer": 14, "deliveriesEgressRouteContainer": 15,
}  # fmt: skip
CONNECTION = {
    "identity": "1", "host": "127.0.0.1:4", "container": "c", "role": "normal", "protocol": "amqp", "dir": "in",
    "isAuthenticated": False, "sasl": None, "user": None, "isEncrypted": False, "sslProto": None, "sslCipher": None,
    "tenant": None, "active": True, "lastDlvSeconds": None, "uptimeSeconds": 59,
}  # fmt: skip
ADDRESS = {
    "name": "M0b", "distribution": "balanced", "priority": -1, "inProcess": 0, "subscriberCount": 1, "remoteCount": 2,
    "containerCount": 7, "deliveriesIngress": 1234567, "deliveriesEgress": 4, "deliveriesTransit": 5,
    "deliveriesToContainer": 1000, "deliveriesFromContainer": 2000, "deliveriesRedirectedToFallback": 6,
}  # fmt: skip
HEADING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC\nQDR\.A\n\n")

Stat = Callable[..., str]
