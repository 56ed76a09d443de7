"""Address text and classes (routing-semantics.md 3.1, 3.2)."""

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.system.fixtures import Connect, Fresh, pass_one


def expect_arrival(sender: PeerSender, receiver: PeerReceiver, to: str) -> None:
    """Send a message to `to` over an anonymous link, and check that the receiver gets it."""
    number = sender.send(message.message("probe", to=to))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted", to


def expect_release(sender: PeerSender, to: str) -> None:
    """Send a message to `to`, and check that it is released for lack of a destination."""
    assert sender.request(message.message("probe", to=to)).name == "released", to


@pytest.mark.parametrize(
    "spelling",
    ["%s", "/%s", "//host/%s", "amqp:/%s", "amqp://host:5672/%s", "x:/%s", "a/b:/%s", "%s.", "%s/", "amqp:/%s/"],
)
def test_address_spellings_reach_one_consumer(connect: Connect, fresh: Fresh, spelling: str) -> None:
    address = fresh()
    receiver = connect().receiver(address, 5)
    expect_arrival(connect().sender(), receiver, spelling % address)


@pytest.mark.parametrize("spelling", ["amqp:%s", "%s//", "//%s", "%s..", "x%s"])
def test_different_addresses_do_not_match(connect: Connect, fresh: Fresh, spelling: str) -> None:
    address = fresh("plain").replace("/", "")
    receiver = connect().receiver(address, 5)
    sender = connect().sender()
    expect_release(sender, spelling % address)
    expect_arrival(sender, receiver, address)


def test_address_case_and_separators_are_significant(connect: Connect, fresh: Fresh) -> None:
    stem = fresh("case").replace("/", "")
    receiver = connect().receiver(f"{stem}/x.Y", 5)
    sender = connect().sender()
    for other in (f"{stem}.x.Y", f"{stem}/x/Y", f"{stem}/x.y"):
        expect_release(sender, other)
    expect_arrival(sender, receiver, f"{stem}/x.Y")


def test_attach_addresses_are_normalised(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(f"amqp://somewhere/{address}", 5)
    assert receiver.source["address"] == f"amqp://somewhere/{address}"
    pass_one(connect().sender(f"/{address}."), receiver)


def test_long_address_is_routed(connect: Connect, fresh: Fresh) -> None:
    address = fresh() + "/" + "x" * 3000
    receiver = connect().receiver(address, 5)
    pass_one(connect().sender(address), receiver)
    expect_arrival(connect().sender(), receiver, address)


@pytest.mark.parametrize("spelling", ["_local/%s", "_topo/0/QDR/%s", "_edge/QDR/%s", "amqp:/_local/%s"])
def test_local_address_spellings_reach_consumer(connect: Connect, fresh: Fresh, spelling: str) -> None:
    name = fresh("zz").replace("/", "")
    receiver = connect().receiver(f"_local/{name}", 5)
    sender = connect().sender()
    expect_arrival(sender, receiver, spelling % name)
    expect_release(sender, name)


def test_local_and_mobile_addresses_are_distinct(connect: Connect, fresh: Fresh) -> None:
    name = fresh()
    mobile = connect().receiver(name, 5)
    expect_release(connect().sender(), f"_local/{name}")
    pass_one(connect().sender(name), mobile)


@pytest.mark.parametrize("to", ["_topo/0/OTHER/zz", "_topo/1/QDR/zz", "_topo/all/zz", "_edge/OTHER/zz", "_local/none"])
def test_unreachable_address_classes_are_released(connect: Connect, to: str) -> None:
    expect_release(connect().sender(), to)


@pytest.mark.parametrize("address", ["_x", "_$temp.abc", "_topology/x"])
def test_underscore_addresses_of_unknown_class_are_mobile(connect: Connect, address: str) -> None:
    receiver = connect().receiver(address, 5)
    pass_one(connect().sender(address), receiver)


@pytest.mark.parametrize(
    "address", ["$management", "_local/$management", "_topo/0/QDR/$management", "amqp:/$management"]
)
def test_management_address_accepts_each_spelling(connect: Connect, address: str) -> None:
    sender = connect().sender(address)
    assert sender.request(message.message("", message_id=1)).name == "accepted"
    assert connect().sender().request(message.message("", to=address)).name == "accepted"
