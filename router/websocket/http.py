"""Heads of HTTP/1.1 messages, as exchanged before a WebSocket or a proxy's tunnel (RFC 9112).

The parser is strict: it refuses heads that different parsers could understand differently.
"""

import re
from collections.abc import Mapping
from typing import Final

MAX_HEAD: Final = 16384  # octets
END: Final = b"\r\n\r\n"

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_REQUEST: Final = re.compile(r"([A-Z]{1,20}) ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS: Final = re.compile(r"HTTP/1\.[01] ([0-9]{3})(?: [\t\x20-\x7e\x80-\xff]*)?")


class HeadError(Exception):
    """Error for a malformed head; its text is the reason."""


class HttpHead:
    """Start line and headers. Owner: the reader."""

    __slots__ = ("headers", "start")

    def __init__(self, start: str, headers: Mapping[str, list[str]]) -> None:
        self.start = start
        self.headers = headers  # values by name in lower case

    def one(self, name: str) -> str | None:
        """Return the value of a header, or None without it. Raises HeadError if it occurs more than once."""
        values = self.headers.get(name, [])
        if len(values) > 1:
            raise HeadError(f"header {name} occurs {len(values)} times")
        return values[0] if values else None

    def tokens(self, name: str) -> list[str]:
        """Return the items of a header whose value is a list."""
        items = (item.strip() for value in self.headers.get(name, []) for item in value.split(","))
        return [item for item in items if item]

    def has(self, name: str, token: str) -> bool:
        """Return whether the list of a header contains `token` (lower case), ignoring case."""
        return token in (item.lower() for item in self.tokens(name))


def parse(octets: bytes, what: str = "request") -> HttpHead:
    """Parse a complete head, including its final empty line. what: request or response. Raises HeadError."""
    if not octets.endswith(END) or len(octets) > MAX_HEAD:
        raise HeadError(f"the head of the HTTP {what} has no end, or is too long")
    start, *lines = octets[: -len(END)].decode("latin-1").split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise HeadError(f"a header of the HTTP {what} is malformed")
        headers.setdefault(name.lower(), []).append(value.strip("\t "))
    return HttpHead(start, headers)


def parse_request(octets: bytes) -> tuple[str, str, int, HttpHead]:
    """Return method, target, minor version and head of a request. Raises HeadError."""
    head = parse(octets)
    found = _REQUEST.fullmatch(head.start)
    if found is None:
        raise HeadError("the request line is malformed")
    return found[1], found[2], int(found[3]), head


def parse_answer(octets: bytes) -> tuple[int, HttpHead]:
    """Return status and head of a response. Raises HeadError."""
    head = parse(octets, "response")
    found = _STATUS.fullmatch(head.start)
    if found is None:
        raise HeadError("the status line is malformed")
    return int(found[1]), head


def is_visible_ascii(host: str) -> bool:
    """Return whether a text has only visible ASCII characters, and so may be part of a head."""
    return all("\x21" <= character <= "\x7e" for character in host)


def host_header(host: str, port: str) -> str:
    """Return the value of the Host header. An IPv6 address gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
