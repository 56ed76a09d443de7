"""Listeners that are opened, changed and closed while the router runs.

Sockets come first: whatever has to be opened is bound and listens before anything changes, so that a change that cannot
be made leaves all as it was. A listener that only changes its attributes, or its name, keeps its sockets. One that
could not be opened is tried again from time to time.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from router.config.entities import ListenerConfig
from router.log import Log
from supervisor.acceptor import Acceptor, Listener, ListenError
from supervisor.core import Core
from supervisor.names import Answers, Found, Resolver, at_once, place

if TYPE_CHECKING:
    from supervisor.http.service import HttpService

RETRY_AFTER: Final = 5.0  # seconds until a listener that could not be opened is tried again

_Place = tuple[object, ...]


class Listening:
    """The listeners at run time. Owner: the live configuration."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        names: Resolver,
        acceptor: Acceptor,
        http: Callable[[], "HttpService | None"],
        make_http: Callable[[], "HttpService"],
        core: Core,
        log: Log,
        announce: Callable[[Listener], None],
        changed: Callable[[], object],
    ) -> None:
        """http: who has the HTTP listeners, if anybody yet. announce: called when a listener takes connections.
        changed: called when there is something to send to workers.
        """
        self._loop: Final = loop
        self.names: Final = names
        self._acceptor: Final = acceptor
        self._http: Final = http
        self._make_http: Final = make_http
        self._core: Final = core
        self._log: Final = log
        self._announce: Final = announce
        self._changed: Final = changed
        self._wanted: tuple[ListenerConfig, ...] = ()  # those that are to be open
        self._failures: dict[_Place, str] = {}  # why one could not be opened, as the log has it
        self._timer: asyncio.TimerHandle | None = None
        self._attempt: asyncio.Task[None] | None = None

    def missing(self, wanted: Iterable[ListenerConfig]) -> list[ListenerConfig]:
        """Those that would have to be opened."""
        return ListenerChange(self._open(), wanted).missing

    def prepare(
        self, before: Iterable[ListenerConfig], wanted: Iterable[ListenerConfig], answers: Answers, *, strict: bool
    ) -> "ListenerChange":
        """Bind what has to be opened. Raises ListenError, with everything as it was.

        answers: what the hosts stand for; a listener whose host is in question is not opened now. One that was to be
        open before and is not is tried again, and only logged when that fails again; without `strict` that goes for
        every one.
        """
        change = ListenerChange(self._open(), wanted)
        tried = {_place(config) for config in before} if strict else None
        change.shared = [each for each in change.leaving if any(each.config.port == own.port for own in change.missing)]
        for listener in change.shared:
            listener.share(True)
        try:
            for config in change.missing:
                found = answers.get(place(config)) or at_once(config)
                if found is None:
                    continue
                try:
                    change.opened.append(_opened(config, found, share=bool(change.shared)))
                except ListenError as error:
                    if tried is not None and _place(config) not in tried:
                        raise
                    self._failed(config, error)
        except ListenError:
            change.discard()
            raise
        return change

    def _failed(self, config: ListenerConfig, error: ListenError) -> None:
        """A listener cannot be opened: say so, unless that has been said."""
        if self._failures.get(_place(config)) != error.reason:
            self._failures[_place(config)] = error.reason
            self._log.error("SERVER", f"Listener error on {error.address}: {error.reason}")

    def _open(self) -> Iterator[Listener]:
        yield from self._acceptor.listeners
        if (http := self._http()) is not None:
            yield from http.open_listeners

    def restore(self, wanted: Iterable[ListenerConfig]) -> None:
        """Go back to these, as far as that can be done at once; for the rest see `expect`."""
        change = ListenerChange(self._open(), wanted)
        self.commit(change)
        self.expect(wanted)

    def expect(self, wanted: Iterable[ListenerConfig]) -> None:
        """From now on these are to be open: those that are not are tried again."""
        self._wanted = tuple(wanted)
        missing = self.missing(self._wanted)
        places = {_place(config) for config in missing}
        self._failures = {at: reason for at, reason in self._failures.items() if at in places}
        if missing and self._timer is None and self._attempt is None:
            self._timer = self._loop.call_later(RETRY_AFTER, self._again)

    def _again(self) -> None:
        self._timer = None
        self._attempt = self._loop.create_task(self._try_again())

    async def _try_again(self) -> None:
        """Open what is missing, as far as that goes now."""
        try:
            answers = await self.names.find(self.missing(self._wanted))
            self.commit(self.prepare(self._wanted, self._wanted, answers, strict=False))
            self._changed()
        except Exception:  # noqa: BLE001 - logged with its trace, and tried again
            self._log.critical("SERVER", f"Listeners not opened: {traceback.format_exc()}".rstrip())
        finally:
            self._attempt = None
        self.expect(self._wanted)

    def stop(self) -> None:
        """The router ends: try nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()

    def commit(self, change: "ListenerChange") -> None:
        """Make the change. Connections are taken as the new ones say when the workers know it."""
        for listener in change.leaving:
            self._close(listener)
        for listener in change.opened:
            self._log_configured(listener.config)
            if listener.config.http:
                self._make_http().add(listener)
                self._announce(listener)
            else:
                self._acceptor.add(listener)
                self._offer(listener)
        for listener, config in change.changed:
            self._log_configured(config)
            listener.config = config
            if not config.http:
                self._offer(listener)

    def _close(self, listener: Listener) -> None:
        if listener.config.http:
            self._make_http().close(listener.config.name)
        else:
            self._acceptor.remove(listener)
            if listener.accepts_as is not None:
                self._core.offers.retire(listener.accepts_as[1])
        self._log.info("CONN_MGR", f"Deleted Listener: {listener.text}")

    def _log_configured(self, config: ListenerConfig) -> None:
        family = config.family or "any"
        kind = ", http" if config.http else ""
        place = f"{config.host}:{config.port_text}"
        self._log.info("CONN_MGR", f"Configured Listener: {place} proto={family}, role={config.role}{kind}")

    def _offer(self, listener: Listener) -> None:
        """Tell the workers what connections of a listener may do."""
        config = listener.config
        offer, epoch = self._core.offers.add(config)
        self._core.epochs.call_when_all(epoch, lambda: self._accept(listener, config, offer))

    def _accept(self, listener: Listener, config: ListenerConfig, offer: str) -> None:
        """All workers know what connections of a listener may do."""
        if listener not in self._acceptor.listeners:  # closed meanwhile
            self._core.offers.retire(offer)
            return
        is_new = listener.accepts_as is None
        before = self._acceptor.accept_as(listener, config, offer)
        if before is not None:
            self._core.offers.retire(before)
        if is_new:
            self._announce(listener)


class ListenerChange:
    """What a change does to listeners. Owner: whoever carries it out.

    leaving: to be closed. changed: with their new configuration. missing: to be opened. opened: those, bound. shared:
    leaving ones whose port others have.
    """

    def __init__(self, present: Iterable[Listener], wanted: Iterable[ListenerConfig]) -> None:
        self.leaving = list(present)
        self.changed: list[tuple[Listener, ListenerConfig]] = []
        self.missing: list[ListenerConfig] = []
        self.opened: list[Listener] = []
        self.shared: list[Listener] = []
        rest = [config for config in wanted if not self._keep(config, same_name=True)]
        # One that has got another name goes on with its connections. A port chosen by the kernel belongs to the name.
        renamed = [config for config in rest if config.port and not config.http and self._keep(config, same_name=False)]
        self.missing = [config for config in rest if config not in renamed]

    def _keep(self, config: ListenerConfig, *, same_name: bool) -> bool:
        """Let a listener that is open already be the one that `config` asks for; False when there is none."""
        for listener in self.leaving:
            if _place(listener.config) == _place(config) and (listener.config.name == config.name or not same_name):
                self.leaving.remove(listener)
                if listener.config != config:
                    self.changed.append((listener, config))
                return True
        return False

    def discard(self) -> None:
        """Close what was opened: everything is as it was."""
        for listener in self.opened:
            listener.close()
        for listener in self.shared:
            listener.share(False)


def _opened(config: ListenerConfig, found: Found, *, share: bool) -> Listener:
    """A listener that listens. Raises ListenError."""
    listener = Listener(config, found, share=share)
    try:
        listener.listen()
    except ListenError:
        listener.close()
        raise
    return listener


def _place(config: ListenerConfig) -> _Place:
    """What a listener's sockets depend on."""
    return (config.hosts, config.port, config.http)
