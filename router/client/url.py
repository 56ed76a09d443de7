"""URLs to connect to: amqp[s]://user:password@host:port/address."""

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

AMQP_PORT = 5672
AMQPS_PORT = 5671
SCHEMES = {"amqp": AMQP_PORT, "amqps": AMQPS_PORT}


class Url(NamedTuple):
    """Parsed URL. address: its path, "" if there is none. secure: with TLS."""

    host: str
    port: int
    user: str | None
    password: str | None
    address: str
    secure: bool = False


def parse(text: str) -> Url:
    """Parse a URL, or "host", "host:port" or "host:port/address". Raises ValueError."""
    parts = urlsplit(text if "://" in text else f"amqp://{text}")
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{_shown(text)}: the client speaks amqp and amqps, not {parts.scheme}")
    if not parts.hostname:
        raise ValueError(f"{_shown(text)} names no host")
    return Url(
        parts.hostname,
        parts.port or SCHEMES[parts.scheme],
        unquote(parts.username) if parts.username is not None else None,
        unquote(parts.password) if parts.password is not None else None,
        unquote(parts.path.removeprefix("/")),
        parts.scheme == "amqps",
    )


def _shown(text: str) -> str:
    """Format a URL for messages, without user and password."""
    scheme, separator, rest = text.rpartition("://")
    authority, slash, path = rest.partition("/")
    return repr(f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}")
