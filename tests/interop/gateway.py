"""Sections of configuration that the tests of gateways share."""

from __future__ import annotations

from tests.interop.brokers import Broker
from tests.system.router import Section


def connector(broker: Broker) -> Section:
    """The connection to a broker; its name in what refers to it is the broker's."""
    return "connector", {
        "name": broker.name,
        "host": "127.0.0.1",
        "port": broker.port,
        "role": "route-container",
        "saslMechanisms": "PLAIN",
        "saslUsername": broker.user,
        "saslPassword": broker.password,
    }


def auto_links(address: str, broker: Broker) -> list[Section]:
    """Both auto links of a queue, which has the same name on the broker."""
    there = {"address": address, "connection": broker.name, "externalAddress": broker.existing(address)}
    return [("autoLink", {**there, "direction": direction}) for direction in ("in", "out")]


def link_routes(prefix: str, broker: Broker, **more: str) -> list[Section]:
    """Link routes for both directions."""
    there = {"prefix": prefix, "connection": broker.name, **more}
    return [("linkRoute", {**there, "direction": direction}) for direction in ("in", "out")]


def coordinator(broker: Broker) -> Section:
    """The link route of transactions, which one broker alone can have."""
    return "linkRoute", {"prefix": "$coordinator", "direction": "in", "connection": broker.name}
