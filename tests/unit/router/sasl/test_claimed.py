"""User name in a client's initial response."""

import pytest

from sluice.router.sasl.claimed import MOST_OCTETS, claimed_user


@pytest.mark.parametrize(
    ("mechanism", "response", "user"),
    [
        ("PLAIN", b"\0alice\0secret", "alice"),
        ("PLAIN", b"other\0alice\0secret", "alice"),
        ("PLAIN", b"nothing", ""),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-256", b"n,a=other,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-256", b"", ""),
        ("OAUTHBEARER", b"n,a=alice,\x01auth=Bearer n=x\x01\x01", "alice"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer x\x01\x01", ""),
        ("XOAUTH2", b"user=alice\x01auth=Bearer x\x01\x01", "alice"),
        ("EXTERNAL", b"alice", ""),
        ("PLAIN", b"\0" + b"x" * 1000, "x" * (MOST_OCTETS - 1)),
        ("PLAIN", b"\0\xff\0", "\ufffd"),
    ],
)
def test_claimed_user_is_extracted_from_response(mechanism, response, user):
    assert claimed_user(mechanism, response) == user
