"""EXPLAIN-POLICY: the policy in force, and the configuration line of each rule."""

from typing import Any

import pytest

from tests.unit.supervisor.management.managed_router import ManagedRouter
from tests.unit.supervisor.policy.test_policy import OPEN, text, vhost

STAFF = {"users": "bob", "remoteHosts": "10.0.0.1", "targets": "orders", "sources": "*"}


@pytest.fixture
def router() -> ManagedRouter:
    return ManagedRouter(text=text(vhost({"staff": STAFF}), policyVhost="v"))


def ask(router: ManagedRouter, **question: Any) -> list[dict[str, Any]]:
    answer = router.ask("EXPLAIN-POLICY", question)
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.body
    return found


def test_policy_answer_names_rules_and_lines(router: ManagedRouter) -> None:
    groups = {"user": "bob", "host": "10.0.0.1"}
    opened, sending, receiving = ask(router, vhost="v", send=["other"], receive=["x"], **groups)
    assert (opened["allowed"], sending["allowed"], receiving["allowed"]) == (True, False, True)
    assert sending["why"] == "group 'staff': targets has nothing that allows it"
    lines = text(vhost({"staff": STAFF}), policyVhost="v").split("\n")
    assert '"targets"' in lines[sending["line"] - 1]
    assert ask(router, listener="main", **groups)[0]["allowed"]
    assert not ask(router, vhost="v", host="10.0.0.1")[0]["allowed"]
    assert ask(router, vhost="v", host="10.0.0.1", groups=["staff"])[0]["allowed"]


def test_rules_created_by_management_have_no_line(router: ManagedRouter) -> None:
    router.ask("CREATE", {"hostname": "new", "groups": {"g": OPEN}}, type="vhost", name="new")
    (opened,) = ask(router, vhost="new")
    assert (opened["allowed"], opened["file"], opened["line"]) == (True, None, None)
    router.ask("UPDATE", {"groups": {"g": OPEN}}, name="vhost/v")
    (opened,) = ask(router, vhost="v")
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
def test_invalid_policy_questions_are_refused(router: ManagedRouter, question: dict[str, Any], text: str) -> None:
    answer = router.ask("EXPLAIN-POLICY", question)
    assert (answer.status, answer.description.startswith(text)) == (400, True)


def test_policy_question_must_be_map(router: ManagedRouter) -> None:
    assert router.ask("EXPLAIN-POLICY", "x").status == 400
