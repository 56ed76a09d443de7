"""Files of `httpRootDir` as pages (brokers-and-edge.md H-2). They are read in threads because a file
system may hang.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from sluice.supervisor.runtime.threads import Threads

INDEX: Final = "index.html"
MOST_OCTETS: Final = 16 << 20  # limit for one file
MOST_READERS: Final = 8
READ_SECONDS: Final = 5.0

_TEXT: Final = {
    ".html": "text/html", ".htm": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
    ".txt": "text/plain", ".md": "text/plain", ".csv": "text/csv", ".svg": "image/svg+xml", ".xml": "application/xml",
}  # fmt: skip
_TYPES: Final = {
    **{suffix: f"{name}; charset=utf-8" for suffix, name in _TEXT.items()},
    ".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
    ".gif": "image/gif", ".webp": "image/webp", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2",
    ".ttf": "font/ttf", ".pdf": "application/pdf",
}  # fmt: skip
# A page may load resources of its own origin and connect to routers. No other page may frame it.
_POLICY: Final = (
    "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# The console needs only its own files and the WebSocket of its own listener.
_CONSOLE_POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
CONSOLE_HEADERS: Final[Mapping[str, str]] = {**HEADERS, "Content-Security-Policy": _CONSOLE_POLICY}
# Output directory of `make console`, included in the package. Each file has a compressed copy beside it.
CONSOLE: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "console")
COMPRESSED: Final = ".gz"
# Errors of a path that names no file. Clients choose paths, so these are no faults of the router.
_NO_FILE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP))


class File(Struct, frozen=True):
    """File contents with their type. `etag` changes when the file changes."""

    body: bytes
    content_type: str
    etag: str


class Files:
    """Reads files below a root directory. Owner: the pages of the HTTP service."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._threads: Final = Threads(loop, "files", MOST_READERS)

    async def find(self, root: str, path: str, compressed: str = "") -> File | None:
        """Return the file of an unescaped path, or None if there is none.

        compressed: suffix of the compressed copy to read instead. Raises OSError or TimeoutError if the file cannot be
        read now.
        """
        parts = path.removeprefix("/").split("/")
        parts[-1] = parts[-1] or INDEX
        if not path.startswith("/") or not all(map(_is_name, parts)):
            return None
        return await self._threads.run(lambda: _read(root, parts, compressed), READ_SECONDS)


def _is_name(part: str) -> bool:
    """Return whether a segment of a path may name a file or directory: not hidden, and not the parent directory."""
    return bool(part) and not part.startswith(".") and "\\" not in part and part.isprintable()


def _read(root: str, parts: list[str], compressed: str) -> File | None:
    """Read a file below the root, following links that stay below the root. Raises OSError."""
    top = os.path.realpath(root)
    place = os.path.realpath(os.path.join(top, *parts) + compressed)
    if os.path.commonpath((top, place)) != top:
        return None
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > MOST_OCTETS:
            raise OSError(f"{place} has {status.st_size} octets, and at most {MOST_OCTETS} are served")
        suffix = os.path.splitext(place.removesuffix(compressed))[1].lower()
        content_type = _TYPES.get(suffix, "application/octet-stream")
        with open(descriptor, "rb", closefd=False) as file:
            return File(file.read(MOST_OCTETS), content_type, f'"{status.st_mtime_ns:x}-{status.st_size:x}"')
    finally:
        os.close(descriptor)
