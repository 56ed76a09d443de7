"""Vhosts with groups, and questions about them.

The compiled rules must agree with a naive reading of the rules; invalid input is refused. A case is JSON, `{"vhosts":
[...], "questions": [...]}`, as octets.
"""

import ipaddress
import json
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from sluice.router.config.entities import Configuration
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text
from sluice.router.config.policy_entities import GroupConfig, VhostConfig
from sluice.router.policy.question import PolicyQuestion, QuestionError
from tests.peer.damage import spoil
from tests.unit.router.policy.naive import listed, matched

Case = dict[str, Any]
USERS: Final = ("alice", "bob", "*", "", "a.b", "$default", "\u00e4")
HOSTS: Final = ("*", "10.0.0.1", "10.0.0.1-10.0.0.9", "::1", "::-::ff", "10.0.0.9-10.0.0.1", "1-::1", "", "-")
NAMES: Final = ("v", "w", "a", "*.v", "", "$default")
ADDRESSES: Final = ("a", "a.b", "alice", "a.alice", "alice/x", "/a", "", "*", "b")
ITEMS: Final = ("a", "a*", "*", "${user}", "${user}*", "a.${user}", "#", "*.#", "a.*", "x${user}y", "${user}${user}")
GROUPS: Final = ("g", "h", "$default", "$connector")
NUMBERS: Final[tuple[Any, ...]] = (0, 1, -1, 65535, 65536, 2**63, "7", "x", None, True, 1.5, [])
FLAGS: Final = (True, False, "true", "TRUE", "no", 1, None)


def _some_choices(rng: Random, choices: tuple[str, ...]) -> Any:
    """Return some of the choices, as a list or as a text."""
    found = [rng.choice(choices) for _ in range(rng.randrange(4))]
    return found if rng.random() < 0.7 else ", ".join(found)


def _group(rng: Random) -> Any:
    if rng.random() < 0.02:
        return rng.choice((None, "x", []))
    group: dict[str, Any] = {"users": _some_choices(rng, USERS), "remoteHosts": "*"}
    if rng.random() < 0.4:
        group["remoteHosts"] = _some_choices(rng, HOSTS)
    for kind in ("source", "target"):
        group[rng.choice((f"{kind}s", f"{kind}Pattern"))] = _some_choices(rng, ITEMS)
    for name in ("allowDynamicSource", "allowAnonymousSender"):
        if rng.random() < 0.5:
            group[name] = rng.choice(FLAGS if rng.random() < 0.2 else FLAGS[:2])
    if rng.random() < 0.1:
        group[rng.choice(("maxSenders", "maxMessageSize", "maxConnectionsPerUser", "sources", "x"))] = rng.choice(
            NUMBERS
        )
    return group


def _vhost(rng: Random, name: str) -> dict[str, Any]:
    vhost: dict[str, Any] = {"hostname": name, "groups": {each: _group(rng) for each in GROUPS if rng.random() < 0.5}}
    if rng.random() < 0.3:
        vhost["aliases"] = rng.choice(NAMES)
    if rng.random() < 0.5:
        vhost["allowUnknownUser"] = rng.choice(FLAGS[:2])
        vhost["groups"].setdefault("$default", _group(rng))
    if rng.random() < 0.1:
        vhost["maxConnections"] = rng.choice(NUMBERS)
    return vhost


def _question(rng: Random) -> dict[str, Any]:
    question: dict[str, Any] = {
        "user": rng.choice((None, *USERS)), "host": rng.choice(("10.0.0.1", "::1", "10.0.0.99")),
        "vhost": rng.choice(NAMES), "groups": [each for each in GROUPS if rng.random() < 0.3],
        "send": [rng.choice(ADDRESSES)], "receive": [rng.choice(ADDRESSES)], "anonymous": True, "dynamic": True,
    }  # fmt: skip
    if rng.random() < 0.2:
        name = rng.choice((*question, "listener", "x"))
        question[name] = rng.choice((None, "", "x", 7, [], [7], {}, True, "x" * 200, ["a"] * 101))
    return question


