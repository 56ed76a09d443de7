"""OAUTHBEARER and XOAUTH2: the messages that carry a token."""

import pytest

from sluice.router.amqp.sasl import ExchangeError
from sluice.router.sasl.bearer import OAuthBearerClient, OAuthBearerServer, XOAuth2Server
from sluice.router.sasl.mechanism import Challenge, Failure, Success, wrong_credentials


def check(user, token):
    return (
        Success(user or "subject", facts={"token": token})
        if token == "good"
        else wrong_credentials("the token is expired")
    )


def bearer(response):
    return OAuthBearerServer(check).step(response)


def test_oauthbearer_message_is_parsed():
    assert bearer(b"n,,\x01auth=Bearer good\x01\x01") == Success("subject", facts={"token": "good"})
    named = b"n,a=u=2Cv,\x01host=h\x01port=5672\x01auth=bearer good\x01\x01"
    assert bearer(named) == Success("u,v", facts={"token": "good"})
    assert bearer(b"") == Challenge(b"")


def test_xoauth2_message_is_parsed():
    assert XOAuth2Server(check).step(b"user=me\x01auth=Bearer good\x01\x01") == Success("me", facts={"token": "good"})


@pytest.mark.parametrize(
    ("server", "response", "reason"),
    [
        (OAuthBearerServer, b"n,,\x01auth=Bearer bad\x01\x01", b'{"status":"invalid_token"}'),
        (XOAuth2Server, b"user=me\x01auth=Bearer bad\x01\x01", b'{"status":"401","schemes":"bearer"}'),
    ],
)
def test_refusal_is_explained_before_failure(server, response, reason):
    """RFC 7628, 3.2.3: the client answers the reason with anything, and then the exchange fails."""
    exchange = server(check)
    assert exchange.step(response) == Challenge(reason)
    assert exchange.step(b"\x01") == wrong_credentials("the token is expired")


@pytest.mark.parametrize(
    "response",
    [
        b"n,,",
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"x,,\x01auth=Bearer good\x01\x01",
        b"n,b=c,\x01auth=Bearer good\x01\x01",
        b"n,a=u=xv,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer g\xc3\xb6od\x01\x01",
        b"n,,\x01auth=Bearer g\0od\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"\xff\xff",
        b"n,,\x01auth=Bearer " + b"g" * 70000 + b"\x01\x01",
        b"n,,\x01auth=Bearer " + b"g" * 40000 + b"\x01\x01",
        b"n,a=" + b"u" * 2000 + b",\x01auth=Bearer good\x01\x01",
    ],
)
def test_malformed_message_is_refused(response):
    answer = bearer(response)
    assert isinstance(answer, Failure)
    assert "good" not in answer.text


def test_client_sends_token_and_user():
    client = OAuthBearerClient("good", "u,v")
    assert bearer(client.response) == Success("u,v", facts={"token": "good"})
    assert client.step(b"") == client.response
    client.finish(None)
    assert (client.refusal, "good" in repr(client)) == ("", False)
    assert bearer(OAuthBearerClient("good").response) == Success("subject", facts={"token": "good"})


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b'{"status": "invalid_token"}', "invalid_token"),
        (b'{"status": 5}', "no reason"),
        (b"[]", "no reason"),
        (b"\xff{", "no reason"),
    ],
)
def test_client_reports_reason_of_refusal(challenge, reason):
    """See RFC 7628, 3.2.3."""
    client = OAuthBearerClient("bad")
    assert client.step(challenge) == b"\x01"
    assert client.refusal == f"OAUTHBEARER: the server refuses the token: {reason}"
    with pytest.raises(ExchangeError, match="a second challenge"):
        client.step(b"{}")
    with pytest.raises(ExchangeError, match="after it has refused"):
        client.finish(None)
