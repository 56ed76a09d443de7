"""Core entities of a configuration: addresses, auto links, exchanges and bindings."""

import pytest

from sluice.router.config.diff import diff
from sluice.router.config.load import load_text
from tests.unit.router.config.sections import LONG, address, errors, section


def test_address_section_is_read():
    found = address("prefix: a/b", "distribution: multicast", "priority: 9", "presettledOverflow: dropOldest")
    assert (found.prefix, found.pattern, found.distribution, found.priority) == ("a/b", None, "multicast", 9)
    assert (found.ingress_phase, found.egress_phase, found.fallback) == (0, 0, False)
    assert (found.presettled_overflow, found.identity) == ("dropOldest", "address/0")
    assert address("pattern: a.#", "enableFallback: yes").fallback


@pytest.mark.parametrize(
    ("lines", "phases"),
    [
        ([], (0, 0)),
        (["waypoint: yes"], (0, 1)),
        (["ingressPhase: 2", "egressPhase: 3"], (2, 3)),
        (["waypoint: yes", "ingressPhase: 2", "egressPhase: 0"], (2, 0)),
    ],
)
def test_address_phases_depend_on_waypoint(lines, phases):
    found = address("prefix: a", *lines)
    assert (found.ingress_phase, found.egress_phase) == phases


@pytest.mark.parametrize(
    ("lines", "module", "text"),
    [
        (
            ["prefix: a", "pattern: b"],
            "ROUTER",
            "Cannot set both 'prefix' and 'pattern': ignoring configured address a, b",
        ),
        ([], "ROUTER", "Must set either 'prefix' or 'pattern' attribute: ignoring configured address"),
        (["prefix: a", "ingressPhase: 1"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (["prefix: a", "egressPhase: 1"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (["prefix: a", "ingressPhase: 0", "egressPhase: 10"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (["prefix: a", "ingressPhase: -1", "egressPhase: 0"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (
            ["prefix: a", "priority: 10"],
            "ROUTER_CORE",
            "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY",
        ),
        (
            ["prefix: a", "enableFallback: yes", "waypoint: yes"],
            "ROUTER_CORE",
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
        (["prefix: ./"], "ROUTER_CORE", "Prefix invalid - no tokens"),
        (["pattern: /"], "ROUTER_CORE", "Pattern invalid - no tokens"),
    ],
)
def test_invalid_address_is_ignored_with_warning(lines, module, text):
    kept = section("address", "prefix: kept")
    configuration = load_text("x.conf", "\n" + section("address", *lines) + kept)
    assert [(each.prefix, each.identity) for each in configuration.addresses] == [("kept", "address/1")]
    assert [each for each, _ in configuration.warnings] == [module]
    assert text in configuration.warnings[0][1]
    assert configuration.warnings[0][1].endswith("(x.conf:2)")


def test_address_negative_priority_is_absent():
    assert address("prefix: a", "priority: -1").priority is None


def test_address_with_empty_prefix_is_ignored():
    configuration = load_text("x.json", '[["address", {"prefix": ""}]]')
    assert configuration.addresses == ()
    assert "Prefix must be a non-empty string type" in configuration.warnings[0][1]


EXCHANGE = section("exchange", "name: E", "address: e") + section("exchange", "address: f", "matchMethod: mqtt")


def test_exchanges_and_bindings_are_read():
    # A binding may precede its exchange.
    text = section("binding", "exchangeName: E", "nextHopAddress: n") + EXCHANGE
    lines = ["name: B", "exchangeName: exchange/1", "bindingKey: a/#", "nextHopAddress: m", "nextHopPhase: 2"]
    text += section("binding", *lines)
    configuration = load_text("x.conf", text)
    assert configuration.warnings == []
    first, second = configuration.exchanges
    assert (first.name, first.identity, first.address, first.phase) == ("E", "exchange/0", "e", 0)
    assert (second.name, second.match_method, second.alternate_address) == ("exchange/1", "mqtt", None)
    default, named = configuration.bindings
    assert (default.exchange_name, default.binding_key, default.next_hop_phase) == ("E", "#", 0)
    assert (default.name, named.name, named.binding_key, named.next_hop_phase) == ("binding/0", "B", "a/#", 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (section("exchange", "address: e"), "duplicate exchange address"),
        (section("exchange", "address: x", "phase: 10"), "phase must be in the range 0-9"),
        (section("exchange", "address: x", "alternatePhase: -1"), "phase must be in the range 0-9"),
        (section("binding", "exchangeName: none", "nextHopAddress: n"), "Named exchange does not exist"),
        (
            section("binding", "exchangeName: exchange/1", "bindingKey: a/#/b", "nextHopAddress: n"),
            "The binding key pattern is invalid",
        ),
        (
            section("binding", "exchangeName: E", "nextHopAddress: n", "nextHopPhase: 10"),
            "phase must be in the range 0-9",
        ),
        (
            section("binding", "exchangeName: E", "nextHopAddress: x", "bindingKey: k"),
            "Next hop for key already exists",
        ),
    ],
)
def test_invalid_exchanges_and_bindings_are_ignored(text, reason):
    before = EXCHANGE + section("binding", "exchangeName: E", "nextHopAddress: x", "bindingKey: k")
    configuration = load_text("x.conf", before + text)
    assert (len(configuration.exchanges), len(configuration.bindings)) == (2, 1)
    assert len(configuration.warnings) == 1
    module, warning = configuration.warnings[0]
    assert module == "ROUTER_CORE"
    assert warning.endswith(f": {reason} (x.conf:{before.count(chr(10)) + 1})")


def test_exchange_without_address_is_refused():
    assert errors(section("exchange", "name: x")) == [
        (1, f"{LONG}router.config.exchange: Missing required attribute 'address'")
    ]
    configuration = load_text("x.json", '[["exchange", {"address": ""}]]')
    assert "exchange address is mandatory" in configuration.warnings[0][1]


def auto_link_section(*lines):
    return "\n".join(["autoLink {", "address: q", *lines, "}", ""])


def auto_link(*lines):
    return load_text("x.conf", auto_link_section(*lines)).auto_links[0]


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
    configuration = load_text("x.conf", auto_link_section("direction: in", *lines))
    assert configuration.auto_links == ()
    assert configuration.warnings == [("ROUTER_CORE", f"Error configuring linkRoute: {reason} (x.conf:1)")]


def test_auto_link_changes_are_live_and_ignore_numbers():
    one, two = auto_link_section("direction: in", "connection: a"), auto_link_section("direction: out", "connection: a")
    plan = diff(load_text("old.conf", one), load_text("new.conf", two + one))
    assert [(change.kind, change.title(), change.effect) for change in plan.changes] == [
        ("create", "autoLink (out q)", "live")
    ]
    plan = diff(load_text("old.conf", one), load_text("new.conf", one.replace("}", "externalAddress: e\n}")))
    assert [(change.kind, change.effect) for change in plan.changes] == [("update", "live")]
