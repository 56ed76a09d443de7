"""Configuration sections shared by the tests of gateways."""

from __future__ import annotations

from tests.interop.brokers import BrokerProcess
from tests.system.router import Section


def connector(broker: BrokerProcess) -> Section:
    """Return the connector to a broker. Auto links and link routes refer to it by the broker's name."""
    return "connector", {
        "name": broker.name,
        "host": "127.0.0.1",
        "port": broker.port,
        "role": "route-container",
        "saslMechanisms": "PLAIN",
        "saslUsername": broker.user,
        "saslPassword": broker.password,
    }


def auto_links(address: str, broker: BrokerProcess) -> list[Section]:
    """Return both auto links of a queue whose name on the broker equals its address on the router."""
    there = {"address": address, "connection": broker.name, "externalAddress": broker.existing(address)}
    return [("autoLink", {**there, "direction": direction}) for direction in ("in", "out")]


def link_routes(prefix: str, broker: BrokerProcess, **more: str) -> list[Section]:
    """Return link routes to a broker for both directions."""
    there = {"prefix": prefix, "connection": broker.name, **more}
    return [("linkRoute", {**there, "direction": direction}) for direction in ("in", "out")]


def coordinator(broker: BrokerProcess) -> Section:
    """Return the link route for transactions. Only one broker can have it."""
    return "linkRoute", {"prefix": "$coordinator", "direction": "in", "connection": broker.name}
