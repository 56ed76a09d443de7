"""Sources and targets of attaches: the fields that decide about a link, and the terminus of the answer."""

import pytest

from sluice.router.amqp.errors import RemoteError
from sluice.workers.links.encoded import NULL
from sluice.workers.links.terminus import SOURCE, TARGET, PeerTerminus
from tests.peer.codec import decode, encode
from tests.peer.frames import source, target
from tests.peer.types import Array, Described, Map, Raw, Symbol, UInt, ULong

COORDINATOR = encode(Described(ULong(0x30), [Symbol("amqp:local-transactions")]))
EXPIRY = 2
FILTER = 7


def terminus(value: Described) -> PeerTerminus:
    return PeerTerminus(encode(value))


def fields(octets: bytes) -> list[object]:
    """Return the fields of an encoded terminus."""
    found: list[object] = decode(octets, 0)[0].value
    return found


def test_fields_of_terminus_are_read() -> None:
    found = terminus(target("a", expiry_policy=Symbol("never"), timeout=UInt(9), capabilities=Symbol("queue")))
    assert (found.code, found.address, found.expiry, found.timeout) == (TARGET, "a", "never", 9)
    assert (found.capabilities, found.array) == (["queue"], False)


def test_several_capabilities_are_an_array() -> None:
    found = terminus(source("a", capabilities=Array([Symbol("queue"), Symbol("qd.waypoint")])))
    assert (found.capabilities, found.array) == (["queue", "qd.waypoint"], True)


@pytest.mark.parametrize("octets", [b"", NULL])
def test_absent_terminus_has_no_address_and_no_answer(octets: bytes) -> None:
    found = PeerTerminus(octets)
    assert (found.code, found.address, found.reply(), str(found)) == (0, None, NULL, "{<none>}")


def test_coordinator_has_no_address() -> None:
    """The first field of a coordinator is no address."""
    found = PeerTerminus(COORDINATOR)
    assert (found.coordinator, found.address, found.capabilities) == (True, None, [])
    assert found.reply() == NULL


def test_terminus_with_other_descriptor_is_refused() -> None:
    with pytest.raises(RemoteError, match="0x2a of a terminus is neither"):
        terminus(Described(ULong(0x2A), []))


@pytest.mark.parametrize("value", [UInt(1), b"a", ["a"], Map([("a", 1)])])
def test_address_of_other_type_is_refused(value: object) -> None:
    with pytest.raises(RemoteError, match="address of a terminus is not a string"):
        terminus(Described(ULong(SOURCE), [value]))


def test_answer_states_no_filter_and_default_expiry() -> None:
    """The router applies no filter, and a terminus expires with its session by default."""
    asked = source("a", durable=UInt(1), timeout=UInt(5), filter=Map([(Symbol("f"), "x")]))
    given = fields(terminus(asked).reply())
    assert given[EXPIRY] == "session-end"
    assert given[FILTER] is None
    kept = fields(encode(asked))
    assert [item for at, item in enumerate(given) if at not in (EXPIRY, FILTER)] == [
        item for at, item in enumerate(kept) if at not in (EXPIRY, FILTER)
    ]


def test_answer_keeps_requested_expiry() -> None:
    assert fields(terminus(source("a", expiry_policy=Symbol("never"))).reply())[EXPIRY] == "never"


def test_answer_states_generated_address() -> None:
    given = PeerTerminus(terminus(source(None, dynamic=True)).reply("amqp:/_topo/0/A/temp.1"))
    assert (given.address, given.dynamic) == ("amqp:/_topo/0/A/temp.1", True)
    shortest = PeerTerminus(terminus(Described(ULong(SOURCE), [])).reply("temp"))
    assert (shortest.address, shortest.dynamic) == ("temp", True)


@pytest.mark.parametrize(
    ("properties", "address"),
    [
        (Map([(Symbol("x-opt-qd.address"), "wanted")]), "wanted"),
        (Map([(Symbol("x-opt-qd.address"), "")]), None),
        (Map([(Symbol("x-opt-qd.address"), UInt(1))]), None),
        (Map([(Symbol("other"), "x"), (Symbol("x-opt-qd.address"), "wanted")]), None),
        (Map([]), None),
    ],
)
def test_address_of_dynamic_node_is_first_property(properties: Map, address: str | None) -> None:
    asked = source(None, dynamic=True, dynamic_node_properties=properties)
    assert terminus(asked).dynamic_address == address


def test_address_property_without_dynamic_is_ignored() -> None:
    properties = Map([(Symbol("x-opt-qd.address"), "wanted")])
    assert terminus(source("a", dynamic_node_properties=properties)).dynamic_address is None


def test_terminus_is_shown_as_in_dispatch() -> None:
    capabilities = Array([Symbol("queue"), Symbol("x")])
    shown = source("a", durable=UInt(2), expiry_policy=Symbol("never"), timeout=UInt(3), capabilities=capabilities)
    assert str(terminus(shown)) == "{a(unsettled) expire:never timeout:3 caps:[queue,x]}"
    assert str(terminus(source(None, dynamic=True))) == "{(dyn)<none> expire:sess}"
    assert str(PeerTerminus(COORDINATOR)) == "{<coordinator>}"


def test_malformed_terminus_is_refused() -> None:
    with pytest.raises(RemoteError):
        PeerTerminus(encode(Raw(b"\xa1\x05ab")))
