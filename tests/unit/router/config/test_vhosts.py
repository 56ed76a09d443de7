"""Vhosts in files, in policyDir and in requests (security.md P-1 to P-7, management.md 10.1)."""

import json
import socket
from pathlib import Path

import pytest

from sluice.router.config.diff import diff
from sluice.router.config.errors import ConfigError, RequestError
from sluice.router.config.inventory import Inventory
from sluice.router.config.load import load, load_text
from sluice.router.config.policy_entities import GroupConfig, VhostConfig
from sluice.router.config.request import create, update
from sluice.router.config.schema import SCHEMA

VHOST = SCHEMA.types["vhost"]


def file(*lines: str, groups: object = None, path: str = "x.conf") -> str:
    """Return a file with a single vhost `v`, starting at line 1."""
    attributes = [f"    {line}" for line in ("hostname: v", *lines)]
    if groups is not None:
        attributes.append("    groups: " + json.dumps(groups, indent=8))
    return "\n".join(["vhost {", *attributes, "}", ""])


def vhost(*lines: str, groups: object = None) -> VhostConfig:
    (found,) = load_text("x.conf", file(*lines, groups=groups)).vhosts
    return found


def group(**settings: object) -> GroupConfig:
    (found,) = vhost(groups={"g": settings}).groups
    return found


