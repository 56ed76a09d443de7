"""Opening, changing and closing of listeners while the router runs.

New listeners are bound and listen before anything else changes, so that a failed change has no effect. A listener that
only changes its attributes or its name keeps its sockets. A listener that cannot be opened is retried periodically.
"""

import asyncio
import traceback
from collections.abc import Collection, Iterable
from typing import Final

from sluice.router.config.entities import Configuration, ListenerConfig
from sluice.router.log import ProcessLog
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.listeners.listener import Listener, ListenError
from sluice.supervisor.listeners.open_listeners import OpenListeners
from sluice.supervisor.runtime.host_names import AddressesByHosts, HostAddresses, Resolver, numeric_addresses, place
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import Subsystem

RETRY_AFTER: Final = 5.0  # seconds until a listener that could not be opened is retried

_NONE: Final[AddressesByHosts] = {}
_Place = tuple[object, ...]
_Named = Collection[tuple[str, _Place]]  # names of listeners with their places


class RuntimeListeners(Subsystem):
    """Listeners at run time. Owner: supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        names: Resolver,
        listeners: OpenListeners,
        waker: Waker,
        log: ProcessLog,
        inherited: InheritedSockets | None = None,
    ) -> None:
        """inherited: sockets for listeners, instead of binding."""
        self._loop: Final = loop
        self._names: Final = names
        self._open: Final = listeners
        self._waker: Final = waker
        self._log: Final = log
        self._inherited: Final = inherited
        self._wanted: tuple[ListenerConfig, ...] = ()  # listeners that should be open
        self._failures: dict[_Place, str] = {}  # logged reasons of listeners that could not be opened
        self._timer: asyncio.TimerHandle | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._prepared: ListenerChange | None = None

    # Subsystem

    def start(self, configuration: Configuration) -> None:
        """Start retrying the listeners that are not open."""
        self._expect(configuration.listeners)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[AddressesByHosts] | None":
        """Resolve the hosts of listeners that are to be opened."""
        if not change.concerns(ListenerConfig):
            return None
        missing = self._missing(change.new.listeners if change.whole else change.made(ListenerConfig))
        if self._names.known(missing) is not None:
            return None
        return self._loop.create_task(self._names.find(missing))

    def prepare(self, change: ConfigurationChange) -> None:
        """Bind new listeners. In a reload, all listeners that were not configured before must succeed."""
        if not change.concerns(ListenerConfig):
            return
        answers = change.gathered.pop(self, _NONE)
        tried = None
        if change.whole and not change.undo:
            # With names, because a new listener may have the place of one that is open.
            tried = {(config.name, _place(config)) for config in change.old.listeners}
        try:
            self._prepared = self._bind(change.new.listeners, answers, tried)
        except ListenError as error:
            raise ChangeError(500, f"Listener error on {error.address}: {error.reason}") from error

    def commit(self, change: ConfigurationChange) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._use(prepared)
            self._expect(change.new.listeners)

    def discard(self, change: ConfigurationChange) -> None:
        if self._prepared is not None:
            self._prepared.discard()
            self._prepared = None

    # Opening and closing

    def _missing(self, wanted: Iterable[ListenerConfig]) -> list[ListenerConfig]:
        """Return the listeners to open."""
        return ListenerChange(self._open, wanted).missing

    def _bind(
        self,
        wanted: Iterable[ListenerConfig],
        answers: AddressesByHosts,
        tried: _Named | None = None,
    ) -> "ListenerChange":
        """Bind new listeners. Raises ListenError if nothing has changed.

        answers: the addresses of the hosts. A listener whose host is still being resolved is not opened now. A
        listener that cannot be opened is logged and retried later; with `tried`, only a listener that was tried
        before.
        """
        change = ListenerChange(self._open, wanted)
        change.shared = [each for each in change.leaving if any(each.config.port == own.port for own in change.missing)]
        for listener in change.shared:
            listener.share(True)
        try:
            for config in change.missing:
                found = answers.get(place(config)) or numeric_addresses(config)
                if found is None:
                    continue
                try:
                    change.opened.append(_opened(config, found, self._inherited, share=bool(change.shared)))
                except ListenError as error:
                    if tried is not None and (config.name, _place(config)) not in tried:
                        raise
                    self._failed(config, error)
        except ListenError:
            change.discard()
            raise
        return change

    def _failed(self, config: ListenerConfig, error: ListenError) -> None:
        """Log that a listener cannot be opened, unless the same reason is already logged."""
        if self._failures.get(_place(config)) != error.reason:
            self._failures[_place(config)] = error.reason
            self._log.error("SERVER", f"Listener error on {error.address}: {error.reason}")

    def _expect(self, wanted: Iterable[ListenerConfig]) -> None:
        """Keep these listeners open from now on, and retry those that are not."""
        self._wanted = tuple(wanted)
        missing = self._missing(self._wanted)
        places = {_place(config) for config in missing}
        self._failures = {at: reason for at, reason in self._failures.items() if at in places}
        if missing and self._timer is None and self._attempt is None:
            self._timer = self._loop.call_later(RETRY_AFTER, self._again)

    def _again(self) -> None:
        self._timer = None
        self._attempt = self._loop.create_task(self._try_again())

    async def _try_again(self) -> None:
        """Open as many missing listeners as possible."""
        try:
            answers = await self._names.find(self._missing(self._wanted))
            self._use(self._bind(self._wanted, answers))
            self._waker.wake()
        except Exception:  # noqa: BLE001 - logged with its traceback, and retried
            text = f"Internal error while opening listeners, retried in {RETRY_AFTER:g} s: {traceback.format_exc()}"
            self._log.critical("SERVER", text.rstrip())
        finally:
            self._attempt = None
        self._expect(self._wanted)

    def _use(self, change: "ListenerChange") -> None:
        """Apply a change."""
        for listener in change.leaving:
            self._open.close(listener)
        for listener in change.opened:
            self._open.add(listener)
        for listener, config in change.changed:
            self._open.change(listener, config)


class ListenerChange:
    """Effect of a configuration change on the listeners. Owner: the caller.

    leaving: listeners to close. changed: listeners with their new configuration. missing: configurations to open.
    opened: new listeners, bound. shared: leaving listeners that share their port with new ones.
    """

    def __init__(self, present: Iterable[Listener], wanted: Iterable[ListenerConfig]) -> None:
        self.leaving = list(present)
        self.changed: list[tuple[Listener, ListenerConfig]] = []
        self.missing: list[ListenerConfig] = []
        self.opened: list[Listener] = []
        self.shared: list[Listener] = []
        rest = [config for config in wanted if not self._keep(config, same_name=True)]
        # A renamed listener keeps its connections. A port chosen by the kernel belongs to the name.
        renamed = [config for config in rest if config.port and not config.http and self._keep(config, same_name=False)]
        self.missing = [config for config in rest if config not in renamed]

    def _keep(self, config: ListenerConfig, *, same_name: bool) -> bool:
        """Use an open listener for `config`. Returns False if none fits."""
        for listener in self.leaving:
            if _place(listener.config) == _place(config) and (listener.config.name == config.name or not same_name):
                self.leaving.remove(listener)
                if listener.config != config:
                    self.changed.append((listener, config))
                return True
        return False

    def discard(self) -> None:
        """Close the new listeners, and stop sharing ports."""
        for listener in self.opened:
            listener.close()
        for listener in self.shared:
            listener.share(False)


def _opened(
    config: ListenerConfig, found: HostAddresses, inherited: InheritedSockets | None, *, share: bool
) -> Listener:
    """Return a new listener in the listening state. Raises ListenError."""
    listener = Listener(config, found, inherited, share=share)
    try:
        listener.listen()
    except ListenError:
        listener.close()
        raise
    return listener


def _place(config: ListenerConfig) -> _Place:
    """Return the attributes that determine the sockets of a listener."""
    return (config.hosts, config.port, config.http)
