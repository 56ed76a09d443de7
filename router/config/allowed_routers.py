"""Routers that may join by a listener or connector: the items of `allowedRouters`."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from msgspec import Struct

SEPARATOR: Final = "|"  # not a comma, which names of certificates have
ARROW: Final = "=>"  # in names of certificates '>' of a value has a backslash before it


class AllowedRouter(Struct, frozen=True):
    """An item of the attribute.

    identity: pattern of the user that a router logs in as, or that its certificate names. id: pattern of its container
    id, which is its router id; None: any.
    """

    identity: str
    id: str | None = None

    def admits(self, identity: str | None, container: str) -> bool:
        """Whether a peer is meant. identity: None where nobody knows who it is."""
        return _matches(self.identity, identity or "") and (self.id is None or _matches(self.id, container))


def parse(text: str) -> tuple[AllowedRouter, ...]:
    """Return the items of an attribute; none for an empty text. Raises ValueError."""
    found = []
    for item in text.split(SEPARATOR) if text.strip() else ():
        identity, arrow, router_id = (part.strip() for part in item.rpartition(ARROW))
        if not arrow:
            identity, router_id = router_id, ""
        if not identity or (arrow and not router_id):
            raise ValueError(f"'{item.strip()}' is no item: write IDENTITY or IDENTITY {ARROW} ROUTER-ID")
        found.append(AllowedRouter(identity, router_id or None))
    return tuple(found)


def admits(items: Iterable[AllowedRouter], identity: str | None, container: str) -> bool:
    """Whether one of the items means a peer."""
    return any(item.admits(identity, container) for item in items)


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of the configuration: `*` stands for any number of characters, which may be none."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
