"""Address text and classes (routing-semantics.md 3)."""

import pytest

from tests.peer import message
from tests.peer.peer import PeerReceiver, PeerSender
from tests.system.fixtures import Connect, Fresh, pass_one


def reaches(sender: Sender, receiver: Receiver, to: str) -> None:
    """Send a message to `to` over an anonymous link, and check that the receiver gets it."""
    number = sender.send(message.message("probe", to=to))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted", to


def misses(sender: Sender, to: str) -> None:
    """Send a message to `to`, and check that it is released for lack of a destination."""
    assert sender.request(message.message("probe", to=to)).name == "released", to


@pytest.mark.parametrize(
    "spelling",
    ["%s", "/%s", "//host/%s", "amqp:/%s", "amqp://host:5672/%s", "x:/%s", "a/b:/%s", "%s.", "%s/", "amqp:/%s/"],
)
def test_spellings_of_one_address(connect: Connect, fresh: Fresh, spelling: str) -> None:
    address = fresh()
    receiver = connect().receiver(address, 5)
    reaches(connect().sender(), receiver, spelling % address)


@pytest.mark.parametrize("spelling", ["amqp:%s", "%s//", "//%s", "%s..", "x%s"])
def test_other_addresses(connect: Connect, fresh: Fresh, spelling: str) -> None:
    address = fresh("plain").replace("/", "")
    receiver = connect().receiver(address, 5)
    sender = connect().sender()
    misses(sender, spelling % address)
    reaches(sender, receiver, address)


def test_case_and_separators_matter(connect: Connect, fresh: Fresh) -> None:
    stem = fresh("case").replace("/", "")
    receiver = connect().receiver(f"{stem}/x.Y", 5)
    sender = connect().sender()
    for other in (f"{stem}.x.Y", f"{stem}/x/Y", f"{stem}/x.y"):
        misses(sender, other)
    reaches(sender, receiver, f"{stem}/x.Y")


def test_attach_addresses_are_normalised_too(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(f"amqp://somewhere/{address}", 5)
    assert receiver.source["address"] == f"amqp://somewhere/{address}"
    pass_one(connect().sender(f"/{address}."), receiver)


def test_long_addresses(connect: Connect, fresh: Fresh) -> None:
    address = fresh() + "/" + "x" * 3000
    receiver = connect().receiver(address, 5)
    pass_one(connect().sender(address), receiver)
    reaches(connect().sender(), receiver, address)


@pytest.mark.parametrize("spelling", ["_local/%s", "_topo/0/QDR/%s", "_edge/QDR/%s", "amqp:/_local/%s"])
def test_spellings_of_a_local_address(connect: Connect, fresh: Fresh, spelling: str) -> None:
    name = fresh("zz").replace("/", "")
    receiver = connect().receiver(f"_local/{name}", 5)
    sender = connect().sender()
    reaches(sender, receiver, spelling % name)
    misses(sender, name)


def test_local_and_mobile_are_apart(connect: Connect, fresh: Fresh) -> None:
    name = fresh()
    mobile = connect().receiver(name, 5)
    misses(connect().sender(), f"_local/{name}")
    pass_one(connect().sender(name), mobile)


@pytest.mark.parametrize("to", ["_topo/0/OTHER/zz", "_topo/1/QDR/zz", "_topo/all/zz", "_edge/OTHER/zz", "_local/none"])
def test_unreachable_classes(connect: Connect, to: str) -> None:
    misses(connect().sender(), to)


@pytest.mark.parametrize("address", ["_x", "_$temp.abc", "_topology/x"])
def test_other_underscores_are_mobile(connect: Connect, address: str) -> None:
    receiver = connect().receiver(address, 5)
    pass_one(connect().sender(address), receiver)


@pytest.mark.parametrize(
    "address", ["$management", "_local/$management", "_topo/0/QDR/$management", "amqp:/$management"]
)
def test_the_management_agent(connect: Connect, address: str) -> None:
    sender = connect().sender(address)
    assert sender.request(message.message("", message_id=1)).name == "accepted"
    assert connect().sender().request(message.message("", to=address)).name == "accepted"
