"""Types router.config.*: configured objects and their numbers (management.md 6.7)."""

import pytest

from sluice.router.testing.interworker import set_address
from tests.peer.management import PREFIX


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("router.config.address", {}),
        ("router.config.linkRoute", {"direction": "in"}),
        ("router.config.binding", {"exchangeName": "E", "nextHopAddress": "h"}),
    ],
)
def test_pattern_tokens_are_bounded(router, kind, body):
    key = "bindingKey" if kind.endswith("binding") else "pattern"
    status, text = router.ask("CREATE", {**body, key: ".".join("a" * 101)}, type=PREFIX + kind).outcome
    assert (status, "invalid" in text) == (400, True)
    assert router.ask("CREATE", {**body, key: ".".join("a" * 100)}, type=PREFIX + kind).status == 201


# management.md 6.7.
def test_configured_addresses_are_shown(router):
    one, two, three = router.query("router.config.address")
    assert (one["identity"], one["name"], one["prefix"], one["pattern"]) == ("1", "address/0", "closest", None)
    assert (one["distribution"], one["priority"], one["waypoint"], one["fallback"]) == ("closest", 7, False, False)
    assert (two["name"], two["pattern"], two["prefix"], two["fallback"], two["priority"]) == (
        "fb",
        "fb.*",
        None,
        True,
        -1,
    )
    assert (three["waypoint"], three["ingressPhase"], three["egressPhase"]) == (True, 0, 1)
    read = router.ask("READ", type=PREFIX + "router.config.address", identity="2")
    assert read.body == two
    assert router.ask("READ", type="router.config.address", name="fb").body == two
    nothing = (400, "No name or identity provided")
    for operation in ("READ", "DELETE"):
        assert router.ask(operation, type=PREFIX + "router.config.address").outcome == nothing
        assert router.ask(operation, type=PREFIX + "router.config.address", name="no").outcome == (404, "Not Found")


def test_exchanges_and_bindings_are_shown(router):
    (exchange,) = router.query("router.config.exchange")
    assert (exchange["name"], exchange["identity"], exchange["address"], exchange["matchMethod"]) == (
        "E", "4", "ex", "amqp",
    )  # fmt: skip
    assert (exchange["bindingCount"], exchange["alternateAddress"], exchange["alternatePhase"]) == (1, None, None)
    (binding,) = router.query("router.config.binding")
    assert (binding["identity"], binding["name"], binding["bindingKey"]) == ("5", "binding/0", "a.b")
    assert router.ask("READ", type=PREFIX + "router.config.binding").outcome == (
        400, "No binding name or identity provided",
    )  # fmt: skip
    assert router.ask("READ", type=PREFIX + "router.config.binding", name="nope").outcome == (404, "Not Found")
    counters = router.core.exchanges.exchange_counters("E")
    set_address(router.region, 0, counters, ingress=5, egress=3, redirected=1)
    set_address(router.region, 1, counters, ingress=2, egress=2)
    (exchange,) = router.query("router.config.exchange")
    names = ("receivedCount", "forwardedCount", "droppedCount", "divertedCount")
    assert [exchange[name] for name in names] == [7, 5, 2, 1]
    set_address(router.region, 1, router.core.exchanges.binding_counters("binding/0"), ingress=9)
    assert router.query("router.config.binding", "matchedCount") == [{"matchedCount": 9}]


def test_link_numbers_follow_configuration(router):
    assert router.link(router.connection()) == 6
