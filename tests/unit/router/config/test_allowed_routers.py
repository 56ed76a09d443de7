"""Items of `allowedRouters`: admission of routers by identity and by router id."""

import pytest

from sluice.router.config.allowed_routers import AllowedRouter, admits, parse
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text

DN = r"CN=r1,O=Acme\, Inc.,C=US"


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ()),
        ("  ", ()),
        ("CN=r1", (AllowedRouter("CN=r1"),)),
        (f"{DN}|CN=r2 => B", (AllowedRouter(DN), AllowedRouter("CN=r2", "B"))),
        ("spiffe://net/* =>edge-*", (AllowedRouter("spiffe://net/*", "edge-*"),)),
        ("a=>b=>C", (AllowedRouter("a=>b", "C"),)),
    ],
)
def test_items_are_identities_and_pairs(text, items):
    assert parse(text) == items


@pytest.mark.parametrize("text", ["|", "a||b", "a|", "=> A", "a =>", "a | => "])
def test_item_without_identity_or_id_is_refused(text):
    with pytest.raises(ValueError, match="write IDENTITY or IDENTITY => ROUTER-ID"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "identity", "container", "admitted"),
    [
        ("CN=r1", "CN=r1", "anything", True),
        ("CN=r1", "CN=r10", "A", False),
        ("CN=r1", "xCN=r1", "A", False),
        ("CN=r1", "cn=r1", "A", False),
        ("CN=r.", "CN=r1", "A", False),
        ("CN=r1 => A", "CN=r1", "A", True),
        ("CN=r1 => A", "CN=r1", "B", False),
        ("CN=r1 => A | CN=r2 => B", "CN=r2", "B", True),
        ("CN=r1 => A | CN=r2 => B", "CN=r2", "A", False),
        ("CN=*,O=Acme => edge-*", "CN=x,O=Acme", "edge-7", True),
        ("CN=*,O=Acme", "CN=x,O=Acme,L=here", "A", False),
        ("*", None, "A", True),
        ("CN=*", None, "A", False),
        ("a*", "a\nb", "A", True),
    ],
)
def test_peer_matching_an_item_is_admitted(text, identity, container, admitted):
    assert admits(parse(text), identity, container) is admitted


def test_client_listener_cannot_have_allowed_routers():
    text = "router {\nmode: interior\nid: A\n}\nlistener {\nport: 1\nallowedRouters: CN=r1\nrole: %s\n}\n"
    assert load_text("x.conf", text % "inter-router").listeners[0].allowed_routers == (AllowedRouter("CN=r1"),)
    for role, fault in (("normal", "allowed only for the roles inter-router, edge, inter-edge"), ("edge", None)):
        if fault is None:
            assert load_text("x.conf", text % role).listeners[0].allowed_routers
        else:
            with pytest.raises(ConfigError, match=f"x.conf:7: .*allowedRouters: {fault}"):
                load_text("x.conf", text % role)
