"""Files of users with their verifiers, written by `sluice passwd` and named by `saslUsers` entities.

Each line is one user: the name, then one or more verifiers (`Verifier.text`), separated by blanks. Names are percent
encoded as in a URL, with `%20` for a blank. Empty lines and lines that begin with `#` are ignored. A line
`!key BASE64` has the secret from which the salts of unknown users are derived, so they stay the same after a restart.
"""

import base64
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from sluice.router.sasl.mechanism import MAX_NAME
from sluice.router.sasl.saslprep import PrepareError, prepare
from sluice.router.sasl.verifiers import (
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
_PLAIN: Final = "@+=,~"  # unencoded characters of names, besides letters, digits and `_.-`


class UsersError(ValueError):
    """Error for an invalid file. The text has line and reason, without the contents of the line."""


class Users:
    """Users of a file. Immutable; a change makes a new object."""

    def __init__(self, users: Mapping[str, Mapping[str, Verifier]], key: bytes | None = None) -> None:
        """Store the users. users: verifiers by user name and mechanism. key: see `FakeVerifiers`."""
        self.users: Final = users
        self.key: Final = key
        self._fakes: Final = FakeVerifiers(key)
        self._usual: Final = _usual(users)
        #: SCRAM mechanisms that can be offered: those for which every user has a verifier, the strongest first.
        self.mechanisms: Final = [
            name for name in STRONGEST_FIRST if users and all(name in each for each in users.values())
        ]

    def __repr__(self) -> str:
        return f"Users({len(self.users)})"

    def find(self, user: str, mechanism: str | None) -> tuple[Verifier, bool]:
        """See VerifierStore."""
        mine = self.users.get(user, {})
        wanted = mechanism
        if wanted is None:
            wanted = next((name for name in STRONGEST_FIRST if name in mine), self._strongest)
        fake = self._fakes.make(user, wanted, *self._usual.get(wanted, (DEFAULT_ITERATIONS, SALT_OCTETS)))
        found = mine.get(wanted)
        return (fake, False) if found is None else (found, True)

    @property
    def _strongest(self) -> str:
        """Strongest mechanism for which any user has a verifier."""
        return next((name for name in STRONGEST_FIRST if name in self._usual), STRONGEST_FIRST[0])

    def with_user(self, name: str, verifiers: Iterable[Verifier]) -> "Users":
        """Return a copy with one user added or replaced."""
        return Users({**self.users, name: {each.mechanism: each for each in verifiers}}, self.key)

    def without_user(self, name: str) -> "Users":
        """Return a copy without one user. Raises KeyError."""
        users = dict(self.users)
        del users[name]
        return Users(users, self.key)

    def text(self) -> str:
        """Return the text of the file. It contains a key; a new one is generated if these users have none."""
        key = self.key if self.key is not None else os.urandom(KEY_OCTETS)
        lines = ["# Users of Sluice, written by `sluice passwd`", _KEY + base64.b64encode(key).decode()]
        for name, verifiers in sorted(self.users.items()):
            lines.append(" ".join([_quoted(name), *(each.text() for each in verifiers.values())]))
        return "\n".join(lines) + "\n"


def parse(text: str) -> Users:
    """Parse the text of a file of users. Raises UsersError."""
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
                raise UsersError("the user occurs twice")
            if not verifiers:
                raise UsersError("the user has no verifier")
            users[user] = {each.mechanism: each for each in map(Verifier.parse, verifiers)}
        except (UsersError, VerifierError) as error:
            raise UsersError(f"line {number}: {error}") from None
        except UnicodeDecodeError:
            raise UsersError(f"line {number}: the name is not UTF-8 text") from None
        except ValueError:
            raise UsersError(f"line {number}: the key is not base64") from None
    return Users(users, key)


def read(path: str) -> Users:
    """Read a file of users. Raises UsersError, OSError."""
    with open(path, "rb") as file:
        octets = file.read(MAX_FILE + 1)
    if len(octets) > MAX_FILE:
        raise UsersError(f"the file has more than {MAX_FILE} octets")
    try:
        return parse(octets.decode())
    except UnicodeDecodeError:
        raise UsersError("the file is not UTF-8 text") from None


def checked_name(name: str) -> str:
    """Return a user name in the form in which it is stored. Raises UsersError."""
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
    """Return the most common number of iterations and length of the salt in octets, by mechanism."""
    counts: dict[str, Counter[tuple[int, int]]] = {}
    for verifiers in users.values():
        for name, each in verifiers.items():
            counts.setdefault(name, Counter())[each.iterations, len(each.salt)] += 1
    return {name: each.most_common(1)[0][0] for name, each in counts.items()}
