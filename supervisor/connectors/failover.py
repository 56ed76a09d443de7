"""Addresses that a connector tries: the configured one, and those announced by the peer (brokers-and-edge.md 2.4).

No input or output here.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

FAILOVER_PROPERTY: Final = "failover-server-list"
MAX_CONSECUTIVE_ERRORS: Final = 2  # number of consecutive transport errors after which the next entry is tried
MAX_ANNOUNCED: Final = 64  # maximum number of entries from a peer; more are ignored
_DEFAULT_PORT: Final = "5672"
# Names of hosts (also addresses of IPv6, with a zone), ports or services, and schemes that a peer may announce.
_HOST: Final = re.compile(r"[^\s\x00-\x20\x7f,/?#@\[\]\\]{1,255}")
_PORT: Final = re.compile(r"[A-Za-z0-9_.+-]{1,64}")


class FailoverEntry(NamedTuple):
    """Address to connect to; `port` may be a service name."""

    scheme: str
    host: str
    port: str

    @property
    def place(self) -> str:
        """Host and port as `host:port`."""
        return f"{self.host}:{self.port}"


class FailoverList:
    """Addresses to connect to, tried round robin. Owner: a connector's state."""

    __slots__ = ("_configured", "_entries", "_errors", "_index")

    def __init__(self, host: str, port: str) -> None:
        self._configured = FailoverEntry("amqp", host, port)
        self._entries = [self._configured]
        self._index = 0
        self._errors = 0  # number of consecutive errors of the current entry

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def current(self) -> FailoverEntry:
        """Entry in use, or next entry to try."""
        return self._entries[self._index]

    @property
    def urls(self) -> str:
        """URLs of all entries, from the current one on, for management."""
        turned = self._entries[self._index :] + self._entries[: self._index]
        return ", ".join(f"{entry.scheme}://{entry.place}" for entry in turned)

    def failed(self) -> None:
        """Count a transport error of the current entry: the connect failed, or the connection was lost."""
        self._errors += 1
        if self._errors >= MAX_CONSECUTIVE_ERRORS:
            self._errors = 0
            self._index = (self._index + 1) % len(self._entries)

    def succeeded(self) -> None:
        """Clear the errors of the current entry, which was reached."""
        self._errors = 0

    def drop_announced(self) -> None:
        """Drop the peer's addresses, also the current one."""
        self._entries, self._index, self._errors = [self._configured], 0, 0

    def replace_announced(self, properties: Mapping[str, Any] | None) -> None:
        """Replace the peer's addresses by those listed in its connection properties.

        The configured entry and the current entry stay. inter-router.md 2.4.
        """
        listed = None if properties is None else properties.get(FAILOVER_PROPERTY)
        if not isinstance(listed, list):
            return
        wanted = [entry for entry in map(_entry, listed[:MAX_ANNOUNCED]) if entry is not None]
        places = {entry.place for entry in wanted}
        current = self.current
        kept = [
            entry for entry in self._entries if entry is self._configured or entry is current or entry.place in places
        ]
        present = {entry.place for entry in kept}
        for entry in wanted:
            if entry.place not in present:
                present.add(entry.place)
                kept.append(entry)
        self._entries = kept
        self._index = kept.index(current)


def _entry(item: Any) -> FailoverEntry | None:
    """Convert one map of the list; None if it names no valid host."""
    if not isinstance(item, dict):
        return None
    host, port, scheme = (item.get(name) for name in ("network-host", "port", "scheme"))
    if not isinstance(host, str) or not host.isprintable() or not _HOST.fullmatch(host):
        return None
    if isinstance(port, int) and not isinstance(port, bool):
        port = str(port)
    if not isinstance(port, str) or not _PORT.fullmatch(port):
        port = _DEFAULT_PORT
    return FailoverEntry(scheme if isinstance(scheme, str) and _PORT.fullmatch(scheme) else "amqp", host, port)
