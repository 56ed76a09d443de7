"""URLs of services that the router queries over HTTP."""

from collections.abc import Sequence
from urllib.parse import urlsplit

SHOWN = 80  # characters of a URL in an error text


def web_url_fault(url: str, schemes: Sequence[str] = ("http", "https")) -> str | None:
    """Return why the text is no URL with one of these schemes and a host; None if it is one.

    A user or a password is refused, because management and logs show URLs. The fault then does not repeat the text.
    """
    if "@" in url:
        return "the URL has a user or a password, which management and logs would show"
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    wanted = " or ".join(f"{scheme}://" for scheme in schemes)
    return None if good else f"'{url[:SHOWN]}' is not a URL with {wanted} and a host"
