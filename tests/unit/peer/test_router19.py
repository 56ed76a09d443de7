"""Simulated router of version 1.19: its octets, compared with captures of the original, and its path computation."""

import functools

import pytest

from tests.peer.router19 import control, encoding, message_head
from tests.peer.router19.engine import Router19Engine, Router19Timers
from tests.peer.router19.paths import compute
from tests.peer.types import Int, Symbol

A_INSTANCE, B_INSTANCE = 1795221189, 1795221187
KEYS = {
    "Clr": 4,
    "Dlr": 4,
    "Elp.*.x.#": 4,
    "M0wp.1": 3,
    "MFfb.1": 3,
    "M0cl.1": 2,
    "M0mc.1": 1,
    "M0bal.1": 3,
}

OPEN_A = """005310c0fd0aa10141a1093132372e302e302e317000004000607fff7000001f404040f00000002e00000002b30000000f
414e4f4e594d4f55532d52454c41590000001271642e73747265616d696e672d6c696e6b73f00000002e00000002b30000
000f414e4f4e594d4f55532d52454c41590000001271642e73747265616d696e672d6c696e6b73d1000000740000000aa3
0770726f64756374a114717069642d64697370617463682d726f75746572a30776657273696f6ea106312e31392e30a30a
71642e636f6e6e2d69645401a31471642e696e7465722d726f757465722d636f73745403a31671642e616e6e6f74617469
6f6e732d76657273696f6e5401"""
CONTROL_RECEIVER = """
005312c0700ea11671646c696e6b2e4c675445706865516f3869466f4d31434150025000005328c0220b4043a30b6c696e
6b2d64657461636843424040404040a30971642e726f75746572005329c01e074043a30b6c696e6b2d6465746163684342
40a30971642e726f7574657240404344404040"""
CONTROL_SENDER = """
005312c0710ea11671646c696e6b2e6b62386e59345165664a4a684c307152014250025000005328c0220b4043a30b6c69
6e6b2d64657461636843424040404040a30971642e726f75746572005329c01e074043a30b6c696e6b2d64657461636843
4240a30971642e726f7574657240404344404040"""
CONTROL_ANSWER = """
005312c0700ea11671646c696e6b2e4c675445706865516f3869466f4d31434250025000005328c0220b4043a30b736573
73696f6e2d656e6443424040404040a30971642e726f75746572005329c01e074043a30b73657373696f6e2d656e644342
40a30971642e726f7574657240404344404040"""
DATA_RECEIVER = """
005312c07a0ea11671646c696e6b2e48475f5f2b49617747494d75465734434150025000005328c0270b4043a30b6c696e
6b2d64657461636843424040404040a30e71642e726f757465722d64617461005329c023074043a30b6c696e6b2d646574
616368434240a30e71642e726f757465722d6461746140404344404040"""
HELLO_A = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f41a30e782d6f7074
2d71642e7472616365c00601a103302f41005373d00000001f000000064040a114616d71703a2f5f6c6f63616c2f716468
656c6c6f404040005374d10000001300000002a1066f70636f6465a10548454c4c4f005377d1000000300000000aa10269
64a10141a10270765401a10461726561a10130a108696e7374616e6365716b00e6c5a1047365656e45"""
HELLO_B = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f42a30e782d6f7074
2d71642e7472616365c00601a103302f42005373d00000001f000000064040a114616d71703a2f5f6c6f63616c2f716468
656c6c6f404040005374d10000001300000002a1066f70636f6465a10548454c4c4f005377d10000003b0000000aa10269
64a10142a10270765401a10461726561a10130a108696e7374616e6365716b00e6c3a1047365656ed00000000700000001
a10141"""
LSR = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f41a30e782d6f7074
2d71642e7472616365c00601a103302f41005373d000000023000000064040a118616d71703a2f5f746f706f2f302f422f
7164726f75746572404040005374d10000001100000002a1066f70636f6465a1034c5352005377d10000001a00000006a1
026964a10141a10270765401a10461726561a10130"""
LSU = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f42a30e782d6f7074
2d71642e7472616365c00601a103302f42005373d000000023000000064040a118616d71703a2f5f746f706f2f302f412f
7164726f75746572404040005374d10000001100000002a1066f70636f6465a1034c5355005377d10000006f0000000ca1
026964a10142a10270765401a10461726561a10130a108696e7374616e6365716b00e6c3a1066c735f7365715400a1026c
73d10000003300000008a1026964a10142a10461726561a10130a1066c735f7365715400a1057065657273d10000000900
000002a101415405"""
RA = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f41a30e782d6f7074
2d71642e7472616365c00601a103302f41005373d000000025000000064040a11a616d71703a2f5f746f706f2f302f616c
6c2f7164726f75746572404040005374d10000001000000002a1066f70636f6465a1025241005377d1000000410000000c
a1026964a10141a10270765401a10461726561a10130a108696e7374616e6365716b00e6c5a1066c735f7365715401a10a
6d6f62696c655f7365715400"""
MAU = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f41a30e782d6f7074
2d71642e7472616365c00601a103302f41005373d00000001f000000034040a1175f746f706f2f302f616c6c2f7164726f
757465722e6d61005374d10000001100000002a3066f70636f6465a1034d4155005377d1000000a20000000ea3026964a1
0141a30270765501a30461726561a10130a30a6d6f62696c655f7365715501a30568696e7473d000000014000000085404
5404540454035403540254015403a303616464d00000004200000008a103436c72a103446c72a109456c702e2a2e782e23
a1064d3077702e31a1064d4666622e31a1064d30636c2e31a1064d306d632e31a1074d3062616c2e31a30364656cd00000
000400000000"""
MAR = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f42a30e782d6f7074
2d71642e7472616365c00601a103302f42005373d000000023000000034040a11b616d71703a2f5f746f706f2f302f412f
7164726f757465722e6d61005374d10000001100000002a3066f70636f6465a1034d4152005377d10000002600000008a3
026964a10142a30270765501a30461726561a10130a308686176655f7365715500"""
ABSOLUTE = """
005370d0000000050000000142005372c13004a310782d6f70742d71642e696e6772657373a103302f41a30e782d6f7074
2d71642e7472616365c00601a103302f41005373d000000023000000034040a11b616d71703a2f5f746f706f2f302f422f
7164726f757465722e6d61005374d10000001100000002a3066f70636f6465a1034d4155005377d1000000960000000ca3
026964a10141a30270765501a30461726561a10130a30a6d6f62696c655f7365715501a3056578697374d0000000420000
0008a103436c72a103446c72a109456c702e2a2e782e23a1064d3077702e31a1064d4666622e31a1064d30636c2e31a106
4d306d632e31a1074d3062616c2e31a30568696e7473d0000000140000000854045404540454035403540254015403"""
USER_NOTES = """
005372c1540aa306782d75736572a1027531a3027a7a5505a30b782d6f70742d71642e746fa103666f6fa310782d6f7074
2d71642e696e6772657373a103302f42a30e782d6f70742d71642e7472616365c00601a103302f42"""
PHASE_NOTES = """
005372c15508a30e782d6f70742d71642e70686173655401a30b782d6f70742d71642e746fa10477702e31a310
782d6f70742d71642e696e6772657373a103302f41a30e782d6f70742d71642e7472616365c00601a103302f41"""

VECTORS = {
    "open": (OPEN_A, lambda: encoding.open_octets("A", 1, "127.0.0.1", 3)),
    "begin": ("005311c00d044043707fffffff707fffffff", encoding.begin_octets),
    "begin answered": ("005311c00f0460000043707fffffff707fffffff", lambda: encoding.begin_octets(0)),
    "control receiver": (
        CONTROL_RECEIVER,
        lambda: encoding.router_attach("qdlink.LgTEpheQo8iFoM1", 0, True, encoding.CONTROL),
    ),
    "control sender": (
        CONTROL_SENDER,
        lambda: encoding.router_attach("qdlink.kb8nY4QefJJhL0q", 1, False, encoding.CONTROL),
    ),
    "control answer": (
        CONTROL_ANSWER,
        lambda: encoding.router_attach("qdlink.LgTEpheQo8iFoM1", 0, False, encoding.CONTROL, answer=True),
    ),
    "data receiver": (
        DATA_RECEIVER,
        lambda: encoding.router_attach("qdlink.HG__+IawGIMuFW4", 0, True, encoding.DATA),
    ),
    "HELLO, nobody seen": (HELLO_A, lambda: control.hello("A", A_INSTANCE, [])),
    "HELLO, A seen": (HELLO_B, lambda: control.hello("B", B_INSTANCE, ["A"])),
    "LSR": (LSR, lambda: control.link_state_request("A", "B")),
    "LSU": (LSU, lambda: control.link_state_update("B", "A", B_INSTANCE, 0, {"A": 5})),
    "RA": (RA, lambda: control.router_advertisement("A", A_INSTANCE, 1, 0)),
    "differential MAU": (MAU, lambda: control.mobile_update("A", 1, list(KEYS.items()), [])),
    "MAR": (MAR, lambda: control.mobile_request("B", "A", 0)),
    "absolute MAU": (ABSOLUTE, lambda: control.mobile_state("A", "B", 1, list(KEYS.items()))),
    "annotations of users first": (
        USER_NOTES,
        lambda: message_head.compose(
            [(Symbol("x-user"), "u1"), (Symbol("zz"), 5)], to="foo", ingress="0/B", trace=["0/B"]
        ),
    ),
    "annotations with phase": (
        PHASE_NOTES,
        lambda: message_head.compose([], phase=1, to="wp.1", ingress="0/A", trace=["0/A"]),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_octets_equal_those_of_original(name: str) -> None:
    expected, make = VECTORS[name]
    assert make().hex() == "".join(expected.split())


@pytest.mark.parametrize("name", [name for name in VECTORS if name.split()[0] in ("HELLO", "LSR", "RA", "MAR")])
def test_control_messages_are_decoded(name: str) -> None:
    found = control.read(bytes.fromhex("".join(VECTORS[name][0].split())))
    assert (found.opcode, found.ingress) == (name.split(",")[0], f"0/{found.id}")


#: Link states, own id: next hops, costs, valid origins (where the specification gives them), radius.
PATHS = [
    ("A:B1 B:A1,C1 C:B1", "A", "B:B C:B", "B:1 C:2", {"B": "", "C": ""}, 2),
    ("A:B1 B:A1,C1 C:B1", "B", "A:A C:C", "A:1 C:1", {"A": "C", "C": "A"}, 1),
    ("A:B1,C1 B:A1,D1 C:A1,D1 D:B1,C1", "A", "B:B C:C D:B", "B:1 C:1 D:2", {"B": "C", "C": "B", "D": ""}, 2),
    ("A:B1,C1 B:A1,D1 C:A1,D1 D:B1,C1", "B", "A:A C:A D:D", "A:1 C:2 D:1", {"A": "D", "C": "", "D": "A"}, 2),
    ("A:B1,C1 B:A1,D1 C:A1,D1 D:B1,C1", "C", "A:A B:A D:D", "A:1 B:2 D:1", {"A": "", "B": "", "D": ""}, 2),
    ("A:B1,C1 B:A1,D1 C:A1,D1 D:B1,C1", "D", "A:B B:B C:C", "A:2 B:1 C:1", {"A": "", "B": "", "C": ""}, 2),
    ("A:B1,C10 B:A1,C2 C:A10,B2", "A", "B:B C:B", "B:1 C:3", {}, 2),
    ("A:B1,C10 B:A1,C2 C:A10,B2", "B", "A:A C:C", "A:1 C:2", {"A": "C", "C": "A"}, 1),
    ("A:B1 B:A4", "A", "B:B", "B:1", {}, 1),
    ("A:B1 B:A4", "B", "A:A", "A:4", {}, 1),
    ("A:B1 B:A1,C5", "A", "B:B C:B", "B:1 C:6", {}, 2),
    ("A:B1 B:A1,C5 C:", "A", "B:B C:B", "B:1 C:6", {}, 2),
    ("A:B1 B:", "A", "B:B", "B:1", {}, 1),
    ("A: B:A1", "A", "", "", {}, 0),
    (
        "A:B1,E1 B:A1,C1 C:B1,D1 D:C1,E1 E:D1,A1",
        "A",
        "B:B C:B D:E E:E",
        "B:1 C:2 D:2 E:1",
        {"B": "E", "C": "", "D": "", "E": "B"},
        2,
    ),
]


@pytest.mark.parametrize(("states", "me", "next_hops", "costs", "origins", "radius"), PATHS)
def test_paths_equal_documented_results(
    states: str, me: str, next_hops: str, costs: str, origins: dict[str, str], radius: int
) -> None:
    collection = {
        one.partition(":")[0]: {peer[0]: int(peer[1:]) for peer in one.partition(":")[2].split(",") if peer}
        for one in states.split()
    }
    paths = compute(me, collection)
    assert paths.next_hops == dict(pair.split(":") for pair in next_hops.split())
    assert paths.costs == {one: int(cost) for one, cost in (pair.split(":") for pair in costs.split())}
    assert {one: "".join(paths.valid_origins[one]) for one in origins} == origins
    assert paths.radius == radius


class ConnectedEngines:
    """Two engines that exchange messages at once. `sent` lists (sender, opcode) in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.queue: list[tuple[str, bytes]] = []
        self.engines = {
            name: Router19Engine(name, instance, Router19Timers(), functools.partial(self.post, name), lambda: None)
            for name, instance in (("A", A_INSTANCE), ("B", B_INSTANCE))
        }

    def post(self, sender: str, _to: str, octets: bytes) -> None:
        """Queue an engine's message for the other one, whatever its address."""
        self.sent.append((sender, control.read(octets).opcode))
        self.queue.append((sender, octets))

    def deliver(self, now: float) -> None:
        """Deliver all queued messages, and those that they cause."""
        while self.queue:
            sender, octets = self.queue.pop(0)
            self.engines["B" if sender == "A" else "A"].handle(control.read(octets), "wire", 1, now)

    def tick(self, name: str, now: float) -> list[tuple[str, str]]:
        """Tick one engine and deliver what follows. Return the messages sent."""
        before = len(self.sent)
        self.engines[name].tick(now)
        self.deliver(now)
        return self.sent[before:]


