"""Mobile addresses (inter-router.md 9.1 to 9.4)."""

from sluice.router.log import ERROR, WARNING
from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.messages import Advertisement, MobileChange, MobileRequest, MobileState, Summary
from sluice.supervisor.network.protocol.outputs import KeysChanged
from sluice.supervisor.network.protocol.timers import ProtocolLimits
from tests.unit.supervisor.network.protocol.driven_engine import DrivenEngine


def with_neighbour() -> DrivenEngine:
    a = DrivenEngine()
    a.neighbour(1)
    a.link_state(1, "B", 1, {"A": 1})
    a.run(0.5)
    a.clear()
    return a


def receive_change(
    a: DrivenEngine, seq: int, added: list[str], removed: list[str] | None = None, router: str = "B"
) -> None:
    tail = messages.encode_mobile_change(router, seq, dict.fromkeys(added, 3), removed or [])
    a.receive(1, tail, [router] if router == "B" else [router, "B"])


def test_first_change_is_sent_soon_then_one_per_second() -> None:
    a = with_neighbour()
    a.engine.announce("M0a", 3, a.now)
    a.engine.announce("Clr", 4, a.now)
    a.run(0.06)
    assert [(sent.to, sent.message) for sent in a.of(MobileChange)] == [
        ("_topo/0/all/qdrouter.ma", MobileChange("A", 1, 1, {"M0a": 3, "Clr": 4}, ()))
    ]
    assert [sent.message for sent in a.sent][-1] == Advertisement("A", 1, 100, 1, 1)
    a.clear()
    for number in range(50):
        a.engine.announce(f"M0x{number}", 3, a.now)
        a.hello(1)
        a.run(0.04)
    a.run(1)
    sent = [sent.message for sent in a.of(MobileChange)]
    assert sum(len(message.added) for message in sent if isinstance(message, MobileChange)) == 50
    assert len(sent) == 2


def test_change_undone_within_interval_is_not_sent() -> None:
    a = with_neighbour()
    a.engine.announce("M0a", 3, a.now)
    a.engine.withdraw("M0a", a.now)
    a.run(2)
    assert a.of(MobileChange) == []
    a.engine.announce("M0b", 3, a.now)
    a.run(2)
    a.clear()
    a.engine.withdraw("M0b", a.now)
    a.engine.announce("M0b", 3, a.now)
    a.engine.withdraw("M0never", a.now)
    a.run(2)
    assert a.of(MobileChange) == []


def test_unchanged_address_is_not_announced() -> None:
    a = with_neighbour()
    a.engine.announce("M0a", 3, a.now)
    a.run(1)
    a.engine.announce("M0a", 3, a.now)
    a.clear()
    a.run(2)
    assert a.of(MobileChange) == []


def test_mobile_request_is_answered_with_announced_state() -> None:
    a = with_neighbour()
    a.engine.announce("M0a", 1, a.now)
    a.engine.announce("M0b", 2, a.now)
    a.run(1)
    a.engine.withdraw("M0a", a.now)
    a.engine.announce("M0c", 3, a.now)
    a.clear()
    a.receive(1, messages.encode_mobile_request("B", 0, messages.to_router_mobile("A")))
    assert [(sent.to, sent.message) for sent in a.sent] == [
        ("amqp:/_topo/0/B/qdrouter.ma", MobileState("A", 1, 1, {"M0a": 1, "M0b": 2}))
    ]
    a.clear()
    a.receive(1, messages.encode_mobile_request("B", 1, messages.to_router_mobile("A")))
    a.receive(1, messages.encode_mobile_request("X", 0, messages.to_router_mobile("A")), ["X", "B"])
    assert a.sent == []


