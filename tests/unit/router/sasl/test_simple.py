"""ANONYMOUS, EXTERNAL and PLAIN, and a client's choice of mechanism."""

import pytest

from sluice.router.amqp.sasl import ExchangeError
from sluice.router.sasl.client import CLIENT_MECHANISMS, usable_exchanges
from sluice.router.sasl.mechanism import BAD_PASSWORD, Challenge, Failure, Success
from sluice.router.sasl.simple import AnonymousServer, ExternalServer, PlainServer, anonymous_client, plain_client
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import BOUND_MECHANISMS, make

USERS = Users({"guest": {"SCRAM-SHA-1": make("SCRAM-SHA-1", "s3cret", 4096)}})


def plain(response):
    return PlainServer(USERS).step(response)


def test_anonymous_accepts_empty_response():
    assert AnonymousServer().step(b"") == Success("anonymous")
    assert AnonymousServer().step(b"anonymous@host") == Success("anonymous")


def test_external_user_is_named_by_transport():
    """security.md S-7: the response is ignored."""
    assert ExternalServer("CN=a").step(b"somebody else") == Success("CN=a")
    assert isinstance(ExternalServer(None).step(b""), Failure)


def test_plain_password_is_compared_with_verifier():
    """security.md S-7: the authorization identity is ignored."""
    assert plain(b"\0guest\0s3cret") == Success("guest")
    assert plain(b"other\0guest\0s3cret") == Success("guest")
    assert PlainServer(USERS).step(b"") == Challenge(b"")


@pytest.mark.parametrize("name", ["gu\N{SOFT HYPHEN}est", "\N{FULLWIDTH LATIN SMALL LETTER G}uest"])
def test_user_is_named_as_in_file(name):
    """Otherwise a user could have several names, and so several limits and policy groups."""
    assert plain(f"\0{name}\0s3cret".encode()) == Success("guest")


@pytest.mark.parametrize("response", [b"\0guest\0wrong", b"\0nobody\0s3cret", b"\0nobody\0wrong"])
def test_wrong_password_and_unknown_user_fail_alike(response):
    assert plain(response) == Failure(BAD_PASSWORD, credentials=True)


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"guest\0s3cret", "three texts"),
        (b"\0guest\0s3\0cret", "three texts"),
        (b"no separators", "three texts"),
        (b"\0\0s3cret", "empty"),
        (b"\0guest\0", "empty"),
        (b"\0\0", "empty"),
        (b"\0" + b"u" * 64000 + b"\0s3cret", "too long"),
        (b"\0guest\0" + b"p" * 64000, "too long"),
        (b"\0" * 70000, "too long"),
        (b"\0gu\xffest\0s3cret", "characters"),
        (b"\0guest\0\xff", "characters"),
        (b"\0guest\0s3cret\x01", "characters"),
    ],
)
def test_malformed_plain_response_is_refused(response, text):
    answer = plain(response)
    assert isinstance(answer, Failure)
    assert text in answer.text


def test_secrets_are_hidden_in_repr():
    client = plain_client("guest", "s3cret")
    assert client.response == b"\0guest\0s3cret"
    assert "s3cret" not in repr(client)
    assert "s3cret" not in repr(Challenge(b"s3cret"))


def test_client_of_one_step_refuses_second_challenge():
    assert anonymous_client("here").step(b"") == b"anonymous@here"
    with pytest.raises(ExchangeError, match="ANONYMOUS"):
        anonymous_client("here").step(b"what?")


def names(allowed, user=None, password=None):
    return [each.name for each in usable_exchanges(lambda name: name in allowed, user, password, "here")]


def test_client_prefers_strongest_usable_mechanism():
    """See security.md S-10."""
    scram = ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"]
    assert names(CLIENT_MECHANISMS, "u", "p") == ["EXTERNAL", *scram, "PLAIN", "ANONYMOUS"]
    found = usable_exchanges(lambda name: True, "u", "p", "here", find_binding=lambda: b"b")
    assert [each.name for each in found] == ["EXTERNAL", *BOUND_MECHANISMS, *scram, "PLAIN", "ANONYMOUS"]
    assert names(CLIENT_MECHANISMS) == ["EXTERNAL", "ANONYMOUS"]
    assert names(CLIENT_MECHANISMS, "u") == ["EXTERNAL", "ANONYMOUS"]
    assert names(["PLAIN", "ANONYMOUS"], "u", "p") == ["PLAIN", "ANONYMOUS"]
    assert names(["PLAIN"]) == []
    assert names(["PLAIN", "SCRAM-SHA-1"], "u", "\x01") == ["PLAIN"]  # SCRAM cannot have this password
