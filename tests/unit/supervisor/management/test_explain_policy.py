"""EXPLAIN-POLICY: the policy in force, and the configuration line of each rule."""

from typing import Any

import pytest

from tests.unit.supervisor.management.desk import Desk
from tests.unit.supervisor.policy.test_policy import OPEN, text, vhost

STAFF = {"users": "bob", "remoteHosts": "10.0.0.1", "targets": "orders", "sources": "*"}


@pytest.fixture
def desk() -> Desk:
    return Desk(text=text(vhost({"staff": STAFF}), policyVhost="v"))


def ask(desk: Desk, **question: Any) -> list[dict[str, Any]]:
    answer = desk.ask("EXPLAIN-POLICY", question)
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.body
    return found


def test_the_rules_and_their_lines(desk: Desk) -> None:
    groups = {"user": "bob", "host": "10.0.0.1"}
    opened, sending, receiving = ask(desk, vhost="v", send=["other"], receive=["x"], **groups)
    assert (opened["allowed"], sending["allowed"], receiving["allowed"]) == (True, False, True)
    assert sending["why"] == "group 'staff': targets has nothing that allows it"
    lines = text(vhost({"staff": STAFF}), policyVhost="v").split("\n")
    assert '"targets"' in lines[sending["line"] - 1]
    assert ask(desk, listener="main", **groups)[0]["allowed"]
    assert not ask(desk, vhost="v", host="10.0.0.1")[0]["allowed"]
    assert ask(desk, vhost="v", host="10.0.0.1", groups=["staff"])[0]["allowed"]


def test_rules_that_were_made_by_management(desk: Desk) -> None:
    desk.ask("CREATE", {"hostname": "new", "groups": {"g": OPEN}}, type="vhost", name="new")
    (opened,) = ask(desk, vhost="new")
    assert (opened["allowed"], opened["file"], opened["line"]) == (True, None, None)
    desk.ask("UPDATE", {"groups": {"g": OPEN}}, name="vhost/v")
    (opened,) = ask(desk, vhost="v")
    assert (opened["allowed"], opened["file"], opened["line"]) == (True, None, None)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ({"host": "nonsense"}, "'host' is not an address: 'nonsense'"),
        ({"listener": "none"}, "there is no listener with the name 'none'"),
        ({"send": ["a"] * 101}, "'send' cannot be "),
        ({"send": [1]}, "'send' cannot be '[1]'"),
        ({"dynamic": 1}, "'dynamic' cannot be '1'"),
        ({"vhost": None}, "'vhost' cannot be 'None'"),
        ({"other": "x"}, "'other' cannot be 'x'"),
    ],
)
def test_questions_that_make_no_sense(desk: Desk, question: dict[str, Any], text: str) -> None:
    answer = desk.ask("EXPLAIN-POLICY", question)
    assert (answer.status, answer.description.startswith(text)) == (400, True)


def test_a_question_that_is_no_map(desk: Desk) -> None:
    assert desk.ask("EXPLAIN-POLICY", "x").status == 400