def test_updates_in_sequence_are_applied_and_copies_ignored() -> None:
    a = with_neighbour()
    receive_change(a, 1, ["M0a", "M0b"])
    receive_change(a, 2, ["M0c"], ["M0a", "M0unknown"])
    a.run(3)
    receive_change(a, 1, ["M0a", "M0b"])
    receive_change(a, 2, ["M0c"], ["M0a"])
    assert a.changes == [
        KeysChanged(1, {"M0a": 3, "M0b": 3}, ()),
        KeysChanged(1, {"M0c": 3}, ("M0a",)),
    ]
    assert a.of(MobileRequest) == []
    assert dict(a.engine.keys(1)) == {"M0b": 3, "M0c": 3}


def test_unfilled_gap_is_requested_repeatedly() -> None:
    a = with_neighbour()
    receive_change(a, 1, ["M0a"])
    receive_change(a, 3, ["M0c"])
    assert [(sent.to, sent.message) for sent in a.sent] == [("amqp:/_topo/0/B/qdrouter.ma", MobileRequest("A", 1, 1))]
    receive_change(a, 4, ["M0d"])  # 1.19 would apply this change
    assert dict(a.engine.keys(1)) == {"M0a": 3}
    a.hello(1)
    a.run(2.5)
    a.hello(1)
    receive_change(a, 5, ["M0e"])
    assert len(a.of(MobileRequest)) == 2
    a.receive(1, messages.encode_mobile_state("B", 5, {"M0a": 3, "M0c": 3}, messages.to_router_mobile("A")))
    assert dict(a.engine.keys(1)) == {"M0a": 3, "M0c": 3}
    receive_change(a, 6, ["M0f"])
    assert dict(a.engine.keys(1)) == {"M0a": 3, "M0c": 3, "M0f": 3}


def test_higher_mobile_sequence_in_advertisement_is_requested() -> None:
    a = with_neighbour()
    a.advertise(1, mobile_seq=4)
    assert [sent.message for sent in a.of(MobileRequest)] == [MobileRequest("A", 1, 0)]
    a.receive(1, messages.encode_mobile_state("B", 4, {"M0a": None, "Clr": 4}, messages.to_router_mobile("A")))
    assert a.changes == [KeysChanged(1, {"M0a": None, "Clr": None}, ())]  # fewer or more hints than keys
    a.clear()
    a.advertise(1, mobile_seq=4)
    assert a.of(MobileRequest) == []


def test_absolute_state_reports_only_differences() -> None:
    a = with_neighbour()
    receive_change(a, 1, ["M0a", "M0b"])
    a.clear()
    a.receive(1, messages.encode_mobile_state("B", 7, {"M0b": 1, "M0c": 2}, messages.to_router_mobile("A")))
    assert a.changes == [KeysChanged(1, {"M0c": 2}, ("M0a",))]
    assert a.engine.keys(1) == {"M0b": 3, "M0c": 2}  # an existing key keeps its treatment


def test_absolute_state_of_dispatch_counts_for_any_sequence() -> None:
    a = with_neighbour()
    a.receive(1, messages.encode_mobile_state("B", 9, {"M0a": 3}, messages.to_router_mobile("A")))
    a.receive(1, messages.encode_mobile_state("B", 4, {"M0b": 3}, messages.to_router_mobile("A")))
    assert a.engine.keys(1) == {"M0b": 3}
    receive_change(a, 5, ["M0c"])
    assert a.engine.keys(1) == {"M0b": 3, "M0c": 3}


def test_key_added_and_removed_by_one_update_is_absent() -> None:
    a = with_neighbour()
    receive_change(a, 1, ["M0a"], ["M0a"])
    assert a.changes == []
    receive_change(a, 2, ["M0b"])
    assert a.engine.keys(1) == {"M0b": 3}


def test_unknown_routers_have_no_addresses() -> None:
    a = with_neighbour()
    receive_change(a, 1, ["M0a"], router="X")
    assert a.changes == []


