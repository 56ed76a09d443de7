"""Routers that may join through a listener or connector: the items of `allowedRouters`."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from msgspec import Struct

SEPARATOR: Final = "|"  # not a comma, because names of certificates contain commas
ARROW: Final = "=>"  # cannot be part of a certificate's name, where '>' in a value is escaped by a backslash


class AllowedRouter(Struct, frozen=True):
    """Item of the attribute.

    `identity` is a pattern for the user as whom a router logs in, or for the name in its certificate. `id` is a pattern
    for its container id, which is its router id; None: any id.
    """

    identity: str
    id: str | None = None

    def admits(self, identity: str | None, container: str) -> bool:
        """Return whether the item matches a peer. `identity` is None for an unauthenticated peer."""
        return _matches(self.identity, identity or "") and (self.id is None or _matches(self.id, container))


def parse(text: str) -> tuple[AllowedRouter, ...]:
    """Parse an attribute; an empty text has no items. Raises ValueError."""
    found = []
    for item in text.split(SEPARATOR) if text.strip() else ():
        identity, arrow, router_id = (part.strip() for part in item.rpartition(ARROW))
        if not arrow:
            identity, router_id = router_id, ""
        if not identity or (arrow and not router_id):
            raise ValueError(f"'{item.strip()}' is invalid: write IDENTITY or IDENTITY {ARROW} ROUTER-ID")
        found.append(AllowedRouter(identity, router_id or None))
    return tuple(found)


def admits(items: Iterable[AllowedRouter], identity: str | None, container: str) -> bool:
    """Return whether any item matches a peer."""
    return any(item.admits(identity, container) for item in items)


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, in which `*` stands for any number of characters, including none."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
