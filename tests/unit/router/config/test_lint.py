"""Settings that cannot work or have no effect: each is found, with its line, and good configurations give none."""

from pathlib import Path

import pytest

from sluice.router.config.errors import Problems
from sluice.router.config.grammar import parse
from sluice.router.config.lint import lint
from sluice.router.config.load import load_text, read
from tests.unit.router.config.sections import section

ROOT = Path(__file__).parents[4]
CLIENTS = section("listener", "name: clients", "host: localhost", "port: 1")
BROKER = section("connector", "name: broker", "host: b", "role: route-container")
POLICY = section("policy", "enableVhostPolicy: yes")


def found(text: str) -> list[tuple[int | None, str]]:
    """Return lines and texts of the findings in a file."""
    configuration = load_text("x.conf", text, files=False)
    return [(each.line, each.text) for each in lint(configuration, parse(text, Problems("x.conf")))]


def vhost(*group: str, name: str = "users", more: str = "") -> str:
    """Return a vhost with one group, after the policy and a listener."""
    lines = ["hostname: $default", *([more] if more else []), "groups: {", f"{name}: {{", *group, "}", "}"]
    return "".join([CLIENTS, POLICY, section("vhost", *lines)])


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        (section("router", "id: A"), 1, "neither a listener nor a connector"),
        (section("listener", "saslMechanisms: ANONOYMOUS"), 2, "'ANONOYMOUS' (did you mean 'ANONYMOUS'?)"),
        (section("listener", "saslMechanisms: PLAIN EXTERNAL"), 2, "EXTERNAL needs an sslProfile"),
        (section("listener", "requireEncryption: yes"), 2, "requireEncryption needs an sslProfile"),
        (section("listener", "host: h", "websockets: yes", "metrics: yes"), 3, "websockets, metrics has no effect"),
        (CLIENTS + section("listener", "name: b", "host: localhost", "port: 1"), 9, "its port is that of listener"),
        (BROKER + section("connector", "name: c", "host: c", "saslUsername: u"), 9, "without saslPassword"),
        (BROKER + section("autoLink", "addr: q", "dir: in", "connection: brokr"), 9, "(did you mean 'broker'?)"),
        (CLIENTS + section("autoLink", "addr: q", "dir: in", "connection: clients"), 9, "needs role: route-container"),
        (CLIENTS + section("linkRoute", "prefix: q", "dir: in", "containerId: b"), 9, "no broker can connect"),
        (
            BROKER + section("autoLink", "addr: q", "dir: out", "connection: broker", "externalAddress: /amq/queue/q"),
            10,
            "RabbitMQ discards its messages while the queue is missing",
        ),
        (BROKER + section("linkRoute", "prefix: q", "dir: in"), 6, "no effect without connection or containerId"),
        (CLIENTS + section("exchange", "name: e", "address: a"), 6, "no binding names it"),
        (CLIENTS + section("sslProfile", "name: p"), 6, "sslProfile 'p' is not used"),
        (CLIENTS + section("saslUsers", "name: u", "file: /x"), 6, "saslUsers 'u' is not used"),
        (section("router", "mode: interior") + CLIENTS, 2, "has role: inter-router"),
        (section("router", "mode: edge") + CLIENTS, 2, "has role: edge"),
        (section("router", "id: R.${HOSTNAME}") + CLIENTS, 2, "id contains '${HOSTNAME}', which is not replaced; set"),
        (CLIENTS + section("address", "prefix: 'news'"), 7, "the quotes in prefix: 'news' are part of the value"),
        (CLIENTS + section("address", "pattern: a.news*"), 7, "'news*' in pattern: a.news* is no wildcard"),
        (CLIENTS + section("vhost", "hostname: a"), 6, "enableVhostPolicy: yes"),
        (CLIENTS + section("policy", "enableVhostPolicy: yes", "defaultVhost: a"), 8, "there is no vhost 'a'"),
        (vhost("users: a"), 12, "nobody can be in group 'users': it has no remoteHosts"),
        (vhost("remoteHosts: *"), 12, "nobody can be in group 'users': it has no users"),
        (vhost("remoteHosts: *", name="$default"), 12, "it needs allowUnknownUser: yes"),
    ],
)
def test_setting_that_cannot_work_is_found_with_line(text: str, line: int, part: str) -> None:
    (finding,) = found(text)
    assert finding[0] == line
    assert part in finding[1]


def test_password_file_of_users_without_mechanism_is_found() -> None:
    users = section("saslUsers", "name: u", "file: /x")
    text = section("listener", "host: h", "saslUsers: u", "saslMechanisms: ANONYMOUS") + users
    assert found(text) == [
        (3, "listener 'listener/h:amqp': saslUsers is never used, because saslMechanisms has neither PLAIN nor "
            "SCRAM-SHA-…")
    ]  # fmt: skip


def test_vhost_of_endpoint_that_does_not_exist_is_found() -> None:
    good = vhost("users: a", "remoteHosts: *")
    assert found(good) == []
    wrong = good + section("connector", "name: c", "host: h", "policyVhost: $defalt")
    assert found(wrong) == [(21, "connector 'c': there is no vhost '$defalt' (did you mean '$default'?)")]


# Files in conf/systemd are those of systemd.
EXAMPLES = [path for path in sorted((ROOT / "conf").glob("**/*.conf")) if path.parent.name != "systemd"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_configuration_has_no_finding(path: Path) -> None:
    text = read(str(path))
    configuration = load_text(str(path), text, files=False)
    assert lint(configuration, parse(text, Problems(str(path)))) == []
