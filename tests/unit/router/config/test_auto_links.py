"""Configured auto links."""

import pytest

from router.config.diff import diff
from router.config.load import load_text


def text(*lines):
    return "\n".join(["autoLink {", "address: q", *lines, "}", ""])


def auto_link(*lines):
    return load_text("x.conf", text(*lines)).auto_links[0]


# brokers-and-edge.md AL-3.
@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        (["direction: out"], 0),
        (["direction: in"], 1),
        (["direction: in", "fallback: yes"], 0),
        (["direction: out", "fallback: yes"], 0),
        (["direction: in", "phase: 4"], 4),
        (["direction: in", "phase: 0"], 0),
    ],
)
def test_phase_depends_on_direction(lines, phase):
    assert auto_link(*lines).phase == phase


# brokers-and-edge.md AL-1.
def test_auto_link_attributes_are_read():
    found = auto_link("dir: in", "name: a", "containerId: broker", "externalAddr: e")
    assert (found.name, found.identity, found.direction) == ("a", "autoLink/0", "in")
    assert (found.container_id, found.connection, found.external_address) == ("broker", None, "e")
    assert auto_link("direction: out").name == "autoLink/0"


# brokers-and-edge.md AL-2.
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["connection: a", "containerId: b"], "Both connection and containerId cannot be specified. Specify only one"),
        (["phase: 10"], "autoLink phase must be between 0 and 9"),
    ],
)
def test_invalid_auto_link_is_ignored_with_warning(lines, reason):
    configuration = load_text("x.conf", text("direction: in", *lines))
    assert configuration.auto_links == ()
    assert configuration.warnings == [("ROUTER_CORE", f"Error configuring linkRoute: {reason} (x.conf:1)")]


def test_auto_link_changes_are_live_and_ignore_numbers():
    one, two = text("direction: in", "connection: a"), text("direction: out", "connection: a")
    plan = diff(load_text("old.conf", one), load_text("new.conf", two + one))
    assert [(change.kind, change.title(), change.effect) for change in plan.changes] == [
        ("create", "autoLink (out q)", "live")
    ]
    plan = diff(load_text("old.conf", one), load_text("new.conf", one.replace("}", "externalAddress: e\n}")))
    assert [(change.kind, change.effect) for change in plan.changes] == [("update", "live")]