def rules(rng: Random) -> Case:
    """Return a case that is mostly usable."""
    names = rng.sample(NAMES, rng.randrange(1, 4))
    document = {
        "vhosts": [_vhost(rng, name) for name in names],
        "questions": [_question(rng) for _ in range(4)],
    }
    octets = json.dumps(document).encode()
    return {"octets": (spoil(rng, octets) if rng.random() < 0.2 else octets).hex()}


def run_rules(case: Case) -> None:
    """Invalid documents are skipped, since JSON parsing is not under test."""
    try:
        document = json.loads(bytes.fromhex(case["octets"]))
        vhosts, questions = document["vhosts"], document["questions"]
        text = json.dumps([["policy", {"enableVhostPolicy": True}], *(["vhost", each] for each in vhosts)])
        asked = [each for each in questions if isinstance(each, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    try:
        configuration = load_text("x.json", text)
    except ConfigError:
        return
    for each in asked:
        _ask(configuration, each)


def _ask(configuration: Configuration, given: Mapping[str, Any]) -> None:
    try:
        question = PolicyQuestion.of(given)
        found = list(question.answer(configuration))
    except QuestionError:
        return
    assert PolicyQuestion.of(json.loads(json.dumps(question.as_map()))) == question
    assert json.dumps([each.as_map() for each in found])
    group = _admitted(configuration, question)
    assert found[0].allowed == (group is not None), found[0]
    if group is None:
        assert len(found) == 1
        return
    user = question.user
    expected = [
        *(
            _is_permitted(group.targets, group.target_pattern, each, user, group.allow_anonymous_sender)
            for each in question.send
        ),
        *(_is_permitted(group.sources, group.source_pattern, each, user) for each in question.receive),
        *([group.allow_anonymous_sender] if question.anonymous else []),
        *([group.allow_dynamic_source] if question.dynamic else []),
    ]
    assert [each.allowed for each in found[1:]] == expected, (question, found)


def _admitted(configuration: Configuration, question: PolicyQuestion) -> GroupConfig | None:
    """Return the connection's group (security.md P-11 to P-14), or None if it is refused."""
    by_name = {each.hostname: each for each in configuration.vhosts}
    by_alias = {alias: each for each in configuration.vhosts for alias in each.aliases}
    vhost = by_name.get(question.vhost) or by_alias.get(question.vhost) or by_name.get("$default")
    group = None if vhost is None else _group_of(vhost, question)
    return group if group is not None and any(_is_from(each, question.host) for each in group.remote_hosts) else None


def _group_of(vhost: VhostConfig, question: PolicyQuestion) -> GroupConfig | None:
    groups = {each.name: each for each in vhost.groups}
    for each in vhost.groups:
        if question.user is not None and question.user in each.users:
            return each
    for each in vhost.groups:
        if each.name in question.groups and not each.name.startswith("$"):
            return each
    for each in vhost.groups:
        if "*" in each.users:
            return each
    return groups.get("$default") if vhost.allow_unknown_user else None


def _is_from(specification: str, host: str) -> bool:
    if specification == "*":
        return True
    low, _, high = specification.partition("-")
    try:
        ends = [ipaddress.ip_address(each.strip()) for each in (low, high or low)]
    except ValueError:
        return False  # a name that is not resolved
    address = ipaddress.ip_address(host)
    return address.version == ends[0].version and int(ends[0]) <= int(address) <= int(ends[1])


def _is_permitted(
    items: tuple[str, ...], patterns: tuple[str, ...] | None, address: str, user: str | None, without: bool = False
) -> bool:
    """See security.md P-31, P-32. without: links without an address are allowed."""
    if not address:
        return without
    return listed([*items], address, user or "") if patterns is None else matched([*patterns], address, user or "")
