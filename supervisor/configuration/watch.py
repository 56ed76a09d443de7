"""Watch for a changed configuration file (`watchConfiguration`), including symbolic links that point elsewhere.

Once a second a thread reads the state of the file and of the files in policyDir, following links. If a state differs,
and is the same one second later, the configuration is reloaded. The delay allows for programs that write a file in
several steps or replace several files one after the other.
"""

import asyncio
import os
import traceback
from functools import partial
from typing import Final

from sluice.router.config.diff import Plan
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.configuration.live import LiveConfiguration
from sluice.supervisor.configuration.reloads import Reloads
from sluice.supervisor.runtime.file_state import FileState, read_file_state
from sluice.supervisor.runtime.threads import Threads

SOURCE: Final = "watchConfiguration"  # source of the reloads, in the audit log
INTERVAL: Final = 1.0  # seconds between two checks
LOOK_SECONDS: Final = 10.0  # timeout for one check of all files
MAX_THREADS: Final = 4  # checks that hang

_States = dict[str, FileState]


class ConfigurationWatch:
    """Periodic check of the configuration file. Owner: supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, live: LiveConfiguration, reloads: Reloads, log: ProcessLog):
        self._loop: Final = loop
        self._live: Final = live
        self._reloads: Final = reloads
        self._log: Final = log
        self._threads: Final = Threads(loop, "configuration watch", MAX_THREADS)
        self._task: asyncio.Task[None] | None = None
        # States of the files: when they were last reloaded, and at the last check. None: not known.
        self._loaded: _States | None = None
        self._seen: _States | None = None

    def start(self) -> None:
        """Begin to check, if the configuration asks for it, now that the router listens."""
        self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        """End the checks."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except OSError as error:
                text = f"The configuration file cannot be checked: {error.strerror or error}"
                self._log.repeated(WARNING, "AGENT", SOURCE, f"{text}; retried every {INTERVAL:g} s")
            except Exception:  # noqa: BLE001 - logged with its traceback; the next check follows in any case
                text = f"Internal error in the check of the configuration file, retried every {INTERVAL:g} s"
                self._log.critical("AGENT", f"{text}: {traceback.format_exc()}".rstrip())
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Check the files, and reload the configuration if they have changed. Raises OSError, also after a timeout."""
        configuration = self._live.configuration
        if not configuration.router.watch_configuration:
            self._loaded = self._seen = None
            return
        look = partial(_read_states, configuration.path, configuration.policy.directory)
        states = await self._threads.run(look, LOOK_SECONDS)
        stable = states == self._seen
        self._seen = states
        if not stable or states == self._loaded:
            return
        first = self._loaded is None
        self._loaded = states
        # The file may have changed between its reading at the start and the first check.
        if first and not await self._has_changes():
            return
        self._log.notice("AGENT", "The configuration file has changed; reloading")
        await self._reloads.ask(source=SOURCE)

    async def _has_changes(self) -> bool:
        """True if the file differs from the configuration in force."""
        result = await self._reloads.ask(source=SOURCE, plan_only=True)
        return isinstance(result, Plan) and bool(result.changes)


def _read_states(path: str, policy_directory: str | None) -> _States:
    """Return the states of the configuration file and of the vhost files, by path."""
    paths = [path]
    if policy_directory:
        paths.append(policy_directory)
        try:
            names = os.listdir(policy_directory)
        except OSError:
            names = []  # the state of the folder tells
        paths += (os.path.join(policy_directory, name) for name in sorted(names) if name.endswith(".json"))
    return {each: read_file_state(each) for each in paths}
