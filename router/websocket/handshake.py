"""Opening handshake of WebSocket, server and client side (RFC 6455, 4; brokers-and-edge.md H-5)."""

import binascii
import hashlib
import os
from base64 import b64decode, b64encode
from typing import Final

from msgspec import Struct

from sluice.router.websocket.http import HeadError, HttpHead, host_header, parse, parse_answer, parse_request
from sluice.router.websocket.origins import OriginPolicy

VERSION: Final = "13"
PROTOCOLS: Final = ("amqp", "binary")  # both mean AMQP; the first one in the client's list is selected
SERVER_NAME: Final = "sluice-router"

_MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_OCTETS: Final = 16
# Close frames sent directly after the response: code and reason.
_CANNOT_UPGRADE: Final = b"\x88\x10\x03\xf3cannot-upgrade"  # 1011
_NO_PROTOCOL: Final = b"\x88\x11\x03\xeano sub-protocol"  # 1002


class Upgrade(Struct, frozen=True):
    """Response to a request for WebSocket. `octets`: the response, may be empty. `accepted`: AMQP follows."""

    octets: bytes
    accepted: bool
    refusal: str = ""


def requests_websocket(octets: bytes) -> bool:
    """Return whether a head requests a WebSocket, correctly or not. Other requests are for pages."""
    try:
        return parse(octets).has("upgrade", "websocket")
    except HeadError:
        return False


def answer_upgrade(octets: bytes, site: OriginPolicy, *, enabled: bool = True) -> Upgrade:
    """Return the response to a head for which `requests_websocket` is true. enabled: `websockets` of the listener."""
    try:
        method, _, minor, head = parse_request(octets)
        return _answer(method, minor, head, site, enabled)
    except HeadError as error:
        return _refused("400 Bad Request", str(error))


def _answer(method: str, minor: int, head: HttpHead, site: OriginPolicy, enabled: bool) -> Upgrade:
    """Return the response to a parsed request. Raises HeadError."""
    if method != "GET" or minor == 0:
        raise HeadError("an upgrade needs GET and HTTP/1.1")
    host, origin = head.one("host"), head.one("origin")
    if host is None:
        raise HeadError("header Host is missing")
    refusal = site.refusal(host, origin)
    if refusal is not None:
        return _refused("403 Forbidden", refusal)
    if "transfer-encoding" in head.headers or head.one("content-length") not in (None, "0"):
        raise HeadError("a request for an upgrade must not have a body")
    if not head.has("connection", "upgrade"):
        raise HeadError("header Connection lacks Upgrade")
    if head.one("sec-websocket-version") != VERSION:
        reason = f"Sec-WebSocket-Version is not {VERSION}"
        return _refused("426 Upgrade Required", reason, f"Sec-WebSocket-Version: {VERSION}\r\n")
    key = head.one("sec-websocket-key")
    if key is None or not _is_key(key):
        raise HeadError("Sec-WebSocket-Key is invalid")
    asked = head.tokens("sec-websocket-protocol")
    protocol = next((each for each in asked if each in PROTOCOLS), None)
    if asked and protocol is None:
        return Upgrade(b"", accepted=False, refusal=f"sub-protocol {asked[0][:40]!r} is unknown")
    named = "" if protocol is None else f"Sec-WebSocket-Protocol: {protocol}\r\n"
    octets = (
        "HTTP/1.1 101 Switching Protocols\r\n"
        f"Server: {SERVER_NAME}\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_of(key)}\r\n{named}\r\n"
    ).encode()
    if not enabled:
        return Upgrade(octets + _CANNOT_UPGRADE, accepted=False, refusal="the listener has 'websockets: no'")
    if protocol is None:
        return Upgrade(octets + _NO_PROTOCOL, accepted=False, refusal="the client names no sub-protocol")
    return Upgrade(octets, accepted=True)


def _refused(status: str, reason: str, header: str = "") -> Upgrade:
    body = f"{reason}\n"
    octets = (
        f"HTTP/1.1 {status}\r\nServer: {SERVER_NAME}\r\n{header}Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
    )
    return Upgrade(octets.encode(), accepted=False, refusal=reason)


def _is_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == _KEY_OCTETS
    except (binascii.Error, ValueError):
        return False


def accept_of(key: str) -> str:
    """Return the value of Sec-WebSocket-Accept for a key."""
    return b64encode(hashlib.sha1(f"{key}{_MAGIC}".encode(), usedforsecurity=False).digest()).decode()


def make_key() -> str:
    """Return a random key for a request."""
    return b64encode(os.urandom(_KEY_OCTETS)).decode()


def request(host: str, port: str, path: str, key: str) -> bytes:
    """Return the request of a client."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host_header(host, port)}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: {VERSION}\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    ).encode("ascii")


def check_upgrade_response(octets: bytes, key: str) -> None:
    """Check the server's response to a request with this key. Raises HeadError."""
    status, head = parse_answer(octets)
    if status != 101:
        raise HeadError(f"the server answered {head.start[9:60]}")
    if not head.has("upgrade", "websocket") or not head.has("connection", "upgrade"):
        raise HeadError("the server did not upgrade to WebSocket")
    if head.one("sec-websocket-accept") != accept_of(key):
        raise HeadError("Sec-WebSocket-Accept does not match the key")
    if head.one("sec-websocket-protocol") != "amqp":
        raise HeadError("the server did not choose sub-protocol amqp")
    if head.tokens("sec-websocket-extensions"):
        raise HeadError("the server uses an extension that was not asked for")
