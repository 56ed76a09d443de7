"""A file of users with their verifiers, as `sluice passwd` writes it and a `saslUsers` entity names it.

One line is one user: the name, a blank, then one verifier or several (`Verifier.text`), with blanks between. In a name
`%20` stands for a blank, and so on, as in a URL. Empty lines and lines with `#` in front mean nothing. A line
`!key BASE64` holds the secret from which salts for unknown users are made, so that they stay the same after a restart.
"""

import base64
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from router.sasl.mechanism import MAX_NAME
from router.sasl.saslprep import PrepareError, prepare
from router.sasl.verifiers import (
    DEFAULT_ITERATIONS,
    SALT_OCTETS,
    STRONGEST_FIRST,
    FakeVerifiers,
    Verifier,
    VerifierError,
)

MAX_FILE: Final = 64 << 20  # octets: some 200,000 users
KEY_OCTETS: Final = 32
_KEY: Final = "!key "
_PLAIN: Final = "@+=,~"  # in names beside letters, digits and `_.-`


class UsersError(ValueError):
    """A file that cannot be used: the line, and why, without what it holds."""


class Users:
    """The users of a file. It does not change: who changes the file makes another one."""

    def __init__(self, users: Mapping[str, Mapping[str, Verifier]], key: bytes | None = None) -> None:
        """users: verifiers by mechanism, by name. key: for `FakeVerifiers`."""
        self.users: Final = users
        self.key: Final = key
        self._fakes: Final = FakeVerifiers(key)
        self._usual: Final = _usual(users)
        #: The SCRAM mechanisms that every user has a verifier for, the strongest first: what can be offered.
        self.mechanisms: Final = [
            name for name in STRONGEST_FIRST if users and all(name in each for each in users.values())
        ]

    def __repr__(self) -> str:
        return f"Users({len(self.users)})"

    def find(self, user: str, mechanism: str | None) -> tuple[Verifier, bool]:
        """See Verifiers."""
        mine = self.users.get(user, {})
        wanted = mechanism
        if wanted is None:
            wanted = next((name for name in STRONGEST_FIRST if name in mine), self._strongest)
        fake = self._fakes.make(user, wanted, *self._usual.get(wanted, (DEFAULT_ITERATIONS, SALT_OCTETS)))
        found = mine.get(wanted)
        return (fake, False) if found is None else (found, True)

    @property
    def _strongest(self) -> str:
        """What most users have as their strongest."""
        return next((name for name in STRONGEST_FIRST if name in self._usual), STRONGEST_FIRST[0])

    def with_user(self, name: str, verifiers: Iterable[Verifier]) -> "Users":
        """Those and this one, or with other verifiers."""
        return Users({**self.users, name: {each.mechanism: each for each in verifiers}}, self.key)

    def without_user(self, name: str) -> "Users":
        """Those but this one. Raises KeyError."""
        users = dict(self.users)
        del users[name]
        return Users(users, self.key)

    def text(self) -> str:
        """The file. It has a key, a new one where there was none."""
        key = self.key if self.key is not None else os.urandom(KEY_OCTETS)
        lines = ["# Users of Sluice, written by `sluice passwd`", _KEY + base64.b64encode(key).decode()]
        for name, verifiers in sorted(self.users.items()):
            lines.append(" ".join([_quoted(name), *(each.text() for each in verifiers.values())]))
        return "\n".join(lines) + "\n"


def parse(text: str) -> Users:
    """The users of a file. Raises UsersError."""
    users: dict[str, dict[str, Verifier]] = {}
    key: bytes | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if line.startswith(_KEY):
                key = base64.b64decode(line.removeprefix(_KEY), validate=True)
                continue
            name, *verifiers = line.split()
            user = checked_name(unquote_to_bytes(name).decode())
            if user in users:
                raise UsersError("the user is there twice")
            if not verifiers:
                raise UsersError("the user has no verifier")
            users[user] = {each.mechanism: each for each in map(Verifier.parse, verifiers)}
        except (UsersError, VerifierError) as error:
            raise UsersError(f"line {number}: {error}") from None
        except UnicodeDecodeError:
            raise UsersError(f"line {number}: the name is no UTF-8") from None
        except ValueError:
            raise UsersError(f"line {number}: the key is no base64") from None
    return Users(users, key)


def read(path: str) -> Users:
    """The users of a file by its path. Raises UsersError, OSError."""
    with open(path, "rb") as file:
        octets = file.read(MAX_FILE + 1)
    if len(octets) > MAX_FILE:
        raise UsersError(f"more than {MAX_FILE} octets")
    try:
        return parse(octets.decode())
    except UnicodeDecodeError:
        raise UsersError("no UTF-8") from None


def checked_name(name: str) -> str:
    """The name as it is stored. Raises UsersError."""
    try:
        prepared = prepare(name, query=False)
    except PrepareError as error:
        raise UsersError(f"the name cannot be used: {error}") from None
    if not prepared:
        raise UsersError("the name is empty")
    if len(prepared.encode()) > MAX_NAME:
        raise UsersError(f"the name has more than {MAX_NAME} octets")
    return prepared


def _quoted(name: str) -> str:
    return quote(name, safe=_PLAIN)


def _usual(users: Mapping[str, Mapping[str, Verifier]]) -> dict[str, tuple[int, int]]:
    """For each mechanism the iterations and the octets of the salt that most verifiers have."""
    counts: dict[str, Counter[tuple[int, int]]] = {}
    for verifiers in users.values():
        for name, each in verifiers.items():
            counts.setdefault(name, Counter())[each.iterations, len(each.salt)] += 1
    return {name: each.most_common(1)[0][0] for name, each in counts.items()}
