"""Matching of address settings (routing-semantics.md 14)."""

import pytest

from tests.peer import message
from tests.peer.management import Management, ManagementStatusError
from tests.system.fixtures import Connect, Fresh, Start, pair, pass_one
from tests.system.router import Section, listener, poll

DISTRIBUTIONS: list[tuple[str, str, str]] = [
    ("pattern", "a.b.c.d", "closest"),
    ("pattern", "a.x.d", "closest"),
    ("pattern", "a/*/#.d", "closest"),
    ("pattern", "#.b.c.d", "multicast"),
    ("pattern", "a.*.d", "multicast"),
    ("pattern", "*/b/c/d", "multicast"),
    ("prefix", "P", "multicast"),
    ("pattern", "p/*/x", "multicast"),
    ("prefix", "/lead/trail/", "closest"),
    ("prefix", "deep", "multicast"),
    ("prefix", "deep.er", "closest"),
    ("pattern", "lit/*/end", "multicast"),
    ("pattern", "lit/#", "closest"),
]
SECTIONS: list[Section] = [
    *(("address", {kind: text, "distribution": how}) for kind, text, how in DISTRIBUTIONS),
    ("address", {"prefix": "noisy", "priority": 7}),
]


def distribution_of(connect: Connect, management: Management, address: str) -> str:
    """Return the distribution shown by the address record of a consumer's address."""
    connect().receiver(address)
    return str(management.one("router.address", key="M0" + address)["distribution"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        # routing-semantics.md N-7
        ("a.b.c.d", "closest"),
        ("b.c.d", "multicast"),
        ("f.a.b.c.d", "multicast"),
        ("a.c.d", "multicast"),
        ("a/c/c/d", "closest"),
        ("a/x/z/z/d", "closest"),
        ("a/x/d", "closest"),
        ("a.x.e", "balanced"),
        ("m.b.c.d", "multicast"),
        # routing-semantics.md N-1
        ("P", "multicast"),
        ("P/x", "multicast"),
        ("P.x", "multicast"),
        ("P/x/y", "multicast"),
        ("Px", "balanced"),
        ("p", "balanced"),
        # routing-semantics.md N-2
        ("p.a/x", "multicast"),
        ("p//x", "multicast"),
        ("p/a/b/x", "balanced"),
        ("lead/trail/x", "closest"),
        ("lead.trail", "closest"),
        # routing-semantics.md N-3
        ("deep.er", "closest"),
        ("deep.er.x", "closest"),
        ("deep.eg", "multicast"),
        ("deep", "multicast"),
        ("lit/a/end", "multicast"),
        ("lit/a/other", "closest"),
        ("lit", "closest"),
    ],
)
def test_address_matching_finds_distribution(
    connect: Connect, management: Management, address: str, expected: str
) -> None:
    assert distribution_of(connect, management, address) == expected


def test_multicast_setting_delivers_to_both_consumers(connect: Connect) -> None:
    first, second = connect().receiver("P/multi", 5), connect().receiver("P/multi", 5)
    connect().sender("P.multi", credit=False)
    connect().sender("P/multi").send(message.message("x"), settled=True)
    first.next()
    second.next()


def test_local_addresses_have_no_settings(connect: Connect, management: Management) -> None:
    """routing-semantics.md N-6: `_local/multicast/...` is balanced like any without setting."""
    address = "_local/multicast/x"
    first, second = connect().receiver(address, 5), connect().receiver(address, 5)
    sender = connect().sender(address)
    for number in range(2):
        outcome = sender.send(message.message(number))
        (first, second)[number].next().settle()
        assert sender.outcome(outcome).name == "accepted"
    assert (first.taken, second.taken) == (1, 1)
    assert management.one("router.address", key="Lmulticast/x")["distribution"] == "balanced"


def test_priority_setting_is_shown(connect: Connect, management: Management) -> None:
    connect().receiver("noisy.one")
    assert management.one("router.address", key="M0noisy.one")["priority"] == 7


CREATE = "router.config.address"


@pytest.mark.parametrize(
    ("attributes", "description"),
    [
        ({"prefix": "both", "pattern": "both"}, "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        ({"distribution": "closest"}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        ({"prefix": "./"}, "Prefix invalid - no tokens"),
        ({"prefix": "multicast"}, "Already exists"),
        ({"pattern": "multicast/#"}, "Already exists"),
        ({"pattern": "multicast.#.#"}, "Already exists"),
        ({"prefix": "n8", "priority": 10}, "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"),
        ({"prefix": "n12", "ingressPhase": 1}, "Phase values must be between 0 and 9"),
        (
            {"prefix": "n10", "enableFallback": True, "waypoint": True},
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
    ],
)
def test_invalid_setting_is_refused(
    management: Management, fresh: Fresh, attributes: dict[str, object], description: str
) -> None:
    with pytest.raises(ManagementStatusError) as refused:
        management.create(CREATE, fresh("setting"), **attributes)
    assert (refused.value.code, refused.value.description) == (400, description)


@pytest.mark.parametrize("name", ["fallback", "enableFallback"])
def test_fallback_setting_accepts_both_names(management: Management, fresh: Fresh, name: str) -> None:
    prefix = fresh("fb").replace("/", "")
    management.create(CREATE, prefix, prefix=prefix, **{name: True})
    assert management.one(CREATE, name=prefix)["fallback"] is True


def test_created_setting_applies_to_existing_addresses(connect: Connect, management: Management, fresh: Fresh) -> None:
    """Settings apply to addresses in use as well; 1.19 changed later ones only (routing-semantics.md A-10)."""
    prefix = fresh("live").replace("/", "")
    earlier, _receiver = pair(connect, f"{prefix}/earlier")
    management.create(CREATE, prefix, prefix=prefix, distribution="multicast")
    assert distribution_of(connect, management, f"{prefix}/later") == "multicast"

    def shown_distribution(name: str) -> str:
        return str(management.one("router.address", key=f"M0{prefix}/{name}")["distribution"])

    poll(lambda: shown_distribution("earlier") == "multicast", "the address in use is treated anew")
    management.delete(CREATE, prefix)
    poll(lambda: (shown_distribution("earlier"), shown_distribution("later")) == ("balanced", "balanced"), "as before")
    assert distribution_of(connect, management, f"{prefix}/latest") == "balanced"
    pass_one(earlier, _receiver)


def test_setting_with_prefix_and_pattern_in_file_is_ignored(start: Start) -> None:
    router = start([listener(), ("address", {"prefix": "x", "pattern": "y", "distribution": "multicast"})])
    router.wait_log(r"(?i)prefix.*pattern|pattern.*prefix")
