"""Watch for changed files of sslProfiles, including symbolic links that point elsewhere.

Once a second a thread reads the state of each file, following links. If a state differs, and is the same one second
later, the files of the profile are read again. The delay allows for tools that replace a certificate and its key one
after the other. The contents decide whether anything is new.
"""

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from sluice.router.config.entities import Configuration, SslProfileConfig
from sluice.router.log import WARNING, ProcessLog
from sluice.router.tls.profile import files_of
from sluice.supervisor.runtime.file_state import FileState, read_file_state
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.subsystem import Subsystem
from sluice.supervisor.tls.list_cache import ListCache
from sluice.supervisor.tls.profiles import Materials, TlsProfiles

INTERVAL: Final = 1.0  # seconds between two checks
LOOK_SECONDS: Final = 10.0  # timeout for one check of all files
MAX_THREADS: Final = 4  # checks that hang

_States = tuple[FileState, ...]


class CredentialWatch(Subsystem):
    """Periodic check of the files of all profiles. Owner: the core."""

    def __init__(self, loop: asyncio.AbstractEventLoop, profiles: TlsProfiles, log: ProcessLog) -> None:
        self._loop: Final = loop
        self._profiles: Final = profiles
        self._log: Final = log
        self._task: asyncio.Task[None] | None = None
        self._stale: set[str] = set()  # profiles whose revocation lists have changed since they were read
        self._lists: Final = ListCache(loop, log, self._stale.add)
        profiles.use_lists(self._lists)
        # States of the files by profile: when they were last read, and at the last check.
        self._read: dict[str, tuple[SslProfileConfig, _States]] = {}
        self._seen: dict[str, _States] = {}

    def start(self, configuration: Configuration) -> None:
        self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._lists.stop()

    async def _run(self) -> None:
        threads = Threads(self._loop, "credentials", MAX_THREADS)
        while True:
            try:
                await self._look(threads)
            except OSError as error:
                text = f"Files of sslProfiles cannot be checked: {error.strerror or error}"
                self._log.repeated(WARNING, "CONN_MGR", "credentials", f"{text}; retried every {INTERVAL:g} s")
            except Exception:  # noqa: BLE001 - logged with its traceback; the next check follows in any case
                text = f"Internal error in the check for new certificate files, retried every {INTERVAL:g} s"
                self._log.critical("CONN_MGR", f"{text}: {traceback.format_exc()}".rstrip())
            await asyncio.sleep(INTERVAL)

    async def _look(self, threads: Threads) -> None:
        """Check all files and read those that have changed. Raises OSError, also after a timeout."""
        configs = {name: held.config for name, held in self._profiles.held.items() if held.config is not None}
        self._lists.look(configs)
        if not configs:
            return
        files = {name: files_of(config) for name, config in configs.items()}
        states = await threads.run(partial(_states, files), LOOK_SECONDS)
        due = []
        for name, config in configs.items():
            read = self._read.get(name)
            # Files of a newly configured profile may have changed since they were read for the configuration.
            known = read is not None and read[0] is config and read[1] == states[name]
            if name in self._stale or (not known and states[name] == self._seen.get(name)):
                due.append(name)
        self._stale.clear()
        self._seen = states
        self._read = {name: read for name, read in self._read.items() if name in configs}
        for name in configs:
            if name in self._profiles.held:
                self._profiles.check_expiry(name)
        if due:
            await self._renew({name: configs[name] for name in due})
            for name in due:
                self._read[name] = configs[name], states[name]

    async def _renew(self, configs: Mapping[str, SslProfileConfig]) -> None:
        names = [name for name, config in configs.items() if self._is_current(name, config)]
        materials: Materials = await self._profiles.read(names)
        for name, material in materials.items():
            self._profiles.take(configs[name], material)

    def _is_current(self, name: str, config: SslProfileConfig) -> bool:
        held = self._profiles.held.get(name)
        return held is not None and held.config is config


def _states(files: Mapping[str, Sequence[str]]) -> dict[str, _States]:
    return {name: tuple(map(read_file_state, paths)) for name, paths in files.items()}
