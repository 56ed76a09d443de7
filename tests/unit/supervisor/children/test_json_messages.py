"""Messages to child processes that are JSON objects."""

from __future__ import annotations

import pytest

from sluice.supervisor.children.framing import MessageError
from sluice.supervisor.children.json_messages import decode, encode


def test_message_is_decoded_unchanged() -> None:
    message = {"link": [0, 1, 2, 3, 4, None], "text": "ü\n"}
    assert decode(encode(message)) == message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"null", b'"text"'])
def test_content_other_than_object_is_refused(content: bytes) -> None:
    with pytest.raises(MessageError):
        decode(content)
