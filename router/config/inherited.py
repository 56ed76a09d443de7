"""Secrets that the router inherits when it is started: variables of its environment, and open descriptors.

A descriptor is read once, to its end, and closed. A variable stays where it is until `seal`. From then on a variable
that the configuration names is taken out of the environment, and descriptors that nobody has named are left alone: a
number may be one of the router's own by then.
"""

import os
import select
import time
from typing import Final

from router.environment import Area, find_area, is_needed

FIRST: Final = 3  # descriptor; those before are the standard streams
MOST_OCTETS: Final = 4096  # of a secret
END_SECONDS: Final = 5.0  # for all of it: whoever has the other end of a pipe may never close it


class SecretError(Exception):
    """A secret cannot be had; the text is the reason, without the secret."""


class InheritedSecrets:
    """Owner: the process. `INHERITED` is the only one outside of tests."""

    def __init__(self) -> None:
        self._variables: dict[str, str | None] = {}  # asked for before `seal`: None, taken: its value
        self._descriptors: dict[int, str] = {}
        self._sealed = False
        self._area: Area | None = None

    def seal(self) -> None:
        """Take the variables that were asked for, and those that will be, out of the environment. The router has
        started: no further descriptor is read."""
        self._sealed = True
        self._area = find_area()
        for name in list(self._variables):
            self.variable(name)

    @property
    def area(self) -> Area | None:
        """The place of the environment, once sealed."""
        return self._area

    def variable(self, name: str) -> str | None:
        """The value of a variable; None if there is none. Variables that libraries need stay in the environment."""
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

    def descriptor(self, number: int) -> str:
        """The first line of what a descriptor gave. Raises SecretError."""
        if number not in self._descriptors:
            if self._sealed:
                raise SecretError(f"descriptor {number} was not read when the router started, which is the only time")
            self._descriptors[number] = first_line(_read(number))
        return self._descriptors[number]

    def forget(self) -> None:
        """Drop all values, in a process that needs none of them."""
        self._variables.clear()
        self._descriptors.clear()


INHERITED: Final = InheritedSecrets()


def first_line(octets: bytes) -> str:
    """Return a secret without the end of its line. Raises SecretError."""
    if len(octets) > MOST_OCTETS:
        raise SecretError(f"it has more than {MOST_OCTETS} octets")
    try:
        return octets.partition(b"\n")[0].rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise SecretError("it is not UTF-8 text") from None  # the error shows the octets


def _read(number: int) -> bytes:
    """Read an inherited descriptor to its end, and close it. Raises SecretError."""
    if number < FIRST:
        raise SecretError(f"descriptor {number} is a standard stream: use {FIRST} or more")
    try:
        if not os.get_inheritable(number):  # those of this process are not: it has opened them itself
            raise SecretError(f"descriptor {number} is not one that the router was started with")
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
    """Raises OSError and SecretError."""
    found = b""
    poller = select.poll()
    poller.register(number, select.POLLIN)
    until = time.monotonic() + END_SECONDS
    while len(found) <= MOST_OCTETS:
        if not poller.poll(max(0.0, until - time.monotonic()) * 1000):
            raise SecretError(f"descriptor {number} has no end within {END_SECONDS:g} seconds")
        octets = os.read(number, MOST_OCTETS + 1 - len(found))
        if not octets:
            break
        found += octets
    return found