# inter-router-protocol.md 8.
def test_keys_are_limited_over_all_routers() -> None:
    a = DrivenEngine(limits=ProtocolLimits(keys=3))
    a.neighbour(1)
    a.neighbour(2, "C")
    receive_change(a, 1, ["M0a", "M0b"])
    a.receive(2, messages.encode_mobile_change("C", 1, {"M0c": 3, "M0d": 3}, []), "C")
    assert [line.text for line in a.log if "more than 3" in line.text] == [
        "Addresses of router C are ignored: the network has more than 3 addresses"
    ]
    receive_change(a, 2, [], ["M0a", "M0b"])
    a.receive(2, messages.encode_mobile_state("C", 2, {"M0c": 3, "M0d": 3}, messages.to_router_mobile("A")), "C")
    assert len(a.engine.keys(2)) == 2


def test_addresses_go_to_sluice_neighbour_with_instance() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.neighbour(2, "C", ours=True)
    a.run(0.5)
    a.clear()
    pushed = messages.encode_mobile_state("B", 4, {"M0a": 1}, messages.TO_NEIGHBOUR_MOBILE, 50)
    a.receive(1, pushed)
    a.receive(1, pushed)
    assert [(sent.link, sent.message) for sent in a.sent] == [(2, MobileState("B", 1, 4, {"M0a": 1}, 50))]
    old = messages.encode_mobile_state("B", 9, {"M0old": 1}, messages.TO_NEIGHBOUR_MOBILE, 49)
    a.receive(1, old)
    assert a.engine.keys(1) == {"M0a": 1}


def keys_of_40_octets(count: int) -> list[str]:
    return [f"M0{number:031}" for number in range(count)]


def test_large_change_is_announced_in_consecutive_parts() -> None:
    a = DrivenEngine(limits=ProtocolLimits(part_octets=400))
    a.neighbour(1)
    keys = keys_of_40_octets(25)
    for key in keys:
        a.engine.announce(key, 3, a.now)
    a.run(0.055)
    assert len(a.of(MobileChange)) == 1
    a.run(1)
    sent = [sent.message for sent in a.of(MobileChange)]
    assert [(each.mobile_seq, len(each.added)) for each in sent if isinstance(each, MobileChange)] == [
        (1, 10),
        (2, 10),
        (3, 5),
    ]
    assert list(a.engine.keys(0)) == keys
    a.clear()
    for key in keys[:12]:
        a.engine.withdraw(key, a.now)
    a.engine.announce("M0new", 3, a.now)
    a.run(2)
    sent = [sent.message for sent in a.of(MobileChange)]
    assert sent == [
        MobileChange("A", 1, 4, {}, tuple(keys[:10])),
        MobileChange("A", 1, 5, {"M0new": 3}, tuple(keys[10:12])),
    ]
    assert list(a.engine.keys(0)) == [*keys[12:], "M0new"]


def with_small_parts() -> DrivenEngine:
    a = DrivenEngine(limits=ProtocolLimits(part_octets=400))
    a.neighbour(1, ours=True)
    a.neighbour(2, "C", ours=True)
    a.run(0.5)
    a.clear()
    return a


def part(keys: list[str], number: int, parts: int, seq: int = 1, instance: int = 50) -> bytes:
    hints = dict.fromkeys(keys, 3)
    return messages.encode_mobile_state("B", seq, hints, messages.TO_NEIGHBOUR_MOBILE, instance, number, parts)