def errors(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(ConfigError) as caught:
        load_text("x.conf", text)
    return [(error.line, error.message) for error in caught.value.errors]


def reason(*lines: str, groups: object = None) -> tuple[int | None, str]:
    """Return line and reason of a vhost's only error."""
    ((line, text),) = errors(file(*lines, groups=groups))
    assert text.startswith("Policy 'v' is invalid: ")
    return line, text.removeprefix("Policy 'v' is invalid: ")


# -- values -------------------------------------------------------------------------------------------------------


def test_vhost_has_documented_defaults():
    found = vhost()
    assert (found.identity, found.name, found.aliases, found.groups) == ("vhost/v", "vhost/v", (), ())
    assert (found.max_connections, found.max_connections_per_user, found.max_connections_per_host) == (65535,) * 3
    assert (found.max_message_size, found.allow_unknown_user, found.close_on_change) == (None, False, False)


def test_group_has_documented_defaults():
    found = group()
    assert (found.users, found.remote_hosts, found.sources, found.targets) == ((), (), (), ())
    assert (found.source_pattern, found.target_pattern, found.max_frame_size, found.max_message_size) == (None,) * 4
    assert (found.max_senders, found.max_receivers) == (2147483647, 2147483647)
    no = (found.allow_dynamic_source, found.allow_anonymous_sender, found.allow_user_id_proxy)
    yes = (found.allow_waypoint_links, found.allow_fallback_links, found.allow_dynamic_link_routes)
    assert (no, yes, found.allow_admin_status_update) == ((False,) * 3, (True,) * 3, True)


def test_vhost_attributes_are_read():
    found = vhost("aliases: a, b", "maxConnections: 3", "maxMessageSize: 9", "onChange: close")
    assert (found.aliases, found.max_connections, found.max_message_size) == (("a", "b"), 3, 9)
    assert found.close_on_change


def test_old_attribute_of_hostname_is_accepted():
    (found,) = load_text("x.conf", "vhost {\n id: v\n}\n").vhosts
    assert found.hostname == "v"


def test_empty_hostname_is_accepted():
    (found,) = load_text("x.json", '[["vhost", {"hostname": ""}]]').vhosts
    assert (found.hostname, found.identity) == ("", "vhost/")


def test_lists_may_be_texts_or_arrays():
    found = group(users="a, b,,a", sources=["x, y", " z ", "z"], targetPattern="a.#, b")
    assert (found.users, found.sources, found.target_pattern) == (("a", "b"), ("x, y", "z"), ("a.#", "b"))


@pytest.mark.parametrize(("value", "meaning"), [(True, True), ("true", True), ("TRUE", True), ("False", False)])
def test_boolean_of_group_is_read(value, meaning):
    assert group(allowAnonymousSender=value).allow_anonymous_sender is meaning


@pytest.mark.parametrize(("value", "meaning"), [(7, 7), ("7", 7), (0, None)])
def test_number_of_group_is_read(value, meaning):
    assert group(maxFrameSize=value).max_frame_size == meaning


def test_explicit_zero_is_no_message_size_limit():
    assert group(maxMessageSize=0).max_message_size == 0


def test_documented_form_of_groups_is_read():
    text = """vhost {
    hostname: example.com
    groups: {
        admins: {
            users: alice, bob
            remoteHosts: 127.0.0.1, 10.0.0.1-10.0.0.9
            sources: *
        },
        $default: {
            remoteHosts: *
        }
    }
}
"""
    (found,) = load_text("x.conf", text).vhosts
    admins, default = found.groups
    assert (admins.name, admins.users, admins.sources, default.name) == ("admins", ("alice", "bob"), ("*",), "$default")
    assert (admins.line, admins.lines) == (4, {"users": 5, "remoteHosts": 6, "sources": 7})
    assert found.lines["hostname"] == 2


@pytest.mark.parametrize("end", ["}", "},"])
def test_quoted_groups_may_span_lines(end):
    text = f'vhost {{\n hostname: v\n groups: {{\n "a": {{\n "users": "x"\n {end}\n "b": {{"users": "y"}}\n }}\n}}\n'
    if end == "}":
        ((line, _),) = errors(text)
        assert line == 7  # a comma is missing
    else:
        (found,) = load_text("x.conf", text).vhosts
        assert [(each.name, each.users, each.lines) for each in found.groups] == [
            ("a", ("x",), {"users": 5}), ("b", ("y",), {"users": 7})]  # fmt: skip


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "line", "text"),
    [
        (["maxConnections: 65536"], 3, "option 'maxConnections' has error 'Value '65536' is above maximum '65535'.'."),
        (["maxConnectionsPerUser: -1"], 3, "option 'maxConnectionsPerUser' has error 'Value '-1' is below minimum "
         "'0'.'."),
        (["maxMessageSize: -5"], 3, "option 'maxMessageSize' has error 'Value '-5' is below minimum '0'.'."),
        (["aliases: v"], 3, "option 'aliases' value 'v' duplicates vhost name"),
        (["maxConnections: 1", "allowUnknownUser: yes"], 4, "allows connections by default but default settings are "
         "not defined"),
    ],
)  # fmt: skip
def test_invalid_vhost_is_refused_with_line(lines, line, text):
    assert reason(*lines) == (line, f"Policy vhost 'v' {text}")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"maxSenders": "x"}, "option 'maxSenders' has error 'Value 'x' does not resolve to an integer.'."),
        ({"maxSenders": -1}, "option 'maxSenders' has error 'Value '-1' is below minimum '0'.'."),
        ({"maxConnectionsPerHost": 70000}, "option 'maxConnectionsPerHost' has error 'Value '70000' is above maximum "
         "'65535'.'."),
        ({"allowUserIdProxy": "yes"}, "option 'allowUserIdProxy' has illegal boolean value 'yes'."),
        ({"allowUserIdProxy": 1}, "option 'allowUserIdProxy' has illegal boolean value '1'."),
        ({"remoteHosts": "10.0.0.2-10.0.0.1"}, "option 'remoteHosts' connectionOption '10.0.0.2-10.0.0.1' failed to "
         "translate: 'host specs in range must have lower numeric address first'."),
        ({"remoteHosts": ""}, "option 'remoteHosts' connectionOption '' failed to translate: 'HostStruct: '' is no "
         "host'."),
        ({"sources": "a${user}${user}"}, "policy key 'sources' item 'a${user}${user}' contains multiple user "
         "subtitution tokens"),
        ({"targetPattern": "a.${user}.b"}, "policy key 'targetPattern' item 'a.${user}.b' may contain match pattern "
         "'${user}' as a prefix or a suffix only."),
    ],
)  # fmt: skip
def test_invalid_group_is_refused(settings, text):
    assert reason(groups={"g": settings}) == (5, f"Policy vhost 'v' user group 'g' {text}")


@pytest.mark.parametrize(("plain", "pattern"), [("sources", "sourcePattern"), ("targets", "targetPattern")])
def test_group_with_list_and_patterns_is_refused(plain, pattern):
    line, text = reason(groups={"g": {plain: "a", pattern: "b"}})
    conflict = f"specifies conflicting '{plain}' and '{pattern}' attributes. Use only one or the other."
    assert (line, text) == (6, f"Policy vhost 'v' user group 'g' {conflict}")


