"""Warnings about dangerous settings: each is found for the dangerous value, and not for the safe one."""

import json
from pathlib import Path

import pytest

from sluice.router.config.dangers import dangers
from sluice.router.config.load import load_text

ROUTER = "router {\n    id: R\n    mode: interior\n}\n"
POLICY = "policy {\n    enableVhostPolicy: yes\n}\n"
PROFILE = "sslProfile {\n    name: p\n    certFile: c\n    privateKeyFile: k\n    caCertFile: a\n}\n"
USERS = "saslUsers {\n    name: u\n    file: users\n}\n"


def section(kind: str, **attributes: object) -> str:
    lines = [f"    {each}: {value}" for each, value in attributes.items()]
    return "\n".join([f"{kind} {{", *lines, "}", ""])


def found(text: str, worst: bool | None = None) -> list[str]:
    configuration = load_text("r.conf", ROUTER + text)
    return [each.text for each in dangers(configuration) if worst is None or each.worst is worst]


LISTENER = {"name": "l", "host": "0.0.0.0", "port": "5672"}
SAFE = {
    **LISTENER, "sslProfile": "p", "requireSsl": "yes", "authenticatePeer": "yes", "saslUsers": "u",
    "saslMechanisms": "SCRAM-SHA-256",
}  # fmt: skip

NETWORK = {"role": "inter-router", "saslMechanisms": "EXTERNAL"}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("users", "k", "password", "exported", "traced"):
        (tmp_path / name).touch(0o600)
    return tmp_path


def test_safe_listeners_give_no_warning() -> None:
    safe = POLICY + PROFILE + USERS
    assert found(safe + section("listener", **SAFE)) == []
    assert found(safe + section("listener", **{**SAFE, **NETWORK, "allowedRouters": "CN=r1"})) == []
    assert found(section("listener", name="l", host="localhost", port=5672, http="yes")) == []
    assert found(section("listener", name="l", host="127.0.0.1", port=5672)) == []


@pytest.mark.parametrize(
    ("changes", "text", "worst"),
    [
        ({"authenticatePeer": "no"}, "clients need not log in", False),
        ({"requireSsl": "no"}, "messages may be sent unencrypted", False),
        ({"requireSsl": "no", "saslMechanisms": "PLAIN"}, "passwords may be sent unencrypted", True),
        ({"initialHandshakeTimeoutSeconds": "0"}, "silent connections", False),
        ({"http": "yes", "authenticatePeer": "no"}, "anyone who can reach the listener can use the console", True),
        ({"http": "yes", "allowedOrigins": "*"}, "lets every web page use the listener", False),
        ({"role": "inter-router", "authenticatePeer": "no"}, "any router may join", True),
        ({"role": "edge", "authenticatePeer": "no"}, "any router may join", True),
        (NETWORK, "may join as a router; set allowedRouters", False),
    ],
)
def test_dangerous_listener_setting_is_reported(changes: dict[str, str], text: str, worst: bool) -> None:
    (danger,) = found(POLICY + PROFILE + USERS + section("listener", **{**SAFE, **changes}), worst)
    assert danger.startswith("listener 'l': ")
    assert text in danger


def test_missing_vhost_policy_is_reported() -> None:
    (danger,) = found(PROFILE + USERS + section("listener", **SAFE))
    assert "without vhost policy every client may use every address" in danger
    worst = found(PROFILE + USERS + section("listener", **{**SAFE, "multiTenant": "yes"}), True)
    assert worst == [
        "listener 'l': multiTenant does not isolate tenants, since clients choose their own; set enableVhostPolicy: yes"
    ]


def test_dangerous_connector_setting_is_reported() -> None:
    connector = {"name": "c", "host": "broker.example", "port": "5672", "saslUsername": "me"}
    (danger,) = found(section("connector", **connector, saslPassword="file:password"))
    assert danger == "connector 'c': its password may be sent unencrypted; set an sslProfile"
    connector["sslProfile"] = "p"
    assert found(PROFILE + section("connector", **connector, saslPassword="file:password")) == []
    (danger,) = found(PROFILE + section("connector", **connector, verifyHostname="no"))
    assert "can pose as broker.example" in danger


@pytest.mark.parametrize(("mode", "text"), [(0o640, "other users can read"), (0o602, "other users can change")])
@pytest.mark.parametrize("name", ["users", "k", "password", "exported", "traced"])
def test_readable_or_writable_file_is_reported(files: Path, name: str, mode: int, text: str) -> None:
    (files / name).chmod(mode)
    connector = section("connector", name="c", host="localhost", port=1, saslPassword="file:password")
    url = "https://localhost:4318"
    collector = section("openTelemetry", endpoint=url, certFile="c", privateKeyFile="exported")
    tracing = section("tracing", endpoint=url, certFile="c", privateKeyFile="traced")
    (danger,) = found(PROFILE + USERS + connector + collector + tracing, mode == 0o602)
    assert f"{text} " in danger
    assert danger.endswith(f"{name}; run chmod 600")


def test_broken_tls_version_is_reported() -> None:
    (danger,) = found(PROFILE.replace("}", "    protocols: TLSv1.1 TLSv1.2\n}"))
    assert danger == "sslProfile 'p': TLSv1.1 is insecure; set protocols: TLSv1.2 TLSv1.3"


def vhost(**group: object) -> str:
    groups = json.dumps({"g": group}, indent=8)
    return f"vhost {{\n    hostname: v\n    groups: {groups}\n}}\n"


def test_dangerous_group_is_reported() -> None:
    everybody = {"users": "*", "remoteHosts": "*", "sources": "*"}
    (danger,) = found(POLICY + vhost(**everybody, targets="*"))
    text = "vhost 'v', group 'g': everybody may send to every address, and to $management"
    assert danger == f"{text}; set targets, or management: none"
    assert found(POLICY + vhost(**everybody, targets="*", management="read")) == []
    assert found(POLICY + vhost(**everybody, targets="orders")) == []
    (danger,) = found(POLICY + vhost(users="CN=alice,O=Client,C=US", remoteHosts="*"), True)
    assert "users are 'CN=alice', 'O=Client' …" in danger
    assert found(POLICY + vhost(users=["CN=alice,O=Client,C=US"], remoteHosts="*")) == []


def test_dangers_have_lines_and_files(files: Path) -> None:
    text = ROUTER + section("listener", **LISTENER)
    danger = dangers(load_text("r.conf", text))[0]
    assert str(danger).endswith("(r.conf:5)")
