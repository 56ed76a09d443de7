"""Revocation lists from URLs: accepted lists, and bounds for the size and time of an answer."""

import asyncio
import base64
import contextlib
import socket
from datetime import UTC, datetime, timedelta

import pytest

from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.tls import lists
from sluice.supervisor.tls.lists import ListError, checked, fetch
from tests.peer.pki import pki

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return pki(tmp_path_factory.getbasetemp(), "lists")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory):
    return pki(tmp_path_factory.getbasetemp(), "other-lists")


@pytest.fixture(scope="module")
def foreign_list(other_authority):
    return other_authority.revocations()


@pytest.fixture(scope="module")
def expired_list(authority):
    return authority.revocations(until=datetime.now(tz=UTC) - timedelta(days=1))


@pytest.fixture(scope="module")
def pem(authority):
    return authority.revocations()


def der(pem):
    return base64.b64decode(b"".join(pem.splitlines()[1:-1]))


def test_list_of_authority_is_accepted_in_both_encodings(authority, pem):
    for octets in (pem, der(pem), b"\n" + pem):
        found = checked(octets, str(authority.trusted))
        assert found.pem.encode() == pem
        assert found.begins < datetime.now(tz=UTC).timestamp() < found.ends


def test_list_of_other_authority_is_refused(authority, pem, other_authority, foreign_list):
    for octets, trusted in ((foreign_list, authority.trusted), (pem, other_authority.trusted)):
        with pytest.raises(ListError, match="it is not signed by an authority in caCertFile"):
            checked(octets, str(trusted))


@pytest.mark.parametrize("octets", [b"", b"nonsense", b"\x30\x82", b"-----BEGIN X509 CRL-----\n"])
def test_malformed_list_is_refused(authority, octets):
    with pytest.raises(ListError, match="it is not a revocation list"):
        checked(octets, str(authority.trusted))


def test_changed_list_is_refused(authority, pem):
    octets = bytearray(der(pem))
    octets[-1] ^= 1
    with pytest.raises(ListError, match="it is not signed by an authority in caCertFile"):
        checked(bytes(octets), str(authority.trusted))


def fetch_from(answer, authority, then=None):
    """Fetch from a server with this answer. Return the list and the requests."""
    requests = []

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionError):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
            if then is not None:
                await then(writer)
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"http://127.0.0.1:{port}/list"
            return await fetch(url, str(authority.trusted), Threads(asyncio.get_running_loop(), "lists", 4))

    return asyncio.run(run()), requests


def test_fetch_returns_the_list(authority, pem):
    found, (request,) = fetch_from(HEAD % len(pem) + pem, authority)
    assert found.pem.encode() == pem
    assert request.startswith(b"GET /list HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: /list\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ".*"),
        (b"nonsense\r\n\r\n", ".*"),
        (b"", ".*"),
        (HEAD % 10 + b"abc", ".*"),
    ],
)
def test_fetch_with_bad_answer_fails(authority, answer, reason):
    with pytest.raises(ListError, match=reason):
        fetch_from(answer, authority)


def test_fetch_ends_at_octet_limit(authority, monkeypatch):
    monkeypatch.setattr(lists, "MAX_LIST", 1 << 17)

    async def write_on(writer):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()

    with pytest.raises(ListError, match="more than 131072 octets"):
        fetch_from(b"HTTP/1.1 200 OK\r\n\r\n", authority, write_on)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_fetch_ends_at_time_limit(authority, monkeypatch, answer):
    monkeypatch.setattr(lists, "FETCH_SECONDS", 0.5)

    async def dribble(writer):
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    with pytest.raises(ListError, match="the server has not answered completely within 0.5 s"):
        fetch_from(answer, authority, dribble)


def test_fetch_from_closed_port_fails(authority):
    async def run():
        threads = Threads(asyncio.get_running_loop(), "lists", 4)
        await fetch(f"http://127.0.0.1:{port}/", str(authority.trusted), threads)

    # While the socket is bound and does not listen, no other process can listen at its port.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(ListError, match="Cannot connect"):
            asyncio.run(run())


def test_expired_list_is_read(authority, expired_list):
    assert checked(expired_list, str(authority.trusted)).ends < datetime.now(tz=UTC).timestamp()
