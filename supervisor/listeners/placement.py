"""Choice of the worker for new connections of certain clients: `placement` entities.

A worker has to be chosen before the first octet of AMQP. Only the listener and the client's host are known then.
"""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from sluice.router.config.entities import Configuration, PlacementConfig
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.subsystem import Subsystem

_MAPPED: Final = "::ffff:"  # prefix of an IPv4 address accepted by an IPv6 socket


class _Rule(NamedTuple):
    listener: str | None
    network: IPv4Network | IPv6Network | None
    worker: int

    @property
    def order(self) -> tuple[int, bool]:
        """Return the sort key: larger for a smaller network, then for a rule with a listener."""
        return (-1 if self.network is None else self.network.prefixlen), self.listener is not None


class Placements(Subsystem):
    """All placements. Owner: the acceptor."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def start(self, configuration: Configuration) -> None:
        self._use(configuration)

    def commit(self, change: ConfigurationChange) -> None:
        if change.concerns(PlacementConfig):
            self._use(change.new)

    def _use(self, configuration: Configuration) -> None:
        rules = [
            _Rule(each.listener, None if each.host is None else ip_network(each.host), each.worker)
            for each in configuration.others
            if isinstance(each, PlacementConfig)
        ]
        self._rules = sorted(rules, key=lambda rule: rule.order, reverse=True)

    def worker(self, listener: str, host: str) -> int | None:
        """Return the index of the worker for a client, or None if no placement matches."""
        if not self._rules:
            return None
        address = ip_address(host.partition("%")[0].removeprefix(_MAPPED))
        for rule in self._rules:
            if rule.listener in (None, listener) and (rule.network is None or address in rule.network):
                return rule.worker
        return None
