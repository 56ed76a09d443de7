"""`sluice policy explain`: allowed or denied, with the deciding file and line."""

import json
from pathlib import Path

import pytest

from sluice.router.cli.policy import DENIED, main

FILE = """policy {
    enableVhostPolicy: yes
    policyDir: DIRECTORY
}
listener {
    port: amqp
    name: tenants
    policyVhost: shop
}
vhost {
    hostname: shop
    aliases: store
    allowUnknownUser: yes
    groups: {
        admins: {
            users: alice
            remoteHosts: 10.0.0.1-10.0.0.9, 127.0.0.1
            sources: *
            targets: orders*, all-${user}
            allowAnonymousSender: true
        },
        $default: {
            remoteHosts: *
            sourcePattern: ${user}.#
        }
    }
}
vhost {
    hostname: closed
    allowUnknownUser: no
}
"""
OTHER = '[["vhost", {"hostname": "other",\n "groups": {\n  "all": {"users": "*",\n   "targets": "a"}}}]]'


@pytest.fixture
def ask(tmp_path, capsys):
    """Return a function that runs the tool. It returns the answers as (allowed, why, file, line), and the exit code."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "other.json").write_text(OTHER)
    path = tmp_path / "x.conf"
    path.write_text(FILE.replace("DIRECTORY", str(tmp_path / "policies")))

    def asked(*words: str) -> tuple[list[tuple[bool, str, str, int]], int]:
        code = main(["explain", "-c", str(path), "--json", *words])
        found = json.loads(capsys.readouterr().out)
        return [(each["allowed"], each["why"], Path(each["file"]).name, each["line"]) for each in found], code

    return asked


def test_group_claimed_by_token_is_explained(ask):
    found, code = ask("--user", "carol", "--vhost", "shop", "--group", "admins", "--send", "orders")
    assert found[0][:2] == (True, "vhost 'shop', group 'admins' by the token: remoteHosts '127.0.0.1'")
    assert (found[1][1], code) == ("group 'admins': targets has 'orders*'", 0)


def test_allowed_links_are_explained(ask):
    words = ("--user", "alice", "--vhost", "store", "--host", "10.0.0.5")
    found, code = ask(*words, "--send", "orders-1", "--send", "all-alice", "--receive", "x", "--anonymous")
    opened = "vhost 'shop' by its alias 'store', group 'admins' by its users: remoteHosts '10.0.0.1-10.0.0.9'"
    assert found == [
        (True, opened, "x.conf", 17),
        (True, "group 'admins': targets has 'orders*'", "x.conf", 19),
        (True, "group 'admins': targets has 'all-${user}'", "x.conf", 19),
        (True, "group 'admins': sources has '*'", "x.conf", 18),
        (True, "group 'admins': allowAnonymousSender is set", "x.conf", 20),
    ]
    assert code == 0


def test_denied_links_are_explained(ask):
    found, code = ask("--user", "bob", "--vhost", "shop", "--send", "x", "--receive", "bob", "--receive", "y",
                      "--anonymous", "--dynamic")  # fmt: skip
    assert found == [
        (True, "vhost 'shop', group '$default' by allowUnknownUser: remoteHosts '*'", "x.conf", 23),
        (False, "group '$default': targets is not set", "x.conf", 22),
        (True, "group '$default': sourcePattern has '${user}.#'", "x.conf", 24),
        (False, "group '$default': sourcePattern has nothing that allows it", "x.conf", 24),
        (False, "group '$default': allowAnonymousSender is not set", "x.conf", 22),
        (False, "group '$default': allowDynamicSource is not set", "x.conf", 22),
    ]
    assert code == DENIED


@pytest.mark.parametrize(
    ("words", "why", "file", "line"),
    [
        (["--vhost", "none"], "no vhost has this name or alias, and there is no default vhost '$default'", "x.conf", 1),
        (["--vhost", "closed"], "vhost 'closed': the user is in none of its groups, and allowUnknownUser is not set",
         "x.conf", 30),
        (["--vhost", "shop", "--user", "alice", "--host", "10.0.1.1"],
         "vhost 'shop', group 'admins' by its users: remoteHosts (10.0.0.1-10.0.0.9, 127.0.0.1) does not contain "
         "10.0.1.1", "x.conf", 17),
        (["--vhost", "other", "--no-user"], "vhost 'other', group 'all' of everybody: remoteHosts is not set",
         "other.json", 3),
    ],
)  # fmt: skip
def test_denied_connection_is_explained(ask, words, why, file, line):
    """Links are not explained if the connection itself is denied."""
    assert ask(*words, "--send", "a") == ([(False, why, file, line)], DENIED)


def test_vhost_of_listener_is_used(ask):
    found, _ = ask("--listener", "tenants", "--vhost", "none", "--user", "alice")
    assert found[0][0] is True


def test_policy_without_vhosts_allows_all(tmp_path, capsys):
    path = tmp_path / "x.conf"
    path.write_text("policy {\n    maxConnections: 3\n}\n")
    assert main(["explain", "-c", str(path), "--send", "a"]) == 0
    assert capsys.readouterr().out == (
        "allowed: a connection of user 'anonymous' from 127.0.0.1 to vhost ''\n"
        f"  enableVhostPolicy is not set: vhosts are not looked at, and everything is allowed ({path}:1)\n"
    )


def test_invalid_file_is_reported(tmp_path, capsys):
    path = tmp_path / "x.conf"
    path.write_text("vhost {\n    hostname: v\n    maxConnections: -1\n}\n")
    assert main(["explain", "-c", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"{path}:3: Policy 'v' is invalid: ")
    assert main(["explain", "-c", str(path / "none")]) == 1


def test_unknown_listener_is_reported(tmp_path, capsys):
    path = tmp_path / "x.conf"
    path.write_text("router {\n}\n")
    assert main(["explain", "-c", str(path), "--listener", "x"]) == 1
    assert "there is no listener with the name 'x'" in capsys.readouterr().err
