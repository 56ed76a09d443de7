"""Arbitrary sequences of peers' messages: the engine neither fails nor grows without bound, and its changes are
consistent."""

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.network.simulated import Mirror
from sluice.supervisor.network.protocol import annotations, messages
from sluice.supervisor.network.protocol.engine import Engine
from sluice.supervisor.network.protocol.local_router import node_id
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers

IDS = st.sampled_from(["A", "B", "C", "D", "E", "F", "G", "H"])
NUMBERS = st.integers(-2, 6) | st.sampled_from([2**31, 2**63 - 1, -(2**63)])
SEQUENCES = st.integers(0, 6)
COSTS = st.integers(1, 3)
KEYS = st.dictionaries(st.sampled_from(["M0a", "M0b", "Clr", "", "x" * 300]), st.integers(0, 4), max_size=4)
PEERS = st.dictionaries(IDS, COSTS, max_size=4)
TO = st.sampled_from(
    [
        "_local/qdrouter",
        "_local/qdrouter.ma",
        "amqp:/_local/qdrouter",
        "_topo/0/all/qdrouter",
        "_topo/0/all/qdrouter.ma",
    ]
) | IDS.map(messages.to_router_ls)
TAILS = st.one_of(
    st.builds(messages.encode_hello, IDS, NUMBERS, st.lists(IDS, max_size=3)),
    st.builds(messages.encode_hello, IDS, SEQUENCES, st.just(["A"])),
    st.builds(messages.encode_advertisement, IDS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(messages.encode_link_state_request, IDS, TO),
    st.builds(
        lambda router, instance, seq, peers, to, age: messages.encode_link_state(
            router, instance, seq, peers.items(), to, age
        ),
        IDS,
        NUMBERS,
        SEQUENCES,
        PEERS,
        TO,
        st.none() | SEQUENCES,
    ),
    st.builds(messages.encode_mobile_request, IDS, NUMBERS, IDS.map(messages.to_router_mobile)),
    st.builds(
        messages.encode_mobile_change, IDS, SEQUENCES, KEYS, st.lists(st.sampled_from(["M0a", "M0b", "z"]), max_size=2)
    ),
    st.builds(
        messages.encode_mobile_state, IDS, SEQUENCES, KEYS, TO | IDS.map(messages.to_router_mobile), st.none() | NUMBERS
    ),
    st.builds(
        messages.encode_summary, IDS, NUMBERS, st.dictionaries(IDS, st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=3)
    ),
    st.binary(max_size=30),
)
LINKS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("up"), LINKS, COSTS, st.booleans()),
    st.tuples(st.just("down"), LINKS),
    st.tuples(st.just("receive"), LINKS, st.lists(IDS, min_size=1, max_size=3), TAILS),
    st.tuples(st.just("receive"), LINKS, st.lists(IDS, min_size=1, max_size=3), TAILS),
    st.tuples(st.just("receive"), LINKS, st.lists(IDS, min_size=1, max_size=3), TAILS),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0, 70.0])),
    st.tuples(st.just("announce"), st.sampled_from(["M0a", "M0b"]), st.integers(0, 4)),
    st.tuples(st.just("withdraw"), st.sampled_from(["M0a", "M0b"])),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=60))
def test_arbitrary_sequence_keeps_engine_consistent(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    now = 100.0
    engine = Engine("A", 5, Timers(), now, ProtocolLimits(routers=6, routers_beside_1_19=4, neighbours=3, keys=5))
    mirror = Mirror()
    links: set[int] = set()

    def settle() -> None:
        for _ in range(50):
            if engine.deadline() > now:
                break
            engine.tick(now)
        else:
            raise AssertionError("always due")
        for send in engine.take_sends():
            assert send.link in links
            envelope = annotations.read(send.octets)
            assert envelope.trace_ids()[-1] == "A"
        for change in engine.take_changes():
            mirror.apply(change)
        assert len(engine.take_log()) <= 1001

    for step in steps:
        match step:
            case ("up", link, cost, ours):
                engine.link_up(link, cost, ours, now)
                links.add(link)
            case ("down", link):
                engine.take_sends()
                engine.link_down(link, now)
                links.discard(link)
            case ("receive", link, path, tail):
                octets = annotations.originated_head(node_id(path[0])) + tail
                for router in path[1:]:
                    octets = annotations.relayed(annotations.read(octets), node_id(router))
                engine.receive(link, octets, now)
            case ("wait", seconds):
                until = now + seconds
                while engine.deadline() <= until:
                    now = max(now, engine.deadline())
                    settle()
                now = until
            case ("announce", key, treatment):
                engine.announce(key, treatment, now)
            case ("withdraw", key):
                engine.withdraw(key, now)
        settle()
        rows = engine.routers()
        assert len(rows) <= 6
        assert sum(row.keys for row in rows[1:]) <= 5
        assert mirror.ids == {row.index: row.id for row in rows[1:]}
        for row in rows[1:]:
            assert mirror.paths.get(row.index) == engine.path(row.id)
            assert mirror.keys[row.index] == engine.keys(row.index)
            assert set(row.links) <= links
