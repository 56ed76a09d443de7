"""Open listeners for AMQP and HTTP, and the profiles with which they accept connections."""

from collections.abc import Callable, Iterator
from typing import Final

from sluice.router.config.entities import ListenerConfig
from sluice.router.log import ProcessLog
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.listeners.acceptor import Acceptor
from sluice.supervisor.listeners.listener import Listener
from sluice.supervisor.listeners.profiles import ListenerProfiles
from sluice.supervisor.web.lazy import LazyHttp


class OpenListeners:
    """All open listeners. Owner: `RuntimeListeners`.

    A listener accepts AMQP connections with a configuration once all workers have the profile of that configuration.
    """

    def __init__(
        self,
        acceptor: Acceptor,
        http: LazyHttp,
        profiles: ListenerProfiles,
        journal: Journal,
        announce: Callable[[Listener], None],
        log: ProcessLog,
    ) -> None:
        """announce: called when a listener starts accepting connections."""
        self._acceptor: Final = acceptor
        self._http: Final = http
        self._profiles: Final = profiles
        self._journal: Final = journal
        self._announce: Final = announce
        self._log: Final = log

    def __iter__(self) -> Iterator[Listener]:
        yield from self._acceptor.listeners
        yield from self._http.open_listeners

    def add(self, listener: Listener) -> None:
        """Add a new listener, whose sockets are in the listening state."""
        self._log_configured(listener.config)
        if listener.config.http:
            self._http.service().add(listener)
            self._announce(listener)
        else:
            self._acceptor.add(listener)
        if listener.config.speaks_amqp:
            self._make_profile(listener)

    def change(self, listener: Listener, config: ListenerConfig) -> None:
        """Change the configuration of a listener that keeps its sockets."""
        self._log_configured(config)
        listener.config = config
        if config.speaks_amqp:
            self._make_profile(listener)
        else:
            self._retire_profile(listener)

    def close(self, listener: Listener) -> None:
        """Close a listener, and retire its profile."""
        if listener.config.http:
            self._http.service().close(listener.config.name)
        else:
            self._acceptor.remove(listener)
        self._retire_profile(listener)
        self._log.info("CONN_MGR", f"Deleted Listener: {listener.text}")

    def _log_configured(self, config: ListenerConfig) -> None:
        self._log.info("CONN_MGR", describe_configured(config))

    def _make_profile(self, listener: Listener) -> None:
        """Send a new profile of a listener to all workers, and use it once they have acknowledged it."""
        config = listener.config
        profile, epoch = self._profiles.add(config)
        self._journal.call_when_acknowledged(lambda: self._accept(listener, config, profile), epoch)

    def _accept(self, listener: Listener, config: ListenerConfig, profile: str) -> None:
        """Accept connections with a profile that all workers have acknowledged."""
        if listener not in self or not listener.config.speaks_amqp:  # closed or changed in the meantime
            self._profiles.retire(profile)
            return
        is_new = listener.accepts_as is None
        before = self._acceptor.accept_as(listener, config, profile)
        if before is not None:
            self._profiles.retire(before)
        if is_new and not config.http:
            self._announce(listener)

    def _retire_profile(self, listener: Listener) -> None:
        """Retire the profile of a listener that no longer accepts AMQP connections."""
        accepts_as, listener.accepts_as = listener.accepts_as, None
        if accepts_as is not None:
            self._profiles.retire(accepts_as[1])


def describe_configured(config: ListenerConfig) -> str:
    """Return the log line for a configured listener (management.md 4.6)."""
    kind = (", http" if config.http else "") + (f", sslProfile={config.ssl_profile}" if config.ssl_profile else "")
    family = config.family or "any"
    return f"Configured Listener: {config.host}:{config.port_text} proto={family}, role={config.role}{kind}"
