"""Users from client certificates (security.md S-8, T-20 to T-23)."""

import pytest

from sluice.router.control.messages import TlsFacts
from sluice.router.tls.profile import unknown_letter
from sluice.supervisor.tls.identity import user_of

ATTRIBUTES = [("C", "US"), ("ST", "NC"), ("L", "Raleigh"), ("OU", "Dev"), ("O", "Client"), ("CN", "127.0.0.1")]
DN = "CN=127.0.0.1,O=Client,OU=Dev,L=Raleigh,ST=NC,C=US"
DIGESTS = {"1": "a" * 40, "2": "b" * 64, "5": "c" * 128}


NAMES = {"d": "host.example", "i": "spiffe://net.example/shop", "e": "shop@example.org"}


def tls(subject=DN, attributes=ATTRIBUTES, names=NAMES):
    return TlsFacts(
        protocol="TLSv1.3",
        cipher="x",
        ssf=256,
        subject=subject,
        attributes=attributes,
        fingerprints=DIGESTS,
        names=names,
    )


def external(uid_format, names=None, subject=DN, attributes=ATTRIBUTES):
    return user_of("EXTERNAL", "ignored", tls(subject, attributes), uid_format, names)


@pytest.mark.parametrize(
    ("uid_format", "user"),
    [
        (None, DN),
        ("n", "127.0.0.1"),
        ("on", "Client;127.0.0.1"),
        ("cs", "US;NC"),
        ("uo", "Dev;Client"),
        ("l", "Raleigh"),
        ("nn", "127.0.0.1;127.0.0.1"),
        ("1", DIGESTS["1"]),
        ("c1", "US;" + DIGESTS["1"]),
        ("125", ";".join(DIGESTS.values())),
        ("i", "spiffe://net.example/shop"),
        ("nd", "127.0.0.1;host.example"),
        ("e", "shop@example.org"),
        ("x", DN),
        ("cx", DN),
        ("N", DN),
        ("c,n", DN),
    ],
)
def test_uid_format_selects_fields(uid_format, user):
    assert external(uid_format) == user


def test_absent_certificate_fields_are_omitted():
    assert external("con", attributes=[("O", "Client"), ("CN", "x")]) == "Client;x"
    assert external("cs", subject="O=Client", attributes=[("O", "Client")]) == "O=Client"
    assert external("u", attributes=[("OU", "first"), ("OU", "second")]) == "first"


def test_alternative_name_without_subject_names_user():
    nameless = tls("", [], {"i": "spiffe://net.example/shop"})
    assert user_of("EXTERNAL", "", nameless, "i", None) == "spiffe://net.example/shop"
    assert user_of("EXTERNAL", "", nameless, "i", {"spiffe://net.example/shop": "shop"}) == "shop"
    for uid_format in (None, "d", "n"):
        assert user_of("EXTERNAL", "", nameless, uid_format, None) is None


def test_unknown_uid_format_letter_is_found():
    assert [unknown_letter(each) for each in ("cslo125un", "cx", "c n", "c,n", "N")] == [None, "x", " ", ",", "N"]


def test_name_mapping_replaces_user():
    names = {"127.0.0.1": "alice", "Client": ""}
    assert external("n", names) == "alice"
    assert external("o", names) == "Client", "an empty name is none"
    assert external("u", names) == "Dev"
    assert external(None, {DN: "alice"}) == DN, "the whole name is not looked up"


def test_prefix_applies_to_certificate_users():
    assert user_of("EXTERNAL", "x", tls(), "n", None, "tls:") == "tls:" + external("n")
    assert user_of("EXTERNAL", "x", tls(), "n", {external("n"): "alice"}, "tls:") == "tls:alice"
    assert user_of(None, "x", tls(), "n", None, "tls:") == "tls:" + DN
    assert user_of("PLAIN", "bob", tls(), "n", None, "tls:") == "bob"
    assert user_of("EXTERNAL", "", tls(""), None, None, "tls:") is None, "a certificate without a name"


def test_users_without_external_ignore_uid_format():
    assert user_of("PLAIN", "bob", tls(), "n", None) == "bob"
    assert user_of(None, "anonymous", tls(), "n", None) == DN, "uidFormat is for EXTERNAL only"
    assert user_of(None, "anonymous", tls(None), "n", None) is None
    assert user_of(None, "anonymous", None, "n", None) == "anonymous"
