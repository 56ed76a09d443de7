"""Plans: the changes from one configuration to another. Applying them must give the new configuration."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.config.diff import diff
from sluice.router.config.load import load_text


def section(kind, /, **attributes):
    lines = [f"{key}: {value}" for key, value in attributes.items()]
    return "\n".join([f"{kind} {{", *lines, "}", ""])


def plan(old, new):
    return diff(load_text("old.conf", old), load_text("new.conf", new))


def summary(plan):
    """Return (kind, title, {attribute: (old, new, class)}) of each change."""
    return [(change.kind, change.title(), dict(change.attributes)) for change in plan.changes]


def test_equal_configurations_give_empty_plan():
    text = section("listener", port=0) + section("address", prefix="a") + section("exchange", address="e")
    found = plan(text, text)
    assert (found.changes, bool(found), found.effect, found.render()) == ((), False, None, "Nothing changes.")


def test_comments_order_and_explicit_defaults_change_nothing():
    old = section("address", prefix="a") + section("address", prefix="b") + section("listener", port=0)
    new = "# note\n" + section("listener", port=0, linkCapacity=250, role="normal").replace("linkCapacity: 250\n", "")
    new += section("address", prefix="b", distribution="balanced") + section("address", pattern="/a/#")
    found = plan(old, new)
    assert summary(found) == [("update", "address (prefix a)", {"prefix": ("a", None, "live"),
                                                                "pattern": (None, "/a/#", "live")})]  # fmt: skip


def test_attribute_changes_have_effects():
    old = section("router", id="A", workers=2) + section("listener", port=0, name="n")
    new = section("router", id="B", defaultDistribution="closest", workerThreads=2)
    new += section("listener", port=5000, name="n", maxFrameSize=1000) + section("log", module="SERVER", enable="none")
    found = plan(old, new)
    assert summary(found) == [
        ("update", "log SERVER", {"enable": (None, "none", "live")}),
        (
            "update",
            "router",
            {"id": ("A", "B", "restart"), "defaultDistribution": ("balanced", "closest", "live")},
        ),
        (
            "update",
            "listener 'n'",
            {"port": ("0", "5000", "live"), "maxFrameSize": (16384, 1000, "reconnect")},
        ),
    ]
    assert [change.effect for change in found.changes] == ["live", "restart", "reconnect"]
    assert found.effect == "restart"
    reached = found.reached()
    assert (reached.router.id, reached.router.identity, reached.router.default_distribution) == (
        "A",
        "router/A",
        "closest",
    )
    assert summary(diff(reached, load_text("new.conf", new))) == [("update", "router", {"id": ("A", "B", "restart")})]


def test_generated_values_are_kept():
    old = load_text("old.conf", section("address", prefix="a"))
    found = diff(old, load_text("new.conf", section("address", prefix="x") + section("address", prefix="a")))
    assert summary(found) == [("create", "address (prefix x)", {"prefix": (None, "x", "live")})]
    assert found.new.router == old.router
    assert [(each.prefix, each.identity, each.name) for each in found.new.addresses] == [
        ("x", "address/1", "address/1"),
        ("a", "address/0", "address/0"),
    ]


def test_removed_router_id_needs_restart():
    old = load_text("old.conf", section("router", id="A"))
    found = diff(old, load_text("new.conf", section("router", mode="standalone")))
    assert summary(found) == [("update", "router", {"id": ("A", None, "restart")})]
    assert found.reached().router.id == "A"
    # The change stays due until a restart, and the generated router id is not taken as a given one.
    assert summary(diff(found.reached(), found.new)) == summary(found)


def test_added_router_id_needs_restart():
    old = load_text("old.conf", "")
    found = diff(old, load_text("new.conf", section("router", id="B")))
    assert summary(found) == [("update", "router", {"id": (None, "B", "restart")})]
    assert found.reached().router.id == old.router.id
    assert "id" in found.reached().router.generated


def test_named_entities_are_matched_by_name():
    old = section("address", name="a", prefix="x") + section("address", prefix="y") + section("address", prefix="z")
    new = section("address", name="a", prefix="x2") + section("address", name="b", prefix="y")
    assert summary(plan(old, new)) == [
        ("delete", "address (prefix z)", {"prefix": ("z", None, "live")}),
        ("update", "address 'a'", {"prefix": ("x", "x2", "live")}),
        ("update", "address (prefix y)", {"name": (None, "b", "live")}),
    ]


def test_bindings_follow_their_exchange_when_numbers_change():
    binding = section("binding", exchangeName="exchange/0", nextHopAddress="n")
    old = load_text("old.conf", section("exchange", address="e") + binding)
    text = section("exchange", address="f") + section("exchange", address="e")
    moved = diff(old, load_text("new.conf", text + binding.replace("exchange/0", "exchange/1")))
    assert summary(moved) == [("create", "exchange (f)", {"address": (None, "f", "live")})]
    assert [each.name for each in moved.new.exchanges] == ["exchange/1", "exchange/0"]
    # Now the unchanged text refers to the other exchange.
    other = diff(old, load_text("new.conf", text + binding))
    assert [(change.kind, change.type) for change in other.changes] == [
        ("delete", "router.config.binding"),
        ("create", "router.config.exchange"),
        ("create", "router.config.binding"),
    ]
    assert other.new.bindings[0].exchange_name == other.new.bindings[0].values["exchangeName"] == "exchange/1"


def test_changes_are_ordered_by_dependency():
    old = section("exchange", address="e", name="E") + section("binding", exchangeName="E", nextHopAddress="n")
    old += section("listener", port=0)
    new = section("listener", port=1) + section("exchange", address="f", name="F")
    new += section("binding", exchangeName="F", nextHopAddress="n")
    assert [change.title() for change in plan(old, new).changes] == [
        "listener *:0",
        "binding (E: # to n)",
        "exchange 'E'",
        "exchange 'F'",
        "binding (F: # to n)",
        "listener *:1",
    ]


def test_plan_is_rendered_as_text_and_maps():
    old = section("router", id="A") + section("address", prefix="a") + section("listener", port=0)
    new = section("router", id="A", workers=1) + section("address", prefix="a", waypoint="yes")
    found = plan(old, new + section("listener", port=0, idleTimeoutSeconds=9))
    workers = found.changes[0].attributes["workerThreads"][0]
    assert workers is None
    assert found.render().splitlines() == [
        "3 changes:",
        "",
        "~ router",
        "    workerThreads: (none) -> 1  [restart]",
        "",
        "~ address (prefix a)",
        "    waypoint: no -> yes  [live]",
        "",
        "~ listener *:0",
        "    idleTimeoutSeconds: 16 -> 9  [reconnect]",
        "",
        "1 change takes effect at once.",
        "1 change takes effect for connections opened later.",
        "1 change takes effect after a restart.",
    ]
    assert found.as_maps()[1] == {
        "kind": "update",
        "type": "org.apache.qpid.dispatch.router.config.address",
        "identity": "address/0",
        "title": "address (prefix a)",
        "effect": "live",
        "attributes": {"waypoint": {"old": False, "new": True, "effect": "live"}},
    }


@pytest.mark.parametrize("position", [0, 500, 1000])
def test_added_section_among_many_is_found(position):
    many = [section("address", prefix=f"a{number}") for number in range(1000)]
    more = [*many[:position], section("address", prefix="new"), *many[position:]]
    assert [change.title() for change in plan("".join(many), "".join(more)).changes] == ["address (prefix new)"]


_SMALL = st.integers(0, 3)
_ADDRESS = st.builds(
    lambda kind, text, distribution, priority: section(
        "address", **{kind: f"p{text}"}, distribution=distribution, priority=priority
    ),
    st.sampled_from(["prefix", "pattern"]),
    _SMALL,
    st.sampled_from(["multicast", "closest"]),
    _SMALL,
)
_NAMED = st.builds(lambda n, text: section("address", name=f"n{n}", prefix=f"q{text}"), _SMALL, _SMALL)
_LISTENER = st.builds(
    lambda port, capacity: section("listener", port=port, linkCapacity=capacity, openProperties='{\n"a": 1\n}'),
    _SMALL,
    _SMALL,
)
_EXCHANGE = st.builds(
    lambda text, method: section("exchange", address=f"e{text}", matchMethod=method),
    _SMALL,
    st.sampled_from(["amqp", "mqtt"]),
)
_BINDING = st.builds(
    lambda n, key: section("binding", exchangeName=f"exchange/{n}", bindingKey=f"k{key}", nextHopAddress="n"),
    _SMALL,
    _SMALL,
)
_LOG = st.builds(
    lambda module, level: section("log", module=module, enable=level),
    st.sampled_from(["SERVER", "ROUTER", "DEFAULT"]),
    st.sampled_from(["info", "debug+"]),
)
_ROUTER = st.builds(
    lambda id_, workers: section("router", workers=workers + 1, **({"id": f"R{id_}"} if id_ else {})), _SMALL, _SMALL
)


@st.composite
def configurations(draw):
    """Return a configuration of a few sections. Sections that the router would refuse, because a name is taken, are
    skipped."""
    unique: dict[str, set[str]] = {"listener": set(), "log": set(), "name": set()}
    sections = []
    for text in draw(st.lists(st.one_of(_ADDRESS, _NAMED, _LISTENER, _EXCHANGE, _BINDING, _LOG), max_size=12)):
        kind = "name" if "\nname: " in text else text.split(" ")[0]
        mark = text.split("\n")[1]
        if mark not in unique.get(kind, ()):
            sections.append(text)
        if kind in unique:
            unique[kind].add(mark)
    sections += draw(st.lists(_ROUTER, max_size=1))
    return load_text("x.conf", "".join(draw(st.permutations(sections))))


def content(configuration):
    """Return the entities without order and lines."""
    return Counter(
        (each.type, each.name, each.identity, each.named, repr(sorted(each.given.items())))
        for each in configuration.entities()
    )


@settings(max_examples=300, deadline=None)
@given(configurations(), configurations())
def test_changes_lead_to_new_configuration(old, new):
    found = diff(old, new)
    assert content(found.applied()) == content(found.new)
    assert diff(found.new, new).changes == ()
    assert diff(found.applied(), new).changes == ()
    # The plan's new configuration is the given one, except for generated values.
    assert Counter(type(each) for each in found.new.entities()) == Counter(type(each) for each in new.entities())
    assert Counter((*each.tokens, each.distribution) for each in found.new.addresses) == Counter(
        (*each.tokens, each.distribution) for each in new.addresses
    )
    identities = [each.identity for each in found.new.entities()]
    assert len(set(identities)) == len(identities)
    addresses = {each.name: each.address for each in found.new.exchanges}
    meant = {each.name: each.address for each in new.exchanges}
    assert Counter((addresses[each.exchange_name], each.binding_key) for each in found.new.bindings) == Counter(
        (meant[each.exchange_name], each.binding_key) for each in new.bindings
    )


@settings(max_examples=100, deadline=None)
@given(configurations())
def test_configuration_equals_itself(configuration):
    assert diff(configuration, configuration).changes == ()
