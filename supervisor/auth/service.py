"""Client of an authentication service (`authServicePlugin`): relays SASL, then reads the open of the service.

The rules: security.md A-1 to A-10. Each client connection gets its own connection to the service, which ends with the
exchange.
"""

import asyncio
import os
import ssl
from typing import Any, Final, NamedTuple

from sluice.router.amqp import sasl
from sluice.router.amqp.codec import (
    decode,
    decode_one,
    described_list,
    encode_binary,
    encode_described,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbols,
    encode_ubyte,
    encode_ushort,
    encode_value,
)
from sluice.router.amqp.errors import AmqpError
from sluice.router.sasl.mechanism import Answer, Challenge, Failure, Success
from sluice.router.tls.versions import limit_versions
from sluice.supervisor.auth.messages import Facts, Service, ServiceTls

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
OPEN, CLOSE = 0x10, 0x18
MAX_FRAME: Final = 1 << 20  # maximum octets of a frame from the service
FRAME_HEADER: Final = 8
CHANNEL_MAX: Final = 32767
MAX_ADDRESSES: Final = 10_000
# Identity of the router in its open (security.md A-4), which the service may check.
PRODUCT: Final = "qpid-dispatch-router"
VERSION: Final = "1.19.0"
CAPABILITY: Final = "ADDRESS-AUTHZ"
IDENTITY: Final = "authenticated-identity"
PERMISSIONS: Final = "address-authz"

ABORTED: Final = "amqp:connection:framing-error connection aborted"


class ServiceError(Exception):
    """Raised when the connection to the service fails; the text is condition and description."""


class AuthenticatedUser(NamedTuple):
    """Result of the service: a user and facts about it."""

    user: str
    facts: Facts


class ServiceExchange:
    """SASL exchange relayed to an authentication service. Owner: its creator."""

    def __init__(self, service: Service) -> None:
        self._service: Final = service
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._started = False
        self._last_challenge: bytes | None = None

    async def begin(self) -> list[str]:
        """Connect and return the mechanisms of the service. Raises ServiceError, AmqpError."""
        service = self._service
        context = None if service.tls is None else tls_context(service.tls)
        try:
            self._reader, self._writer = await asyncio.open_connection(
                service.host,
                service.port,
                limit=MAX_FRAME,
                ssl=context,
                server_hostname=service.host if context is not None else None,
            )
        except ssl.SSLError as error:
            raise ServiceError(_tls_failure(error)) from None
        except OSError as error:
            raise ServiceError(f"proton:io {_reason(error)} - disconnected {service.place}") from None
        await self._send(SASL_HEADER)
        if await self._read(FRAME_HEADER) != SASL_HEADER:
            raise ServiceError("amqp:connection:framing-error Expected SASL protocol header")
        code, items = await self._frame()
        if code != sasl.MECHANISMS or not items:
            raise ServiceError("amqp:connection:framing-error sasl-mechanisms expected")
        offered = decode_one(items[0])
        names = [offered] if isinstance(offered, str) else offered if isinstance(offered, list) else []
        return [str(name) for name in names if isinstance(name, str)]

    async def step(self, mechanism: str, response: bytes, hostname: str | None) -> Answer:
        """Relay a response of the client, the initial one first, and return the answer of the service.

        hostname: host name of the client's sasl-init. Raises ServiceError, AmqpError.
        """
        if self._started:
            body = encode_described(sasl.RESPONSE, [encode_binary(response)])
        else:
            self._started = True
            host = self._service.realm or hostname
            fields = [encode_symbol(mechanism), encode_binary(response)]
            if host is not None:
                fields.append(encode_string(host))
            body = encode_described(sasl.INIT, fields)
        await self._send(sasl.frame(body))
        code, items = await self._frame()
        if code == sasl.CHALLENGE and items:
            self._last_challenge = _binary(items[0])
            return Challenge(self._last_challenge)
        if code != sasl.OUTCOME or not items:
            raise ServiceError(f"amqp:not-allowed SASL frame 0x{code:02x} is not expected")
        if items[0] != encode_ubyte(sasl.OK):
            return Failure(f"amqp:unauthorized-access Authentication failed [mech={mechanism}]", credentials=True)
        additional = _binary(items[1]) if len(items) > 1 and items[1] != b"\x40" else self._last_challenge
        found = await self._open()
        return Success(found.user, additional, {"facts": found.facts})

    async def _open(self) -> AuthenticatedUser:
        """Exchange opens with the service, whose open names the user, and close the AMQP connection."""
        await self._send(AMQP_HEADER + open_frame(self._service.host))
        if await self._read(FRAME_HEADER) != AMQP_HEADER:
            raise ServiceError("amqp:connection:framing-error Expected AMQP protocol header")
        code, items = await self._frame(kind=0)
        if code != OPEN:
            condition = _close_error(items) if code == CLOSE else None
            raise ServiceError(condition or "amqp:connection:framing-error open expected")
        found = read_open(items)
        await self._send(_amqp_frame(encode_described(CLOSE, [])))
        return found

    def close(self) -> None:
        """Close the connection to the service."""
        if self._writer is not None:
            self._writer.close()

    # Frames

    async def _send(self, octets: bytes) -> None:
        assert self._writer is not None
        try:
            self._writer.write(octets)
            await self._writer.drain()
        except ssl.SSLError as error:
            raise ServiceError(_tls_failure(error)) from None
        except OSError:
            raise ServiceError(ABORTED) from None

    async def _read(self, size: int) -> bytes:
        assert self._reader is not None
        try:
            return await self._reader.readexactly(size)
        except ssl.SSLError as error:  # with TLS 1.3 the service reports a refused client certificate only now
            raise ServiceError(_tls_failure(error)) from None
        except (asyncio.IncompleteReadError, OSError):
            raise ServiceError(ABORTED) from None

    async def _frame(self, kind: int = 1) -> tuple[int, list[bytes]]:
        """Return descriptor and items of the next frame that is not empty. kind: expected type; 0: AMQP, 1: SASL."""
        while True:
            header = await self._read(FRAME_HEADER)
            size, offset = int.from_bytes(header[:4], "big"), 4 * header[4]
            if size > MAX_FRAME or not FRAME_HEADER <= offset <= size or header[5] != kind:
                raise ServiceError("amqp:connection:framing-error malformed frame")
            body = (await self._read(size - FRAME_HEADER))[offset - FRAME_HEADER :]
            if not body:
                continue
            code, items = described_list(body)
            return code, items


