"""Texts of the client's exceptions."""

import pytest

from sluice.router.client.errors import ClientError, UnsettledError


@pytest.mark.parametrize(
    ("condition", "description", "text"),
    [
        ("amqp:not-found", "no q", "amqp:not-found: no q"),
        ("amqp:not-found", "", "amqp:not-found"),
        ("", "lost", "lost"),
        ("", "", ""),
    ],
)
def test_error_text_leaves_out_what_the_peer_did_not_send(condition, description, text):
    error = ClientError(condition, description)
    assert str(error) == text
    assert (error.condition, error.description) == (condition, description)


def test_unsettled_error_without_reason_says_whether_the_message_was_sent():
    assert str(UnsettledError(True)) == "the outcome is unknown"
    assert str(UnsettledError(False)) == "the message was not sent"
    assert str(UnsettledError(True, "amqp:internal-error", "gone")) == "amqp:internal-error: gone"
    assert [UnsettledError(sent).sent for sent in (True, False)] == [True, False]
