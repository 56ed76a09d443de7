"""Access control for web pages at an HTTP listener, by the headers Host and Origin.

Browsers set both headers, and pages cannot change them. A browser sends requests of any page to any listener that its
machine can reach: by the listener's address, by another name of it, or by a name in the page's own domain that resolves
to the listener (DNS rebinding). Other programs send no Origin, or any value they like.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

EVERY_ORIGIN: Final = "*"
EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")
PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}

_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@*\[\]\\]+))(?::([0-9]{1,5}))?")
_LOOPBACK: Final = re.compile(r"127(?:\.[0-9]{1,3}){3}")
_Authority = tuple[str, int | None]


class OriginPolicy(Struct, frozen=True):
    """Listener that received a request.

    `host` is its configured host, `origins` are its `allowedOrigins`. `address` is the local address of the connection
    from getsockname; empty if unknown.
    """

    host: str
    origins: tuple[str, ...] = ()
    address: str = ""

    def refusal(self, host: str | None, origin: str | None) -> str | None:
        """Return the reason to refuse a request with these headers, or None. Programs may omit either header.

        A page may use the listener that served it, and listeners whose `allowedOrigins` contain its origin. In requests
        to a listener on a loopback interface, Host must be a loopback name, the listener's own host or the host of an
        allowed origin.
        """
        if EVERY_ORIGIN in self.origins:
            return None
        if origin is not None and origin.lower() not in self.origins and not _same(origin, host):
            return "a page of another site may not use this listener (allowedOrigins)"
        if host is not None and self._is_private(origin) and not self._has_name(host):
            return "header Host does not name this listener on a loopback interface (allowedOrigins)"
        return None

    def _is_private(self, origin: str | None) -> bool:
        """Return whether only this machine can reach the listener, or the request is from a browser on it."""
        if self.host not in EVERY_INTERFACE:
            return is_local(self.host) or _is_loopback(self.address)
        return origin is not None and _is_loopback(self.address)

    def _has_name(self, host: str) -> bool:
        found = _authority(host)
        if found is None:
            return False
        name = found[0]
        if is_local(name) or (self.host not in EVERY_INTERFACE and name == self.host.lower()):
            return True
        return any(name == urlsplit(origin).hostname for origin in self.origins)


def is_local(name: str) -> bool:
    """Return whether a host name or address always denotes the local machine."""
    name = name.lower()
    return name in ("localhost", "::1") or name.endswith(".localhost") or _LOOPBACK.fullmatch(name) is not None


def origin_fault(origin: str) -> str | None:
    """Return the error in an item of `allowedOrigins`, or None."""
    if origin == EVERY_ORIGIN or _origin(origin) is not None:
        return None
    return f"'{origin}' is neither an origin, such as https://console.example or http://localhost:3000, nor *"


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _authority(text: str) -> _Authority | None:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    return (found[1] or found[2]).lower(), None if found[3] is None else int(found[3])


def _origin(text: str) -> tuple[str, _Authority] | None:
    scheme, separator, rest = text.partition("://")
    found = _authority(rest)
    return None if not separator or not scheme.isalnum() or found is None else (scheme.lower(), found)


def _same(origin: str, host: str | None) -> bool:
    """Return whether a page was served by the listener that it sends a request to.

    A proxy in front of the listener may terminate TLS. Therefore a Host without a port matches the default ports of all
    schemes.
    """
    page, here = _origin(origin), None if host is None else _authority(host)
    if page is None or here is None:
        return False
    scheme, (name, port) = page
    port = port or PORTS.get(scheme)
    return name == here[0] and (port == here[1] if here[1] is not None else port in PORTS.values())
