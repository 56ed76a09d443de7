"""Authentication entities (saslUsers, tokenIssuer, authServicePlugin) and listeners that refer to them."""

import pytest

from sluice.router.config.build_auth import TOKEN_ALGORITHMS
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make


def section(name, *lines):
    return f"{name} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def load(*sections):
    return load_text("x.conf", "".join(sections))


def errors(*sections):
    with pytest.raises(ConfigError) as caught:
        load(*sections)
    return [(error.line, error.message) for error in caught.value.errors]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "users"
    path.write_text(Users({}).with_user("guest", [make("SCRAM-SHA-1", "p", 4096)]).text())
    return path


ISSUER = ("name: id", "issuer: https://id.example", "audience: a, b", "jwksFile: /keys")


def test_listeners_refer_to_authentication_entities(file):
    found = load(
        section("listener", "saslUsers: people", "tokenIssuers: id other", "port: 0"),
        section("listener", "saslPlugin: service", "port: 0", "name: second"),
        section("saslUsers", "name: people", f"file: {file}"),
        section("tokenIssuer", *ISSUER),
        section("tokenIssuer", "name: other", "issuer: i", "audience: a", "jwksUrl: https://h/k", "algorithms: ES256"),
        section("authServicePlugin", "name: service", "host: auth.example", "port: 1234", "saslInitHostname: realm"),
    )
    first, second = found.listeners
    assert (first.sasl_users, first.token_issuers, first.sasl_plugin) == ("people", ("id", "other"), None)
    assert (second.sasl_users, second.token_issuers, second.sasl_plugin) == (None, (), "service")
    (users,) = found.of_type("saslUsers")
    assert (users.users_file, users.identity) == (str(file), "saslUsers/people")
    issuer, other = found.of_type("tokenIssuer")
    assert (issuer.audiences, issuer.algorithms, issuer.user_claim) == (("a", "b"), TOKEN_ALGORITHMS, "sub")
    assert (issuer.leeway_seconds, issuer.refresh_seconds, issuer.jwks_url) == (30, 300, None)
    assert (other.algorithms, other.jwks_url) == (("ES256",), "https://h/k")
    (service,) = found.of_type("authServicePlugin")
    assert (service.host, service.port, service.realm) == ("auth.example", 1234, "realm")


def test_old_service_attribute_is_accepted():
    found = load(section("authServicePlugin", "name: s", "authService: auth.example:99"))
    (service,) = found.of_type("authServicePlugin")
    assert (service.host, service.port) == ("auth.example", 99)
    assert [module for module, _ in found.warnings] == ["CONN_MGR"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("saslPlugin: nope",), "Cannot find sasl plugin nope"),
        (("saslUsers: nope",), "Cannot find saslUsers nope"),
        (("tokenIssuers: id nope",), "Cannot find tokenIssuer nope"),
        (("saslPlugin: s", "tokenIssuers: id"), "saslPlugin cannot be combined with saslUsers or tokenIssuers"),
    ],
)
def test_listener_with_invalid_reference_is_refused(lines, text):
    others = section("tokenIssuer", *ISSUER) + section("authServicePlugin", "name: s", "host: h")
    ((line, message),) = errors(others, section("listener", *lines))
    assert line == 12
    assert text in message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (("jwksUrl: https://h/k",), "one of jwksFile and jwksUrl must be given"),
        (("algorithms: none",), "algorithm 'none' is not supported"),
        (("algorithms: RS256 HS256",), "algorithm 'HS256' is not supported"),
        (("refreshSeconds: 1",), "between 10 and 86400"),
    ],
)
def test_invalid_token_issuer_is_refused(changes, text):
    ((_, message),) = errors(section("tokenIssuer", *ISSUER, *changes))
    assert text in message


@pytest.mark.parametrize("url", ["http://h/k", "file:///etc/passwd", "https:///k", "https://h:x/k"])
def test_invalid_key_url_is_refused(url):
    ((line, message),) = errors(section("tokenIssuer", *ISSUER[:3], f"jwksUrl: {url}"))
    assert line == 5
    assert "is not a URL with https:// and a host" in message


def test_token_issuer_needs_audience():
    assert "audience" in errors(section("tokenIssuer", "name: id", "issuer: i", "jwksFile: /k"))[0][1]
    assert "audience" in errors(section("tokenIssuer", "name: i", "issuer: i", "audience: ,", "jwksFile: /k"))[0][1]


def test_invalid_users_file_is_refused_with_lines(file, tmp_path):
    """The error has the configuration's line and the file's line."""
    ((line, message),) = errors(section("saslUsers", "name: u", f"file: {tmp_path / 'nothing'}"))
    assert (line, message.endswith("nothing': No such file or directory")) == (3, True)
    file.write_text("\nguest password\n")
    ((line, message),) = errors(section("saslUsers", "name: u", f"file: {file}"))
    assert line == 3
    assert message.endswith("line 2: unknown mechanism 'password'")


def test_authentication_service_needs_host():
    ((_, message),) = errors(section("authServicePlugin", "name: s"))
    assert "the host of the service must be given" in message


def test_faulty_users_section_is_reported_with_its_line(file):
    """The line is that of the section, not of the users file."""
    users = section("saslUsers", "name: people", f"file: {file}")
    found = errors(section("listener", "port: 0", "name: people"), users)
    assert [line for line, _ in found] == [5]
    assert found[0][1].startswith("adding {saslUsers/people, line 5} duplicates unique attribute 'name'")
