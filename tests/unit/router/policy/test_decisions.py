"""Policy decisions about opens and attaches (security.md 6.3 to 6.8, 6.10)."""

from typing import Any

import pytest

from sluice.router.policy.decisions import (
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    ConnectionCounts,
    LinkDenied,
    LinkFacts,
    LinkOwner,
    OpenAllowed,
    OpenDenied,
    decide_connection_limits,
    decide_connector,
    decide_group,
    decide_link,
)
from sluice.router.policy.rules import LinkRules, VhostRules
from tests.unit.router.policy.configurations import vhost

WHO = LinkOwner("u", "10.0.0.1", "h")
FOR = "for user 'u', rhost '10.0.0.1', vhost 'h'"


# -- opens --------------------------------------------------------------------------------------------------------


def decide_open(vhost: VhostRules | None, user: str, host: str, counts: ConnectionCounts) -> OpenAllowed | OpenDenied:
    """Decide by group, host and limits, in this order."""
    decision = decide_group(vhost, user, host)
    return decision if isinstance(decision, OpenDenied) else decide_connection_limits(decision, counts)


def open_denied(decision: OpenAllowed | OpenDenied) -> OpenDenied:
    assert isinstance(decision, OpenDenied)
    return decision


def test_open_without_vhost_is_denied():
    denied = open_denied(decide_open(None, "u", "10.0.0.1", ConnectionCounts()))
    assert (denied.reason, denied.texts) == ("no_vhost", ("No policy defined for vhost",))


def test_open_of_unknown_user_is_denied():
    denied = open_denied(decide_open(vhost({}), "u", "10.0.0.1", ConnectionCounts()))
    assert denied.texts == ("User is not in a user group and unknown users are denied",)


@pytest.mark.parametrize(
    ("hosts", "allowed"),
    [({}, False), ({"remoteHosts": []}, False), ({"remoteHosts": "*"}, True), ({"remoteHosts": "10.0.0.1"}, True),
     ({"remoteHosts": "10.0.0.2, ::1"}, False)],
)  # fmt: skip
def test_open_from_disallowed_host_is_denied(hosts, allowed):
    decision = decide_open(vhost({"g": {"users": "u", **hosts}}), "u", "10.0.0.1", ConnectionCounts())
    if allowed:
        assert isinstance(decision, OpenAllowed)
        assert decision.group.config.name == "g"
    else:
        assert open_denied(decision).texts == ("User is not allowed to connect from this network host",)


@pytest.mark.parametrize(
    ("counts", "texts"),
    [
        (ConnectionCounts(2, 1, 1), ()),
        (ConnectionCounts(3, 1, 1), ("Connection denied by application connection limit",)),
        (ConnectionCounts(2, 2, 1), ("Connection denied by per user limit",)),
        (ConnectionCounts(2, 1, 2), ("Connection denied by per host limit",)),
        (
            ConnectionCounts(3, 2, 2),
            ("Connection denied by application connection limit", "Connection denied by per user limit",
             "Connection denied by per host limit"),
        ),
    ],
)  # fmt: skip
def test_open_beyond_connection_limits_is_denied(counts, texts):
    """See security.md P-15."""
    group = {"users": "u", "remoteHosts": "*", "maxConnectionsPerUser": 2}
    decision = decide_open(vhost({"g": group}, maxConnections=3, maxConnectionsPerHost=2), "u", "10.0.0.1", counts)
    assert isinstance(decision, OpenDenied) == bool(texts)
    assert getattr(decision, "texts", ()) == texts


def test_open_with_limit_zero_is_denied():
    group = {"users": "u", "remoteHosts": "*"}
    denied = open_denied(decide_open(vhost({"g": group}, maxConnections=0), "u", "10.0.0.1", ConnectionCounts()))
    assert denied.reason == "connections"


def test_connector_needs_its_group():
    """See security.md P-60."""
    decision = decide_connector(vhost({"$connector": {"sources": "a"}}))
    assert isinstance(decision, OpenAllowed)
    assert decision.group.config.name == "$connector"
    assert isinstance(decide_connector(vhost({"g": {}})), OpenDenied)
    assert isinstance(decide_connector(None), OpenDenied)


# -- links --------------------------------------------------------------------------------------------------------


def rules(**settings: Any) -> LinkRules:
    group = vhost({"g": settings}).group("g")
    assert group is not None
    return group.links


def sender(address: str | None = None, **more: Any) -> LinkFacts:
    return LinkFacts(consumer=False, address=address, **more)


def receiver(address: str | None = None, **more: Any) -> LinkFacts:
    return LinkFacts(consumer=True, address=address, **more)


