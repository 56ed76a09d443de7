"""Rules of vhosts and groups (security.md 6.3 to 6.7)."""

from sluice.router.policy.rules import LinkRules, Vhosts, with_service_addresses
from tests.unit.router.policy.configurations import configuration, vhost, vhosts


def found(rules: Vhosts, name: str) -> str | None:
    match = rules.find(name)
    return None if match is None else match.name


def test_vhost_is_found_by_name_or_alias():
    """See security.md P-11."""
    rules = vhosts({"hostname": "a", "aliases": "x, y"}, {"hostname": "b"})
    assert [found(rules, name) for name in ("a", "x", "y", "b", "c", "", "a.b")] == [
        "a",
        "a",
        "a",
        "b",
        None,
        None,
        None,
    ]


def test_default_vhost_is_used_for_unknown_names():
    rules = vhosts({"hostname": "a"}, {"hostname": "$default"})
    assert [found(rules, name) for name in ("a", "c", "")] == ["a", "$default", "$default"]
    assert found(vhosts({"hostname": "a"}, defaultVhost="a"), "c") == "a"
    assert found(vhosts({"hostname": "$default"}, defaultVhost=""), "c") is None


def test_vhost_with_empty_name_matches_empty_name():
    assert found(vhosts({"hostname": ""}), "") == ""
    assert found(vhosts({"hostname": ""}), "x") is None


def test_vhost_patterns_match_names():
    """See security.md P-12."""
    rules = vhosts(
        {"hostname": "*.pat.com"}, {"hostname": "x.#", "aliases": "#.y"}, {"hostname": "x.pat.com"},
        enableVhostNamePatterns=True,
    )  # fmt: skip
    names = ("z.pat.com", "x.pat.com", "x.y.pat.com", "x", "a.b.y", "pat.com")
    assert [found(rules, name) for name in names] == ["*.pat.com", "x.pat.com", "x.#", "x.#", "x.#", None]
    assert found(vhosts({"hostname": "*.pat.com"}), "z.pat.com") is None
    assert found(vhosts({"hostname": "*.pat.com"}), "*.pat.com") == "*.pat.com"


def test_group_claimed_by_token_is_used():
    """A group that lists the user precedes claimed groups; `*` and $default follow them. Claimed groups are tried in
    the vhost's order."""
    groups = {"staff": {"users": "alice"}, "readers": {}, "writers": {"users": "w"}, "all": {"users": "*"}}
    rules = vhost(groups)

    def group(user: str | None, *claimed: str) -> str | None:
        found = rules.group_of(user, claimed)
        return None if found is None else found.config.name

    assert group("alice", "readers") == "staff"
    assert group("bob", "readers") == "readers"
    assert group("bob", "writers", "readers") == "readers"
    assert group("bob", "other") == "all"
    assert group("bob") == "all"


def test_token_cannot_claim_special_groups():
    rules = vhost({"$connector": {}, "$default": {"remoteHosts": "*"}}, allowUnknownUser=False)
    assert rules.group_of("bob", ["$connector", "$default"]) is None


def test_group_of_user_is_found():
    """See security.md P-13."""
    groups = {"admins": {"users": "alice, bob"}, "all": {"users": "*"}, "$default": {}}

    def group(user: str | None, only: tuple[str, ...], unknown: bool) -> str | None:
        rules = vhost({name: groups[name] for name in only}, allowUnknownUser=unknown).group_of(user)
        return None if rules is None else rules.config.name

    assert group("alice", ("admins", "all", "$default"), True) == "admins"
    assert group("carol", ("admins", "all", "$default"), True) == "all"
    assert group(None, ("admins", "all"), False) == "all"
    assert group("carol", ("admins", "$default"), True) == "$default"
    assert group(None, ("admins", "$default"), True) == "$default"
    assert group("carol", ("admins", "$default"), False) is None
    assert group("ali", ("admins",), False) is None


