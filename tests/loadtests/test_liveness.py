"""Parts of the liveness tester that need no router: random scenarios, frames and the message ledger."""

from __future__ import annotations

import pytest

from loadtests.liveness import frames, ledger
from loadtests.liveness.draw import GRUDGES, THEMES, ConsumerSpec, ProducerSpec, Scenario, draw
from tests.peer import frames as peer_frames
from tests.peer import message

SEEDS = range(200)
#: Fewer seeds, where each one is drawn several times.
FEW = range(40)


def shape(scenario: Scenario) -> list[object]:
    """Return all drawn values in comparable form."""
    links = [
        (connection.name, connection.frame, session.window, link.uid, str(link.address))
        + (
            (tuple(link.messages), link.cut, link.pace)
            if isinstance(link, ProducerSpec)
            else (link.credit, link.settle, link.odd)
        )
        for connection, session, link in scenario.links()
    ]
    happens = [(each.at, each.what, each.connection.name, each.seconds) for each in scenario.incidents]
    return [scenario.theme, scenario.grudge, scenario.seconds, links, happens]


@pytest.mark.parametrize(("routers", "neighbour"), [(1, False), (2, False), (1, True)])
@pytest.mark.parametrize("kind", ["rest", "grudge"])
def test_seed_gives_same_scenario(kind: str, routers: int, neighbour: bool) -> None:
    drawn = [shape(draw(seed, kind, routers, neighbour)) for seed in FEW]
    assert drawn == [shape(draw(seed, kind, routers, neighbour)) for seed in FEW]
    assert len({repr(each) for each in drawn}) == len(FEW)


def test_scenarios_cover_all_incidents() -> None:
    rest = [draw(seed, "rest") for seed in SEEDS]
    assert {scenario.theme for scenario in rest} == set(THEMES)
    assert {draw(seed, "grudge").grudge for seed in SEEDS} == set(GRUDGES)
    happened = {incident.what for scenario in rest for incident in scenario.incidents}
    assert happened == {"detach", "end", "drop", "close", "shut", "deaf", "flap"}
    kinds = {address.kind for scenario in rest for address in scenario.addresses}
    assert kinds == {"balanced", "closest", "multicast", "in", "out", "auto_in", "auto_out"}


@pytest.mark.parametrize("kind", ["rest", "grudge"])
def test_addresses_have_producer_and_consumer(kind: str) -> None:
    for seed in SEEDS:
        scenario = draw(seed, kind)
        links = [link for _connection, _session, link in scenario.links()]
        for address in scenario.addresses:
            ends = [link for link in links if link.address is address]
            assert any(isinstance(link, ProducerSpec) for link in ends), (seed, address)
            assert any(isinstance(link, ConsumerSpec) for link in ends), (seed, address)
        assert len({link.uid for link in links}) == len(links)


@pytest.mark.parametrize("channel", [0, 700])
@pytest.mark.parametrize("first", [None, (0, b"0", True), (4294967295, b"12345", False)])
@pytest.mark.parametrize("aborted", [False, True])
def test_transfers_are_encoded_correctly(channel: int, first: tuple[int, bytes, bool] | None, aborted: bool) -> None:
    octets = frames.transfer(channel, 300, b"payload", True, first, aborted)
    frame = peer_frames.parse_frame(octets)
    assert (frame.name, frame.channel, frame.payload, frame.handle, frame.more) == (
        "transfer",
        channel,
        b"payload",
        300,
        True,
    )
    assert (frame.aborted or False) == aborted
    if first is not None:
        assert (frame.delivery_id, frame.delivery_tag, frame.settled) == first
    found = frames.read(octets)
    assert (found[0], found[1], octets[found[3] :]) == (channel, frames.TRANSFER, b"payload")
    assert frames.field(found[2], 5) is True
    assert len(octets) - len(b"payload") <= frames.TRANSFER_ROOM


def test_flows_and_dispositions_are_encoded_correctly() -> None:
    frame = peer_frames.parse_frame(frames.flow(3, (1, 2, 3, 4), (5, 4294967295, 4294967295, True, False)))
    assert (frame.next_incoming_id, frame.incoming_window, frame.next_outgoing_id, frame.outgoing_window) == (
        1,
        2,
        3,
        4,
    )
    assert (frame.handle, frame.delivery_count, frame.link_credit, frame.drain) == (5, 4294967295, 4294967295, True)
    for name, octets in frames.STATES.items():
        frame = peer_frames.parse_frame(frames.disposition(0, True, 7, 9, True, octets))
        assert (frame.role, frame.first, frame.last, frame.settled) == (True, 7, 9, True)
        assert frames.state_name(frame.state) == name


@pytest.mark.parametrize(
    ("difference", "distance"), [(5, 5), (-5, -5), ((1 << 32) + 1, 1), ((1 << 31) + 1, 1 - (1 << 31))]
)
def test_serial_number_distance_wraps(difference: int, distance: int) -> None:
    assert frames.serial(difference) == distance


@pytest.mark.parametrize("to", [None, "balanced/x"])
@pytest.mark.parametrize("size", [0, 1, 300, 70000])
def test_message_is_identified_by_its_body(size: int, to: str | None) -> None:
    octets = ledger.encoded(7, 3, size, to)
    assert message.body(octets) == ledger.body(7, 3, size)
    books = ledger.Ledger()
    assert books.identify(octets)[0] is None
    sent = ledger.LedgerMessage.__new__(ledger.LedgerMessage)
    sent.uid, sent.number, sent.size = 7, 3, size
    sent.settled, sent.address = False, draw(1, "rest").addresses[0]
    books.messages[7, 3] = sent
    assert books.identify(octets) == (sent, "")
    if size:
        changed = octets[:-1] + bytes([octets[-1] ^ 1])
        assert books.identify(changed)[0] is None
        assert books.identify(octets[:-1])[0] is None