def tls_context(tls: ServiceTls) -> ssl.SSLContext:
    """Return a context that verifies the service and its host name, and presents the router's certificate, if any.

    The rules: security.md A-2. The files are read for each connection, so that replaced files are used. Raises
    ServiceError.
    """
    if tls.fault is not None:
        raise ServiceError(f"amqp:connection:framing-error SSL Failure: {tls.fault}")
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        limit_versions(context, tls.protocols.split() if tls.protocols else [])
        if context.cert_store_stats()["crl"]:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file, lambda: tls.password or "")
        if tls.ciphers:
            context.set_ciphers(tls.ciphers)
    except (OSError, ValueError) as error:
        raise ServiceError(_tls_failure(error)) from None
    return context


def _tls_failure(error: Exception) -> str:
    """Return the text of Dispatch for a TLS failure, with the reason (security.md T-16)."""
    reason = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"certificate verify failed: {error.verify_message}"
    elif isinstance(error, ssl.SSLError) and error.reason:
        reason = error.reason.replace("_", " ").lower()
    return f"amqp:connection:framing-error SSL Failure: {reason}"


def open_frame(hostname: str) -> bytes:
    """Return the frame of the router's open (security.md A-4)."""
    null = encode_value(None)
    properties = [
        encode_symbol("product"),
        encode_string(PRODUCT),
        encode_symbol("version"),
        encode_string(VERSION),
    ]
    fields = [
        encode_string(""),
        encode_string(hostname),
        null,
        encode_ushort(CHANNEL_MAX),
        null,
        null,
        null,
        null,
        encode_symbols([CAPABILITY]),
        encode_map(properties),
    ]
    return _amqp_frame(encode_described(OPEN, fields))


def _amqp_frame(body: bytes) -> bytes:
    return (len(body) + FRAME_HEADER).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def read_open(items: list[bytes]) -> AuthenticatedUser:
    """Return the user and its permissions from the open of the service (security.md A-6 to A-9). Raises AmqpError."""
    properties = _map_entries(items[9] if len(items) > 9 else b"")
    identity, permissions = _map_value(properties, IDENTITY), _map_value(properties, PERMISSIONS)
    facts = Facts()
    if permissions is not None:
        facts.sources, facts.targets = _permissions(permissions)
    return AuthenticatedUser("" if identity is None else _subject(identity), facts)


def _subject(octets: bytes) -> str:
    """Return entry `sub` of a map; empty if it is absent or not a string (security.md A-6)."""
    subject = _map_value(_map_entries(octets), "sub")
    found = None if subject is None else decode_one(subject)
    return found if type(found) is str else ""


def _map_value(pairs: list[tuple[bytes, bytes]], name: str) -> bytes | None:
    """Return the value, still encoded, of the entry whose key is this string or symbol; None if there is none."""
    for key, value in pairs:
        found = decode_one(key)
        if isinstance(found, str) and found == name:
            return value
    return None


def _permissions(octets: bytes) -> tuple[list[str], list[str]]:
    """Return the allowed sources and targets (security.md A-7).

    Only entries with a string as key and an array of strings as value count; others are ignored.
    """
    sources: list[str] = []
    targets: list[str] = []
    for key, value in _map_entries(octets)[:MAX_ADDRESSES]:
        address = decode_one(key)
        if type(address) is not str or not _array_of_strings(value):
            continue
        allowed = decode_one(value)
        if "recv" in allowed:
            sources.append(address)
        if "send" in allowed:
            targets.append(address)
    return sources, targets


def _array_of_strings(octets: bytes) -> bool:
    constructor = {0xE0: 3, 0xF0: 9}.get(octets[0])
    return constructor is not None and len(octets) > constructor and octets[constructor] in (0xA1, 0xB1)


def _map_entries(octets: bytes) -> list[tuple[bytes, bytes]]:
    """Return the entries of a map, still encoded; an empty list if the value is not a map. Raises AmqpError."""
    decode_one(octets or b"\x40")
    start = {0xC1: 3, 0xD1: 9}.get(octets[0]) if octets else None
    if start is None:
        return []
    entries = []
    at = start
    while at < len(octets):
        _, middle = decode(octets, at)
        _, end = decode(octets, middle)
        entries.append((octets[at:middle], octets[middle:end]))
        at = end
    return entries


def _close_error(items: list[bytes]) -> str | None:
    """Return condition and description of a close; None without an error."""
    if not items or items[0] == b"\x40":
        return None
    try:
        error: Any = [decode_one(each) for each in described_list(items[0])[1]]
    except AmqpError:
        return None
    return " ".join(str(each) for each in error[:2] if each is not None)


def _binary(octets: bytes) -> bytes:
    value = decode_one(octets)
    return value if isinstance(value, bytes) else b""


def _reason(error: OSError) -> str:
    errors = getattr(error, "exceptions", None)
    found = errors[0] if errors else error
    return os.strerror(found.errno) if found.errno and found.errno > 0 else str(found)