@pytest.mark.parametrize(
    ("settings", "link", "links", "denied"),
    [
        # security.md P-31
        ({"targets": "a"}, sender("a"), 0, None),
        ({"targets": "a"}, sender("b"), 0, ("target", UNAUTHORIZED,
                                            f"sender link 'b' {FOR} based on link target name")),
        ({"targets": "*", "maxSenders": 2}, sender("a"), 1, None),
        ({"targets": "*", "maxSenders": 2}, sender("a"), 2, ("senders", RESOURCE_LIMIT,
                                                             f"sender {FOR} based on maxSenders limit")),
        ({"targets": "*", "maxSenders": 0}, sender("a"), 999, None),
        ({"targetPattern": "a.*"}, sender("a.x"), 0, None),
        ({"targetPattern": "a.*"}, sender("a"), 0, ("target", UNAUTHORIZED,
                                                    f"sender link 'a' {FOR} based on link target name")),
        ({"sources": "a"}, sender("a"), 0, ("target", UNAUTHORIZED,
                                            f"sender link 'a' {FOR} based on link target name")),
        ({"targets": "*"}, sender(), 0, ("anonymous_sender", UNAUTHORIZED, f"anonymous sender {FOR}")),
        ({"targets": "*"}, sender(""), 0, ("anonymous_sender", UNAUTHORIZED, f"anonymous sender {FOR}")),
        ({"targets": "*"}, sender(dynamic=True), 0, ("anonymous_sender", UNAUTHORIZED, f"anonymous sender {FOR}")),
        ({"targets": "*"}, sender(coordinator=True), 0, ("anonymous_sender", UNAUTHORIZED, f"anonymous sender {FOR}")),
        ({"allowAnonymousSender": True}, sender(), 0, None),
        ({"allowAnonymousSender": True}, sender(coordinator=True), 0, None),
        ({"allowAnonymousSender": True}, sender(dynamic=True), 0, None),
        # security.md P-32
        ({"sources": "a"}, receiver("a"), 0, None),
        ({"sources": "a"}, receiver("b"), 0, ("source", UNAUTHORIZED,
                                              f"receiver link 'b' {FOR} based on link source name")),
        ({"sources": "*", "maxReceivers": 1}, receiver("a"), 1, ("receivers", RESOURCE_LIMIT,
                                                                 f"receiver {FOR} based on maxReceivers limit")),
        ({"sources": "*"}, receiver(dynamic=True), 0, ("dynamic_source", UNAUTHORIZED,
                                                       f"receiver dynamic source {FOR},")),
        ({"allowDynamicSource": True}, receiver(dynamic=True), 0, None),
        ({"sources": "*"}, receiver(), 0, ("source", UNAUTHORIZED, f"receiver link '' {FOR}")),
        ({"sources": "*"}, receiver(""), 0, ("source", UNAUTHORIZED, f"receiver link '' {FOR}")),
        ({"sourcePattern": "${user}.#"}, receiver("u.x"), 0, None),
        # security.md P-45
        ({"sources": "*", "allowWaypointLinks": False}, receiver("a", capabilities=["qd.waypoint.1"]), 0,
         ("waypoint", UNAUTHORIZED, f"receiver link 'a' {FOR} Waypoint capability not permitted")),
        ({"targets": "*", "allowFallbackLinks": False}, sender("a", capabilities=["x", "qd.fallback"]), 0,
         ("fallback", UNAUTHORIZED, f"sender link 'a' {FOR} Fallback capability not permitted")),
        ({"targets": "*", "allowFallbackLinks": False}, sender("a", capabilities=["qd.waypoint"]), 0, None),
        ({"targets": "*"}, sender("a", capabilities=["qd.waypoint", "qd.fallback"]), 0, None),
        # Capabilities wanted of a dynamic terminus lead to link routes, so they need permission.
        ({"allowDynamicSource": True, "sources": "b"}, receiver(dynamic=True, wanted="b"), 0, None),
        ({"allowDynamicSource": True}, receiver(dynamic=True, wanted="b"), 0,
         ("dynamic_source", UNAUTHORIZED, f"receiver dynamic source {FOR},")),
        ({"allowAnonymousSender": True}, sender(dynamic=True, wanted="b"), 0,
         ("anonymous_sender", UNAUTHORIZED, f"anonymous sender {FOR}")),
    ],
)  # fmt: skip
def test_link_is_allowed_or_denied_by_rules(settings, link, links, denied):
    decision = decide_link(rules(**settings), link, WHO, links)
    assert decision == (None if denied is None else LinkDenied(*denied))


def test_link_count_is_checked_first():
    decision = decide_link(rules(maxReceivers=1), receiver(dynamic=True), WHO, 1)
    assert decision is not None
    assert decision.reason == "receivers"


def test_denial_without_user_is_logged_as_null():
    decision = decide_link(rules(), receiver("a"), LinkOwner(None, "::1", None))
    assert decision is not None
    assert decision.text == "receiver link 'a' for user '(null)', rhost '::1', vhost '' based on link source name"