def test_user_in_two_groups_is_refused():
    line, text = reason(groups={"g": {"users": "a, b"}, "h": {"users": "c, a"}})
    assert (line, text) == (8, "Policy vhost 'v' user 'a' is in multiple user groups 'g' and 'h'")
    assert len(vhost(groups={"g": {}, "h": {}}).groups) == 2  # 1.19 finds user '' in both


def test_vhost_errors_are_reported_together():
    found = errors(file("maxConnections: -1", groups={"g": {"maxSenders": "x"}, "h": 5}))
    assert [line for line, _ in found] == [3, 6, 8]
    assert found[2][1].endswith("user group 'h' must be of type 'dict' but is 'int'")


def test_unknown_group_options_give_warning():
    configuration = load_text("x.conf", file(groups={"g": {"surces": "a"}}))
    assert configuration.warnings == [
        ("POLICY", "Policy vhost 'v' user group 'g' option 'surces' is ignored. (x.conf:5)")]  # fmt: skip


def load_two_vhosts(
    first: dict[str, str], second: dict[str, str], patterns: bool = False
) -> list[tuple[int | None, str]]:
    sections = [["policy", {"enableVhostNamePatterns": patterns}], ["vhost", first], ["vhost", second]]
    text = "[" + ",\n".join(json.dumps(each) for each in sections) + "]"
    try:
        load_text("x.json", text)
    except ConfigError as error:
        return [(each.line, each.message) for each in error.errors]
    return []


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"hostname": "w", "aliases": "v"}, {"hostname": "v"},
         "Policy is creating vhost 'v' but that name is already an alias for vhost 'w'"),
        ({"hostname": "a"}, {"hostname": "v", "aliases": "a"},
         "Policy for vhost 'v' defines alias 'a' which conflicts with an existing vhost named 'a'"),
        ({"hostname": "w", "aliases": "a"}, {"hostname": "v", "aliases": "b, a"},
         "Policy for vhost 'v' alias 'a' conflicts with existing alias for vhost 'w'"),
    ],
)  # fmt: skip
def test_taken_vhost_name_is_refused(first, second, text):
    assert load_two_vhosts(first, second) == [(3, text)]


def test_equal_vhost_patterns_are_refused():
    first, second = {"hostname": "a.*"}, {"hostname": "v", "aliases": "a/*"}
    text = "Policy for vhost 'v' alias 'a/*' optimized pattern conflicts with existing pattern"
    assert load_two_vhosts(first, second, patterns=True) == [(3, text)]
    assert load_two_vhosts(first, second) == []
    assert load_two_vhosts(first, {"hostname": "a/*"}, patterns=True) == [
        (3, "Policy 'a/*' optimized pattern conflicts with existing pattern")]  # fmt: skip


def test_duplicate_hostname_is_refused():
    ((line, text),) = load_two_vhosts({"hostname": "v"}, {"hostname": "v"})
    assert line == 3
    assert "duplicates unique attribute 'name'" in text


# -- host names ---------------------------------------------------------------------------------------------------


def test_hostnames_are_resolved_once_by_given_function():
    asked = []

    def resolve(name: str) -> str:
        asked.append(name)
        return "10.0.0.7"

    text = file(groups={"g": {"remoteHosts": "x, x-10.0.0.9"}, "h": {"remoteHosts": "x, 10.0.0.1"}})
    (found,) = load_text("x.conf", text, resolve).vhosts
    assert (asked, found.addresses) == (["x"], {"x": "10.0.0.7"})
    (found,) = load_text("x.conf", text).vhosts
    assert found.addresses == {}


