"""Events about connectors that have lost or found their peer, by comparison with the last reading."""

from collections.abc import Iterator

from sluice.supervisor.runtime.availability import ConnectorStates


class ConnectorChanges:
    """Connectors that were down at the last reading. Owner: the history."""

    def __init__(self) -> None:
        self._down: set[str] = set()

    def take(self, states: ConnectorStates) -> Iterator[tuple[str, str]]:
        """Yield kind and text of each change. A connector that has not failed yet is not down."""
        failed = {config.name: each.error for config, each in states if not each.up and each.error}
        up = {config.name for config, each in states if each.up}
        before, self._down = self._down, set(failed)
        for name in sorted(self._down - before):
            yield "connector down", f"Connector '{name}' is down: {failed[name]}"
        for name in sorted(before & up):
            yield "connector up", f"Connector '{name}' is up again"