def test_routers_join_like_original_ones() -> None:
    two = ConnectedEngines()
    two.tick("A", 0.99)
    two.tick("B", 1.0)
    assert two.tick("A", 1.99)[:1] == [("A", "HELLO")]
    two.tick("B", 2.0)
    for now in (2.99, 3.99):
        two.tick("A", now)
        two.tick("B", now + 0.01)
    assert [two.engines[name].ls_seq for name in "AB"] == [1, 1]
    assert two.engines["A"].nodes["B"].peers == {"A": 1}
    assert two.engines["B"].nodes["A"].peers == {"B": 1}
    assert two.engines["A"].paths.costs == {"B": 1}


def test_addresses_are_announced_and_withdrawn() -> None:
    two = ConnectedEngines()
    for second in range(1, 5):
        two.tick("A", second)
        two.tick("B", second + 0.01)
    two.engines["A"].announce("M0x", 3)
    assert ("A", "MAU") in two.tick("A", 5)
    assert two.engines["B"].nodes["A"].keys == {"M0x": Int(3)}
    two.engines["A"].withdraw("M0x")
    two.tick("A", 6)
    assert two.engines["B"].nodes["A"].keys == {}


def test_silent_neighbour_is_lost_after_hello_max_age() -> None:
    two = ConnectedEngines()
    for second in range(1, 5):
        two.tick("A", second)
        two.tick("B", second + 0.01)
    two.engines["A"].tick(7.01)
    assert two.engines["A"].peers == {"B": 1}
    two.engines["A"].tick(7.02)
    assert two.engines["A"].peers == {}