def test_addresses_of_router_go_to_sluice_neighbours_in_parts() -> None:
    a = with_small_parts()
    keys = keys_of_40_octets(25)
    for number in range(3):
        assert a.engine.keys_of("B") == {}
        assert a.sent == []
        a.receive(1, part(keys[10 * number : 10 * number + 10], number + 1, 3))
    assert list(a.engine.keys_of("B") or ()) == keys
    assert a.changes == [KeysChanged(1, dict.fromkeys(keys, 3), ())]
    assert [(sent.link, sent.message.part) for sent in a.sent if isinstance(sent.message, MobileState)] == [
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    a.clear()
    a.neighbour(3, "D", ours=True)
    a.receive(3, messages.encode_summary("D", 50, {}), "D")
    states = [sent.message for sent in a.of(MobileState) if sent.link == 3]
    assert [list(each.keys) for each in states if isinstance(each, MobileState)] == [keys[:10], keys[10:20], keys[20:]]


def test_mismatched_parts_are_no_state() -> None:
    a = with_small_parts()
    a.receive(1, part(["M0a"], 2, 2))
    a.receive(1, part(["M0a"], 1, 3))
    a.receive(1, part(["M0c"], 3, 3))
    a.receive(1, part(["M0b"], 2, 3))
    a.receive(1, part(["M0c"], 3, 3))
    assert a.engine.keys_of("B") == {}
    a.receive(1, part(["M0a"], 1, 2))
    a.receive(1, part(["M0b"], 2, 2, seq=2))
    assert a.engine.keys_of("B") == {}
    a.receive(1, part(["M0a"], 1, 2))
    a.down(1)
    a.neighbour(1, ours=True)
    a.receive(1, part(["M0b"], 2, 2))
    assert a.engine.keys_of("B") == {}
    a.receive(1, part(["M0a"], 0, 2))
    a.receive(1, part(["M0a"], 3, 2))
    assert sum("part is out of range" in line.text for line in a.log) == 2


def test_state_arriving_in_parts_is_not_requested() -> None:
    a = with_small_parts()
    tail = messages.encode_link_state("B", 50, 2, [("A", 1)], messages.TO_NEIGHBOUR_LS, 0, mobile_seq=7)
    a.receive(1, tail)
    for number in range(10):
        a.receive(1, part([f"M0{number}"], number + 1, 11, seq=7))
        a.hello(1)
        a.run(0.2)
    assert a.of(MobileRequest) == []
    assert [sent for sent in a.of(Summary) if sent.link == 1] == []
    for _ in range(5):  # the last part does not arrive
        a.hello(1)
        a.run(1.0)
    assert [sent for sent in a.of(Summary) if sent.link == 1] != []


def test_parts_beyond_key_limit_are_ignored() -> None:
    a = DrivenEngine(limits=ProtocolLimits(keys=20))
    a.neighbour(1, ours=True)
    keys = keys_of_40_octets(100)
    for number in range(10):
        a.receive(1, part(keys[10 * number : 10 * number + 10], number + 1, 10))
    assert a.engine.keys_of("B") == {}
    assert [line.text for line in a.log if "more than 20" in line.text] == [
        "Addresses of router B are ignored: the network has more than 20 addresses"
    ]


def test_addresses_beyond_one_message_for_dispatch_are_logged() -> None:
    a = DrivenEngine(limits=ProtocolLimits(message_octets=200_000))
    a.neighbour(1)
    keys = [f"M0{number}" + 990 * "x" for number in range(200)]
    for key in keys:
        a.engine.announce(key, 3, a.now)
    a.run(1)
    a.clear()
    for _ in range(2):
        a.receive(1, messages.encode_mobile_request("B", 0, messages.to_router_mobile("A")))
    states = [sent.message for sent in a.of(MobileState)]
    assert all(isinstance(each, MobileState) and list(each.keys) == keys[: len(each.keys)] for each in states)
    assert [line.level for line in a.log] == [ERROR]
    assert "learn only some of them" in a.log[0].text
    assert {len(each.keys) for each in states if isinstance(each, MobileState)} == {68}
    assert max(len(octets) for _, octets in a.octets) < 200_000


def test_long_address_is_ignored() -> None:
    a = DrivenEngine(limits=ProtocolLimits(key_octets=40))
    a.neighbour(1)
    long, wide = "M0" + 39 * "x", "M0" + 13 * "€"
    receive_change(a, 1, ["M0a", long, wide, "M0" + 38 * "x"])
    assert a.engine.keys_of("B") == {"M0a": 3, "M0" + 38 * "x": 3}
    a.receive(1, messages.encode_mobile_state("B", 2, {"M0a": 3, long: 3}, messages.to_router_mobile("A")))
    assert a.engine.keys_of("B") == {"M0a": 3}
    assert [line.text for line in a.log if line.level == WARNING] == [
        "Addresses of router B with more than 40 octets are ignored"
    ]
