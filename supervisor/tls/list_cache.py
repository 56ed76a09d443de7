"""Cache of revocation lists from URLs (`crlUrl`): the last valid list of each URL, renewed before it expires."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sluice.router.config.entities import SslProfileConfig
from sluice.router.log import INFO, WARNING, ProcessLog
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.tls.lists import ListError, RevocationList, fetch

FIRST_PAUSE: Final = 5.0  # seconds after a failure; doubled with each further failure
MOST_PAUSE: Final = 300.0
LEAST_PAUSE: Final = 1.0  # seconds until a list is fetched again that expires soon
MAX_THREADS: Final = 4

Fetch = Callable[[str, str, Threads], Awaitable[RevocationList]]
_Key = tuple[str, str]  # names of profile and URL


class _ListSource:
    """State of one URL of a profile. Owner: ListCache."""

    __slots__ = ("due", "found", "pause", "problem", "task", "trusted_file")

    def __init__(self, trusted_file: str) -> None:
        self.trusted_file = trusted_file
        self.found: RevocationList | None = None
        self.problem: str | None = "it has not been fetched yet"
        self.due = 0.0  # time of the next fetch, on the monotonic clock
        self.pause = FIRST_PAUSE
        self.task: asyncio.Task[None] | None = None


class ListCache:
    """All lists, in memory. A list that cannot be renewed is used until it expires. Owner: the watch of credentials."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: ProcessLog,
        renewed: Callable[[str], object],
        fetch_list: Fetch = fetch,
    ) -> None:
        """renewed: called with the name of a profile whose list has changed."""
        self._loop: Final = loop
        self._log: Final = log
        self._renewed: Final = renewed
        self._fetch: Final = fetch_list
        self._threads: Final = Threads(loop, "revocation lists", MAX_THREADS)
        self._sources: dict[_Key, _ListSource] = {}

    def lists(self, config: SslProfileConfig) -> str | None:
        """Return the present lists (PEM) of a profile, or None if the profile has no URLs."""
        if not config.list_urls:
            return None
        found = (self._sources.get((config.name, url)) for url in config.list_urls)
        return "".join(source.found.pem for source in found if source is not None and source.found is not None)

    def problem(self, name: str) -> str | None:
        """Return the problem of the first list of a profile that could not be renewed, or None."""
        for (profile, url), source in self._sources.items():
            if profile == name and source.problem is not None:
                return f"revocation list {url}: {source.problem}"
        return None

    def look(self, configs: Mapping[str, SslProfileConfig]) -> None:
        """Fetch the lists of these profiles that are due, and remove lists of other profiles. Called periodically."""
        wanted = {
            (config.name, url): config.trusted_file
            for config in configs.values()
            for url in config.list_urls
            if config.trusted_file is not None
        }
        for key in [key for key, source in self._sources.items() if wanted.get(key) != source.trusted_file]:
            self._forget(key)
        now = time.monotonic()
        for key, trusted_file in wanted.items():
            source = self._sources.setdefault(key, _ListSource(trusted_file))
            if source.task is None and source.due <= now:
                refresh = configs[key[0]].list_refresh_seconds
                source.task = self._loop.create_task(self._renew(key, source, refresh))

    def stop(self) -> None:
        """Remove all lists and cancel running fetches."""
        for key in [*self._sources]:
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        task = self._sources.pop(key).task
        if task is not None:
            task.cancel()

    async def _renew(self, key: _Key, source: _ListSource, refresh: float) -> None:
        name, url = key
        try:
            found = await self._fetch(url, source.trusted_file, self._threads)
            if source.found is not None and found.begins < source.found.begins:
                raise ListError("the fetched list is older than the previous list")
            if found.ends <= time.time():
                raise ListError("the fetched list has expired")
        except ListError as error:
            self._failed(key, source, str(error))
            return
        except Exception as error:  # noqa: BLE001 - logged, and retried
            self._failed(key, source, f"{type(error).__name__}: {error}")
            return
        finally:
            source.task = None
        before, source.found, source.problem, source.pause = source.found, found, None, FIRST_PAUSE
        left = found.ends - time.time()
        source.due = time.monotonic() + max(min(refresh, left / 2), LEAST_PAUSE)
        if before is None or before.pem != found.pem:
            until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.ends))
            self._log.write(INFO, "CONN_MGR", f"sslProfile '{name}': revocation list {url} is valid until {until}")
            self._renewed(name)

    def _failed(self, key: _Key, source: _ListSource, reason: str) -> None:
        source.problem = reason
        source.due = time.monotonic() + source.pause
        source.pause = min(2 * source.pause, MOST_PAUSE)
        kept = "connections are refused" if source.found is None else "the previous list is used until it expires"
        text = f"sslProfile '{key[0]}': revocation list {key[1]} cannot be renewed: {reason}; {kept}"
        self._log.repeated(WARNING, "CONN_MGR", f"list {key[0]} {key[1]}", text)
