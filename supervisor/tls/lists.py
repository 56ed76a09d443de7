"""Revocation list from a URL: fetched with limits of time and size, and accepted if an authority has signed it."""

import importlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from sluice.supervisor.runtime.threads import Threads

FETCH_SECONDS: Final = 30.0  # timeout for one list, including name lookups and redirections
MAX_LIST: Final = 4 << 20  # octets
MOST_REDIRECTIONS: Final = 3
MOST_REASON: Final = 200  # characters; the server may have chosen some of them
PIECE: Final = 1 << 16
CHECK_SECONDS: Final = 20.0
_PEM: Final = b"-----BEGIN"


class ListError(Exception):
    """Error when a list cannot be fetched or used; the text is the reason."""


class RevocationList(NamedTuple):
    """Valid revocation list. Times are in seconds since the epoch."""

    pem: str
    begins: float  # thisUpdate
    ends: float  # nextUpdate


async def fetch(url: str, trusted_file: str, threads: Threads) -> RevocationList:
    """Return the list that a URL has at present. Raises ListError.

    trusted_file: authorities, one of which must have signed the list. The event loop is never blocked: computations
    and file access run in a thread.
    """
    try:
        octets = await _get(url, threads)
        return await threads.run(partial(checked, octets, trusted_file), CHECK_SECONDS)
    except TimeoutError:
        raise ListError(f"the server has not answered completely within {FETCH_SECONDS:g} s") from None
    except OSError as error:
        raise ListError(error.strerror or str(error)) from None


async def _get(url: str, threads: Threads) -> bytes:
    """Return the octets at a URL. Raises ListError, TimeoutError, OSError."""
    http: Any = await threads.run(partial(importlib.import_module, "aiohttp"))
    found = bytearray()
    try:
        # No proxies from the environment, and no compression: the size limit must apply to the octets received.
        async with (
            http.ClientSession(timeout=http.ClientTimeout(total=FETCH_SECONDS), auto_decompress=False) as session,
            session.get(
                url, max_redirects=MOST_REDIRECTIONS, headers={"Accept": "*/*", "Accept-Encoding": "identity"}
            ) as answer,
        ):
            if answer.status != 200:
                raise ListError(f"HTTP status {answer.status}")
            async for piece in answer.content.iter_chunked(PIECE):
                found += piece
                if len(found) > MAX_LIST:
                    raise ListError(f"it has more than {MAX_LIST} octets")
    except http.ClientError as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ListError(lines[0][:MOST_REASON]) from None
    return bytes(found)


def checked(octets: bytes, trusted_file: str) -> RevocationList:
    """Return the parsed list from DER or PEM. May take long, so it must not run in the event loop.

    Raises ListError, OSError.
    """
    # Imported here because loading takes long, and few profiles have URLs.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        load = x509.load_pem_x509_crl if octets.lstrip().startswith(_PEM) else x509.load_der_x509_crl
        found = load(octets)
        ends = found.next_update_utc
        pem = found.public_bytes(Encoding.PEM).decode()
    except (ValueError, TypeError) as error:
        raise ListError(f"it is not a revocation list: {error}") from None
    with open(trusted_file, "rb") as file:
        trusted = file.read(MAX_LIST)
    if not _is_signed(found, _authorities(trusted)):
        raise ListError("it is not signed by an authority in caCertFile")
    if ends is None:
        raise ListError("it has no expiry time (nextUpdate)")
    return RevocationList(pem, found.last_update_utc.timestamp(), ends.timestamp())


def _authorities(pem: bytes) -> list[Any]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ListError(f"the authorities in caCertFile cannot be read: {error}") from None


def _is_signed(found: Any, authorities: Iterable[Any]) -> bool:
    """Return whether an authority with the name of the list's issuer has signed the list."""
    from cryptography.exceptions import UnsupportedAlgorithm

    for each in authorities:
        try:
            if each.subject == found.issuer and found.is_signature_valid(each.public_key()):
                return True
        except (TypeError, ValueError, UnsupportedAlgorithm):
            continue  # not a key for signatures
    return False
