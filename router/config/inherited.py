"""Secrets that the router inherits at its start: environment variables and open file descriptors.

A descriptor is read once, to its end, and closed. A variable stays in the environment until `seal`. From then on,
variables that the configuration names are removed from the environment. Descriptors are not read after `seal`,
because a number may by then be that of a descriptor of the router itself.
"""

import os
import select
import time
from typing import Final

from sluice.router.environment import EnvironmentMemory, find_environment_memory, is_needed

FIRST: Final = 3  # lowest descriptor number after the standard streams
MOST_OCTETS: Final = 4096  # octets of a secret
END_SECONDS: Final = 5.0  # time limit of reading a descriptor; the writer of a pipe may never close it


class SecretError(Exception):
    """Error for a secret that cannot be read. Its text is the reason, without the secret."""


class InheritedSecrets:
    """Inherited secrets. Owner: the process. `INHERITED` is the only instance outside of tests."""

    def __init__(self) -> None:
        # Variables that were requested; the value is set when the variable is removed from the environment.
        self._variables: dict[str, str | None] = {}
        self._descriptors: dict[int, str] = {}
        self._sealed = False
        self._area: EnvironmentMemory | None = None

    def seal(self) -> None:
        """End the start of the router: read no further descriptors, and remove variables from the environment.

        Variables requested before are removed now, others when they are requested.
        """
        self._sealed = True
        self._area = find_environment_memory()
        for name in list(self._variables):
            self.variable(name)

    @property
    def area(self) -> EnvironmentMemory | None:
        """Memory of the environment; None before `seal`."""
        return self._area

    def variable(self, name: str) -> str | None:
        """Return the value of a variable, or None. Variables that libraries need stay in the environment."""
        taken = self._variables.setdefault(name, None)
        value = os.environ.get(name)
        if value is None:
            return taken
        if self._sealed and not is_needed(name):
            self._variables[name] = value
            del os.environ[name]
            if self._area is not None:
                self._area.erase((name,))
        return value

    def remembered(self, name: str) -> str | None:
        """Return the value of a variable that was removed from the environment, or None."""
        return self._variables.get(name)

    def descriptor(self, number: int) -> str:
        """Return the first line read from a descriptor. Raises SecretError."""
        if number not in self._descriptors:
            if self._sealed:
                raise SecretError(f"descriptor {number} was not read when the router started, and cannot be read later")
            self._descriptors[number] = first_line(_read(number))
        return self._descriptors[number]

    def forget(self) -> None:
        """Drop all values. For processes that need no secrets."""
        self._variables.clear()
        self._descriptors.clear()


INHERITED: Final = InheritedSecrets()


def first_line(octets: bytes) -> str:
    """Return the first line of octets as text, without its end. Raises SecretError."""
    if len(octets) > MOST_OCTETS:
        raise SecretError(f"it has more than {MOST_OCTETS} octets")
    try:
        return octets.partition(b"\n")[0].rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise SecretError("it is not UTF-8 text") from None  # the original error contains the octets


def _read(number: int) -> bytes:
    """Read an inherited descriptor to its end, and close it. Raises SecretError."""
    if number < FIRST:
        raise SecretError(f"descriptor {number} is a standard stream: use {FIRST} or more")
    try:
        if not os.get_inheritable(number):  # descriptors opened by this process are not inheritable
            raise SecretError(f"descriptor {number} was not inherited by the router at its start")
        os.set_inheritable(number, False)
        try:
            return _to_the_end(number)
        finally:
            os.close(number)
    except OSError as error:
        raise SecretError(f"descriptor {number}: {error.strerror}") from error
    except OverflowError:
        raise SecretError(f"descriptor {number}: {os.strerror(9)}") from None


def _to_the_end(number: int) -> bytes:
    """Read a descriptor to its end, within END_SECONDS. Raises OSError and SecretError."""
    found = b""
    poller = select.poll()
    poller.register(number, select.POLLIN)
    until = time.monotonic() + END_SECONDS
    while len(found) <= MOST_OCTETS:
        if not poller.poll(max(0.0, until - time.monotonic()) * 1000):
            raise SecretError(f"descriptor {number} was not closed by its writer within {END_SECONDS:g} seconds")
        octets = os.read(number, MOST_OCTETS + 1 - len(found))
        if not octets:
            break
        found += octets
    return found