def test_hostnames_of_file_are_resolved(tmp_path, monkeypatch):
    def nobody(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    path = tmp_path / "x.conf"
    path.write_text(file(groups={"g": {"remoteHosts": "x"}}))
    with pytest.raises(ConfigError, match=r":5: .* connectionOption 'x' failed to translate: 'HostStruct: 'x' failed"):
        load(str(path))


# -- policyDir ----------------------------------------------------------------------------------------------------


def with_directory(path: Path, *lines: str) -> str:
    return "\n".join(["policy {", f"    policyDir: {path}", "}", *lines, ""])


# management.md 2.7.
def test_files_of_policy_directory_are_loaded(tmp_path):
    (tmp_path / "b.json").write_text('# two\n[["vhost", {"hostname": "b",\n "groups": {"g":\n {"users": "u"}}}]]')
    (tmp_path / "a.json").write_text('[["vhost", {"hostname": "a"}], ["listener", {"port": 1}]]')
    (tmp_path / "c.txt").write_text("no JSON")
    text = with_directory(tmp_path, "vhost {", "    hostname: first", "}")
    configuration = load_text("x.conf", text)
    assert [(each.hostname, each.file) for each in configuration.vhosts] == [
        ("first", None), ("a", str(tmp_path / "a.json")), ("b", str(tmp_path / "b.json"))]  # fmt: skip
    assert configuration.vhosts[2].groups[0].lines == {"users": 4}
    assert configuration.listeners == ()
    assert not diff(configuration, load_text("x.conf", text))


def test_error_in_policy_directory_names_file(tmp_path):
    (tmp_path / "a.json").write_text("[[\n")
    (tmp_path / "b.json").write_text('[["vhost", {"hostname": "b",\n"maxConnections": -1}]]')
    (tmp_path / "c.json").write_text('[["vhost",\n{"hostname": "first"}]]')
    with pytest.raises(ConfigError) as caught:
        load_text("x.conf", with_directory(tmp_path, "vhost {", "    hostname: first", "}"))
    found = [(error.path, error.line) for error in caught.value.errors]
    assert found == [(str(tmp_path / name), line) for name, line in (("a.json", 1), ("b.json", 2), ("c.json", 1))]


def test_missing_policy_directory_is_reported(tmp_path):
    ((line, text),) = errors(with_directory(tmp_path / "none"))
    assert line == 1
    assert text.endswith("cannot be read: No such file or directory")


# -- requests -----------------------------------------------------------------------------------------------------


def inventory(text: str = "") -> Inventory:
    return Inventory(load_text("x.conf", text or file("aliases: w")))


def refused(body: object, present: Inventory | None = None) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        create(VHOST, None, body, present or inventory())
    return caught.value.status, str(caught.value)


def test_vhost_is_created_from_request():
    made, warnings = create(VHOST, None, {"hostname": "x", "groups": {"g": {"users": ["a"], "maxSenders": 3}}},
                            inventory())  # fmt: skip
    assert isinstance(made, VhostConfig)
    assert (made.identity, made.groups[0].users, made.groups[0].max_senders, warnings) == ("vhost/x", ("a",), 3, [])
    assert made.attributes["groups"] == {"g": {"users": ["a"], "maxSenders": 3}}


def test_invalid_vhost_request_is_refused():
    assert refused({"hostname": "x", "maxConnections": -1}) == (
        500, "PolicyError: Policy 'x' is invalid: Policy vhost 'x' option 'maxConnections' has error 'Value '-1' is "
        "below minimum '0'.'.")  # fmt: skip
    assert refused({"hostname": "w"}) == (
        500, "PolicyError: Policy is creating vhost 'w' but that name is already an alias for vhost 'v'")  # fmt: skip
    status, text = refused({"hostname": "v"})
    assert status == 400
    assert "duplicates unique attribute 'name' from existing VhostEntity(" in text
    assert refused({"hostname": "x", "maxMessageSize": 1}) == (400, "Cannot set attribute 'maxMessageSize' in CREATE")
    assert refused({}) == (400, "org.apache.qpid.dispatch.vhost: Missing required attribute 'hostname'")


@pytest.mark.parametrize("patterns", [False, True])
def test_vhost_update_replaces_given_attributes(patterns):
    """Given attributes are replaced, others stay, with and without patterns (security.md P-81, P-84)."""
    text = "policy {\n enableVhostNamePatterns: " + ("yes" if patterns else "no") + "\n}\n" + file("maxConnections: 3")
    configuration = load_text("x.conf", text)
    (before,) = configuration.vhosts
    after, _ = update(before, {"groups": {"g": {}}, "maxConnectionsPerUser": 5}, configuration)
    assert isinstance(after, VhostConfig)
    assert (after.max_connections, after.max_connections_per_user, len(after.groups)) == (3, 5, 1)
    assert after.max_connections_per_host == 65535
    with pytest.raises(RequestError, match="Cannot update attribute 'hostname'"):
        update(before, {"hostname": "y"}, configuration)
