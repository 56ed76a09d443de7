"""Node `$cbs`: requests with tokens, and their answers."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from sluice.router.amqp import codec
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.auth.cbs import TokenNode
from tests.peer.codec import encode
from tests.peer.talk import sections

CONNECTION: Any = object()
NUMBER = 7  # of the connection
PUT = encode("put-token")
TOKEN = encode("token")
PROPERTIES, APPLICATION_PROPERTIES, VALUE = 0x73, 0x74, 0x77


def request_with(
    message_id: bytes = b"\x40",
    correlation_id: bytes = b"\x40",
    reply_to: bytes = encode("replies"),
    operation: bytes = PUT,
    body: bytes = b"\x00\x53\x77" + TOKEN,
) -> bytes:
    """Return the message of a request with encoded values."""
    properties = codec.encode_described(PROPERTIES, [message_id, b"\x40", b"\x40", b"\x40", reply_to, correlation_id])
    about = b"\x00\x53\x74" + codec.encode_map([encode("operation"), operation])
    return bytes(properties + about + body)


class CheckedTokens:
    """Node with an authentication that records tokens, and an address for answers. Owner: one test."""

    def __init__(self, refusal: str | None = None, allowed: bool = True) -> None:
        self.tokens: list[str] = []
        self.answers: list[tuple[str, bytes]] = []
        self._refusal = refusal
        self._node = TokenNode(
            find=lambda number: CONNECTION if number == NUMBER else None,
            renew=self._renew,
            may_answer=lambda connection, address: allowed,
            send=lambda address, octets: self.answers.append((address, octets)),
        )

    def _renew(self, connection: Any, token: str, done: Callable[[str | None], None]) -> None:
        assert connection is CONNECTION
        self.tokens.append(token)
        done(self._refusal)

    def ask(self, octets: bytes, number: int | None = NUMBER) -> dict[int, Any]:
        """Pass a request to the node. Return the sections of the answer by descriptor; empty without an answer."""
        self._node.handle(LocalMessage(0, number, octets))
        if not self.answers:
            return {}
        address, octets = self.answers.pop()
        found = dict(sections(octets))
        assert found[PROPERTIES][2] == address == "replies"
        return found


def status_of(answer: dict[int, Any]) -> tuple[int, str]:
    about = answer[APPLICATION_PROPERTIES]
    return about["status-code"], about["status-description"]


def test_token_in_force_is_accepted() -> None:
    node = CheckedTokens()
    answer = node.ask(request_with())
    assert status_of(answer) == (202, "Accepted")
    assert answer[VALUE] is None
    assert node.tokens == ["token"]


def test_refused_token_is_answered_with_reason() -> None:
    assert status_of(CheckedTokens("the token is refused").ask(request_with())) == (401, "the token is refused")


@pytest.mark.parametrize(
    "octets",
    [
        request_with(operation=encode("delete-token")),
        request_with(operation=b"\x40"),
        request_with(body=b"\x00\x53\x77" + encode(7)),
        request_with(body=b"\x00\x53\x75" + encode(b"token")),
        request_with(body=b""),
    ],
)
def test_request_without_operation_or_token_is_bad(octets: bytes) -> None:
    node = CheckedTokens()
    assert status_of(node.ask(octets))[0] == 400
    assert node.tokens == []


@pytest.mark.parametrize(
    "value",
    [
        encode("text"),
        encode(UUID(int=1)),
        encode(b"octets"),
        codec.encode_ulong(2**64 - 1),
        codec.encode_uint(5),
        codec.encode_int(-5),
        b"\x74\x22\x50\x00\x01",  # decimal32
    ],
)
def test_correlation_id_of_any_type_is_returned_unchanged(value: bytes) -> None:
    for octets in (request_with(correlation_id=value, message_id=codec.encode_ulong(1)), request_with(value)):
        node = CheckedTokens()
        node._node.handle(LocalMessage(0, NUMBER, octets))
        ((_, answer),) = node.answers
        _, end = codec.decode(answer)
        assert codec.described_list(answer[:end])[1][5] == value


@pytest.mark.parametrize(
    "octets",
    [
        b"\x40",
        request_with()[:-1],
        request_with(reply_to=b"\x40"),
        request_with(reply_to=encode(7)),
        b"\x00\x53\x73\x40" + request_with(),
        b"\x00\x53\x74\x45" + request_with(),
    ],
)
def test_unreadable_request_has_no_answer(octets: bytes) -> None:
    assert CheckedTokens().ask(octets) == {}


@pytest.mark.parametrize("number", [None, NUMBER + 1])
def test_request_without_open_connection_has_no_answer(number: int | None) -> None:
    node = CheckedTokens()
    assert node.ask(request_with(), number) == {}
    assert node.tokens == []


def test_forbidden_reply_to_gets_no_answer() -> None:
    node = CheckedTokens(allowed=False)
    assert node.ask(request_with()) == {}
    assert node.tokens == ["token"]
