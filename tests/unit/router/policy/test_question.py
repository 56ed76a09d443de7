"""Question of `sluice policy explain`: unchecked maps, limits, and the vhost of a listener."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.config.load import load_text
from sluice.router.policy.question import MOST_NAMES, PolicyQuestion, QuestionError
from tests.unit.router.policy.configurations import configuration

GROUPS = {"$default": {"users": "*", "remoteHosts": "*", "sources": "a", "targets": "b"}}


def test_missing_fields_have_defaults() -> None:
    found = PolicyQuestion.of({})
    assert found == PolicyQuestion()
    assert (found.user, found.host, found.vhost, found.send) == ("anonymous", "127.0.0.1", "", ())


def test_question_is_unchanged_by_conversion_to_map() -> None:
    found = PolicyQuestion.of({"user": None, "host": "::1", "send": ["a"], "groups": ("g",), "dynamic": True})
    assert found.as_map()["send"] == ["a"]
    assert PolicyQuestion.of(found.as_map()) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nonsense", "x"),
        ("user", 5),
        ("host", None),
        ("host", "example.org"),
        ("vhost", ["v"]),
        ("anonymous", "yes"),
        ("dynamic", 1),
        ("send", "a"),
        ("receive", [1]),
        ("groups", {"g": 1}),
        ("send", ["a"] * (MOST_NAMES + 1)),
    ],
)
def test_field_of_wrong_type_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(QuestionError, match=f"'{name}'"):
        PolicyQuestion.of({name: value})


def test_refusal_shows_little_of_value() -> None:
    with pytest.raises(QuestionError) as caught:
        PolicyQuestion.of({"host": "x" * 10_000})
    assert len(str(caught.value)) < 2 * MOST_NAMES


def test_requested_links_are_answered_in_order() -> None:
    allowed = configuration({"hostname": "v", "allowUnknownUser": True, "groups": GROUPS})
    asked = PolicyQuestion(vhost="v", send=("b", "c"), receive=("a", "b"), anonymous=True, dynamic=True)
    connection, *links = asked.answer(allowed)
    assert connection.allowed
    assert [finding.allowed for finding in links] == [True, False, True, False, False, False]


@pytest.mark.parametrize(("listener", "allowed"), [("own", True), ("none", False), (None, False)])
def test_policy_vhost_of_listener_takes_precedence(listener: str | None, allowed: bool) -> None:
    text = (
        "policy {\nenableVhostPolicy: yes\n}\n"
        "listener {\nname: own\nport: 1\npolicyVhost: v\n}\nlistener {\nname: none\nport: 2\n}\n"
        "vhost {\nhostname: v\nallowUnknownUser: yes\ngroups: {\n$default: {\nremoteHosts: *\n}\n}\n}\n"
    )
    first = next(iter(PolicyQuestion(vhost="other", listener=listener).answer(load_text("x.conf", text))))
    assert first.allowed is allowed


def test_unknown_listener_is_refused() -> None:
    asked: dict[str, Any] = {"listener": "gone"}
    with pytest.raises(QuestionError, match="no listener with the name 'gone'"):
        list(PolicyQuestion.of(asked).answer(configuration()))
