"""Revocation lists from URLs: accepted lists, and bounds for the size and time of an answer."""

import asyncio
import base64
import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from supervisor.runtime.threads import Threads
from supervisor.tls import lists
from supervisor.tls.lists import ListError, checked, fetch
from tests.peer.pki import pki

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return pki(tmp_path_factory.getbasetemp(), "lists")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return pki(tmp_path_factory.getbasetemp(), "other-lists")


@pytest.fixture(scope="module")
def foreign(other):
    return other.revocations()


@pytest.fixture(scope="module")
def ended(made):
    return made.revocations(until=datetime.now(tz=UTC) - timedelta(days=1))


@pytest.fixture(scope="module")
def pem(made):
    return made.revocations()


def der(pem):
    return base64.b64decode(b"".join(pem.splitlines()[1:-1]))


def test_list_of_authority_is_accepted_in_both_encodings(made, pem):
    for octets in (pem, der(pem), b"\n" + pem):
        found = checked(octets, str(made.trusted))
        assert found.pem.encode() == pem
        assert found.begins < datetime.now(tz=UTC).timestamp() < found.ends


def test_list_of_other_authority_is_refused(made, pem, other, foreign):
    for octets, trusted in ((foreign, made.trusted), (pem, other.trusted)):
        with pytest.raises(ListError, match="it is not signed by an authority in caCertFile"):
            checked(octets, str(trusted))


@pytest.mark.parametrize("octets", [b"", b"nonsense", b"\x30\x82", b"-----BEGIN X509 CRL-----\n"])
def test_malformed_list_is_refused(made, octets):
    with pytest.raises(ListError, match="it is no revocation list"):
        checked(octets, str(made.trusted))


def test_changed_list_is_refused(made, pem):
    octets = bytearray(der(pem))
    octets[-1] ^= 1
    with pytest.raises(ListError, match="it is not signed by an authority in caCertFile"):
        checked(bytes(octets), str(made.trusted))


def fetch_from(answer, made, then=None):
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
            return await fetch(url, str(made.trusted), Threads(asyncio.get_running_loop(), "lists", 4))

    return asyncio.run(run()), requests


def test_fetch_returns_the_list(made, pem):
    found, (request,) = fetch_from(HEAD % len(pem) + pem, made)
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
def test_fetch_with_bad_answer_fails(made, answer, reason):
    with pytest.raises(ListError, match=reason):
        fetch_from(answer, made)


def test_fetch_ends_at_octet_limit(made, monkeypatch):
    monkeypatch.setattr(lists, "MAX_LIST", 1 << 17)

    async def write_on(writer):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()

    with pytest.raises(ListError, match="more than 131072 octets"):
        fetch_from(b"HTTP/1.1 200 OK\r\n\r\n", made, write_on)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_fetch_ends_at_time_limit(made, monkeypatch, answer):
    monkeypatch.setattr(lists, "FETCH_SECONDS", 0.5)

    async def dribble(writer):
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    with pytest.raises(ListError, match="no complete answer within 0.5 s"):
        fetch_from(answer, made, dribble)


def test_fetch_from_closed_port_fails(made):
    async def run():
        await fetch("http://127.0.0.1:1/", str(made.trusted), Threads(asyncio.get_running_loop(), "lists", 4))

    with pytest.raises(ListError, match="Cannot connect"):
        asyncio.run(run())


def test_expired_list_is_read(made, ended):
    assert checked(ended, str(made.trusted)).ends < datetime.now(tz=UTC).timestamp()
