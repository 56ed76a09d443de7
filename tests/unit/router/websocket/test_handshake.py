"""WebSocket handshake as text: the example of RFC 6455, request smuggling, and the client's side."""

import pytest

from sluice.router.websocket.handshake import (
    accept_of,
    answer_upgrade,
    check_upgrade_response,
    make_key,
    request,
    requests_websocket,
)
from sluice.router.websocket.http import HeadError, parse, parse_request
from sluice.router.websocket.origins import OriginPolicy
from tests.peer import websocket as peer
from tests.peer.websocket import ACCEPT, KEY

HERE = OriginPolicy("")
GOOD = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Protocol: amqp\r\nSec-WebSocket-Accept: " + ACCEPT.encode() + b"\r\n\r\n"
)


def test_accept_key_equals_example_of_rfc():
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("asked", "taken"), [("amqp", "amqp"), ("binary", "binary"), ("mqtt, binary, amqp", "binary"), ("x,amqp", "amqp")]
)
def test_subprotocol_is_chosen(asked, taken):
    found = answer_upgrade(peer.request(protocol=asked), HERE)
    assert found.accepted
    assert parse(found.octets).one("sec-websocket-protocol") == taken
    assert b"Extensions" not in answer_upgrade(peer.request(Sec_WebSocket_Extensions="permessage-deflate"), HERE).octets


def test_page_of_other_site_is_refused():
    found = answer_upgrade(peer.request(Host="localhost:8672", Origin="https://evil.example"), HERE)
    assert not found.accepted
    assert found.octets.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n Folded: x\r\n\r\n", id="folded"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", id="blank before the colon"),
        pytest.param(b"GET / HTTP/1.1\nHost: a\r\n\r\n", id="bare line feed"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", id="bare carriage return"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", id="NUL"),
        pytest.param(b"GET / HTTP/1.1\r\nnothing\r\n\r\n", id="no colon"),
        pytest.param(b"GET / HTTP/1.1\r\n: x\r\n\r\n", id="no name"),
        pytest.param(b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", id="blank in the target"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", id="version"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", id="long"),
    ],
)
def test_ambiguous_request_head_is_refused(octets):
    with pytest.raises(HeadError):
        parse_request(octets)


@pytest.mark.parametrize("name", ["Host", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Content-Length"])
def test_repeated_header_is_refused(name):
    octets = peer.request(Content_Length="0").replace(
        b"Upgrade: websocket", f"{name}: 0\r\nUpgrade: websocket".encode()
    )
    assert requests_websocket(octets)
    assert answer_upgrade(octets, HERE).octets.startswith(b"HTTP/1.1 400 ")


def test_client_request_is_answered():
    key = make_key()
    octets = request("::1", "443", "/amqp?x", key)
    assert octets.startswith(b"GET /amqp?x HTTP/1.1\r\nHost: [::1]:443\r\n")
    found = answer_upgrade(octets, HERE)
    assert found.accepted
    check_upgrade_response(found.octets, key)
    assert make_key() != key


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (GOOD.replace(b"101 Switching Protocols", b"403 Forbidden"), "the server answered 403 Forbidden"),
        (GOOD.replace(ACCEPT.encode(), b"x"), "Sec-WebSocket-Accept does not match the key"),
        (GOOD.replace(b": amqp", b": binary"), "the server did not choose sub-protocol amqp"),
        (GOOD.replace(b"Upgrade: WebSocket\r\n", b""), "the server did not upgrade to WebSocket"),
        (GOOD[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "an extension that was not asked for"),
        (GOOD[:-2] + b"Sec-WebSocket-Accept: " + ACCEPT.encode() + b"\r\n\r\n", "sec-websocket-accept occurs 2 times"),
        (b"AMQP\x03\x01\x00\x00\r\n\r\n", "the status line is malformed"),
    ],
)
def test_client_refuses_invalid_answer(octets, reason):
    check_upgrade_response(GOOD, KEY)
    with pytest.raises(HeadError, match=reason):
        check_upgrade_response(octets, KEY)
