"""Secrets that only their owner may receive, and a record of the places where others have received them.

`Wire` passes each octet that a peer receives through a `Scan`. Helpers that read sockets themselves call `look`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_lock = threading.Lock()
#: Places where each secret was seen. Written under `_lock`.
_seen: dict[bytes, list[str]] = {}


def keep(secret: bytes) -> None:
    """Search for this text in all octets that peers receive from now on."""
    with _lock:
        _seen[secret] = []


def forget(secret: bytes) -> None:
    """End the search for this text."""
    with _lock:
        _seen.pop(secret, None)


def take_leaks(secret: bytes) -> list[str]:
    """Return the places where this text was seen since the last call."""
    with _lock:
        places, _seen[secret] = _seen[secret], []
    return places


def look(octets: bytes | bytearray, place: str) -> None:
    """Record the secrets among these octets."""
    with _lock:
        for secret, places in _seen.items():
            if secret in octets:
                places.append(place)


class Scan:
    """Search of one stream of octets, including secrets that are split over several reads."""

    def __init__(self, place: Callable[[], str]) -> None:
        self._place = place
        self._end = b""

    def take(self, octets: bytes) -> None:
        """Search the next octets of the stream."""
        secrets = tuple(_seen)
        if not secrets:
            return
        joined = self._end + octets
        self._end = joined[1 - max(map(len, secrets)) :]
        if any(secret in joined for secret in secrets):
            look(joined, self._place())
            self._end = b""  # a finding is recorded once
