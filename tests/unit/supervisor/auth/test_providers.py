"""Choice of the provider that authenticates the clients of a listener."""

import pytest

from sluice.router.config.load import load_text
from sluice.supervisor.auth.messages import LibrarySettings, Service, TokenIssuer
from sluice.supervisor.auth.providers import asks_supervisor, exchange_context, providers, uses_library


def load(listener="", router="", more=""):
    return load_text(
        "x.conf",
        f"router {{\n id: A\n{router}\n}}\nlistener {{\n port: 0\n{listener}\n}}\n"
        "tokenIssuer {\n name: id\n issuer: i\n audience: a\n jwksFile: /k\n}\n"
        "authServicePlugin {\n name: service\n host: h\n port: 9\n realm: r\n}\n" + more,
    )


def verdict(listener="", router=""):
    found = load(listener, router)
    return asks_supervisor(found.listeners[0], found.router), uses_library(found.listeners[0], found.router)


NO_PROVIDER, LIBRARY, OTHER = (False, False), (True, True), (True, False)


@pytest.mark.parametrize(
    ("listener", "router", "expected"),
    [
        ("", "", NO_PROVIDER),
        ("saslMechanisms: ANONYMOUS", "", NO_PROVIDER),
        ("saslMechanisms: ANONYMOUS EXTERNAL\n authenticatePeer: yes", "", NO_PROVIDER),
        ("saslMechanisms: PLAIN", "", LIBRARY),
        ("authenticatePeer: yes", "", LIBRARY),
        ("", "saslConfigDir: /etc/sasl2", LIBRARY),
        ("", "saslConfigName: other", LIBRARY),
        ("", "saslConfigName: qdrouterd", NO_PROVIDER),
        ("tokenIssuers: id", "saslConfigDir: /etc/sasl2", OTHER),
        ("saslPlugin: service", "saslConfigDir: /etc/sasl2", OTHER),
        ("http: yes", "saslConfigDir: /etc/sasl2", LIBRARY),
        ("http: yes\n websockets: no", "saslConfigDir: /etc/sasl2", (False, True)),
    ],
)
def test_provider_choice_follows_configuration(listener, router, expected):
    """The choice follows security.md S-1."""
    assert verdict(listener, router) == expected


def test_configuration_without_logins_needs_no_process():
    assert providers(load(), 1, str) is None


def test_process_configuration_lists_providers():
    found = providers(load("saslMechanisms: PLAIN", "saslConfigDir: /d"), 7, str)
    assert found is not None
    assert (found.serial, found.users, found.library) == (7, [], LibrarySettings(name="qdrouterd", folder="/d"))
    assert found.services == [Service(name="service", host="h", port=9, realm="r")]
    (issuer,) = found.issuers
    assert isinstance(issuer, TokenIssuer)
    assert (issuer.name, issuer.audiences, issuer.jwks_file) == ("id", ("a",), "/k")
    only = providers(load("tokenIssuers: id"), 1, str)
    assert only is not None
    assert only.library is None


def test_exchange_context_follows_listener():
    found = load("tokenIssuers: id\n saslMechanisms: PLAIN XOAUTH2\n authenticatePeer: yes")
    made = exchange_context(found.listeners[0], found.router, 3, "[::1]:99", "CN=a", 256)
    assert (made.connection, made.host, made.external, made.encryption) == (3, "[::1]", "CN=a", 256)
    assert (made.issuers, made.mechanisms, made.anonymous, made.library) == (["id"], ["PLAIN", "XOAUTH2"], False, False)