def test_vhost_gives_limits_that_group_lacks():
    """See security.md P-15, P-21."""
    groups = {"a": {"users": "a", "maxConnectionsPerUser": 1, "maxMessageSize": 0}, "b": {"users": "b"}}
    (rules,) = vhosts(
        {"hostname": "v", "groups": groups, "maxConnectionsPerUser": 5, "maxConnectionsPerHost": 6, "maxMessageSize": 7}
    )
    a, b = rules.group("a"), rules.group("b")
    assert a is not None
    assert b is not None
    assert (a.max_connections_per_user, a.max_connections_per_host, a.links.max_message_size) == (1, 6, 0)
    assert (b.max_connections_per_user, b.max_connections_per_host, b.links.max_message_size) == (5, 6, 7)
    (rules,) = vhosts({"hostname": "v", "groups": groups}, maxMessageSize=9)
    assert [rules.group(name).links.max_message_size for name in "ab"] == [0, 9]  # type: ignore[union-attr]


def test_rules_are_compiled_once():
    rules = vhost({"g": {"users": "*", "sources": "a"}})
    group = rules.group("g")
    assert group is not None
    assert rules.group_of("x") is group
    assert group.links.sources.rules is group.links.sources.rules


def test_unchanged_rules_are_kept():
    first = configuration({"hostname": "a"}, {"hostname": "b"})
    second = configuration({"hostname": "a"}, {"hostname": "b", "maxConnections": 1})
    before = Vhosts(first.policy, first.vhosts)
    after = Vhosts(second.policy, second.vhosts, before)
    assert after.get("a") is before.get("a")
    assert after.get("b") is not before.get("b")
    other_policy = configuration({"hostname": "a"}, {"hostname": "b"}, maxMessageSize=1)
    assert Vhosts(other_policy.policy, other_policy.vhosts, before).get("a") is not before.get("a")


def test_changed_addresses_of_host_names_change_rules():
    given = configuration({"hostname": "v", "groups": {"g": {"users": "*", "remoteHosts": "here, 10.0.0.1"}}})
    none = Vhosts(given.policy, given.vhosts)
    some = Vhosts(given.policy, given.vhosts, none, {"here": "10.0.0.7", "unused": "10.0.0.8"})
    same = Vhosts(given.policy, given.vhosts, some, {"here": "10.0.0.7"})
    hosts = ("10.0.0.1", "10.0.0.7", "10.0.0.8")
    allowed = [[host for host in hosts if _group(each).hosts.allows(host)] for each in (none, some)]
    assert allowed == [["10.0.0.1"], ["10.0.0.1", "10.0.0.7"]]
    assert same.get("v") is some.get("v")


def _group(rules: Vhosts):
    found = rules.get("v")
    assert found is not None
    group = found.group("g")
    assert group is not None
    return group


def test_addresses_of_authentication_service_are_combined():
    """See security.md A-8, A-10."""
    alone = with_service_addresses(None, ["a", "b-${user}"], ["c*"])
    assert alone.targets.allows("b-u", "u")
    assert alone.sources.allows("cc", "u")
    assert not alone.sources.allows("a", "u")
    assert (alone.dynamic_source, alone.anonymous_sender, alone.user_id_proxy) == (True, True, True)
    group = vhost({"g": {"sources": "x", "targetPattern": "t.*", "maxSenders": 4}}).group("g")
    assert group is not None
    both = with_service_addresses(group.links, ["a"], ["c"])
    assert isinstance(both, LinkRules)
    assert (both.sources.items, both.targets.items, both.targets.patterns) == (("c",), ("t.*",), True)
    assert (both.max_senders, both.dynamic_source, both.anonymous_sender, both.user_id_proxy) == (4, True, True, False)


def test_item_that_allows_address_is_reported():
    group = vhost({"g": {"sources": "a, b*, bc"}}).group("g")
    assert group is not None
    assert [group.links.sources.first_allowing_item(address, None) for address in ("a", "bc", "c")] == ["a", "b*", None]
