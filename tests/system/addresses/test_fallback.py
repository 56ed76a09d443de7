"""Fallback destinations (routing-semantics.md 8.8, A-14)."""

from tests.peer import message
from tests.peer.frames import source, target
from tests.peer.links import PeerReceiver
from tests.peer.management import Management
from tests.peer.message import annotations_of
from tests.system.fixtures import CAPACITY, Connect, Fresh, pair, pass_one
from tests.system.router import Section, listener

WORKER_COUNTS = (1, 3)
SECTIONS: list[Section] = [
    listener("open", stripAnnotations="no"),
    ("address", {"prefix": "spare", "enableFallback": True}),
]


def fallback(connect: Connect, address: str, credit: int = 10, listener_name: str = "") -> PeerReceiver:
    """Attach a consumer of the fallback address."""
    return connect(listener_name).receiver(source=source(address, capabilities="qd.fallback"), credit=credit)


def test_fallback_is_used_without_primary_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh("spare")
    spare = fallback(connect, address)
    sender = connect().sender(address)
    pass_one(sender, spare, "to the spare")
    primary = connect().receiver(address, 10)
    pass_one(sender, primary, "to the primary")
    primary.detach()
    for _ in range(CAPACITY):  # released until the producer's worker knows of the loss
        number = sender.send(message.message("to the spare again"))
        sender.peer.barrier()
        spare.peer.barrier()
        if len(spare.deliveries) > spare.taken:
            break
    spare.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_primary_without_credit_prevents_fallback(connect: Connect, fresh: Fresh) -> None:
    address = fresh("spare")
    spare = fallback(connect, address)
    sender, primary = pair(connect, address, credit=0)
    number = sender.send(message.message("waits"))
    sender.peer.barrier()
    spare.peer.barrier()
    assert not spare.deliveries
    primary.flow(1)
    primary.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_annotations_of_redirected_message_have_fallback_phase(connect: Connect, fresh: Fresh) -> None:
    address = fresh("spare")
    spare = fallback(connect, address, listener_name="open")
    connect().sender(address).send(message.message("x"), settled=True)
    found = annotations_of(spare.next().payload)
    assert found is not None
    assert (found["x-opt-qd.to"], found["x-opt-qd.phase"]) == (address, 22)


def test_anonymous_message_uses_fallback(connect: Connect, fresh: Fresh) -> None:
    """A fallback consumer suffices, without a link on the primary address (routing-semantics.md F-16)."""
    address = fresh("spare")
    spare = fallback(connect, address)
    pass_one(connect().sender(), spare, to=address)


def test_fallback_capability_without_setting_has_no_effect(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    fallback(connect, address)
    sender = connect().sender(address, credit=False)
    sender.peer.barrier()
    assert not sender.flows
    assert connect().sender().request(message.message(to=address)).name == "released"


def test_fallback_producer_is_not_redirected(connect: Connect, fresh: Fresh) -> None:
    address = fresh("spare")
    spare = fallback(connect, address)
    primary = connect().receiver(address, 10)
    sender = connect().sender(target=target(address, capabilities="qd.fallback"))
    pass_one(sender, primary)
    primary.detach()
    assert sender.request(message.message("x")).name == "released"
    assert not spare.deliveries


def test_lost_fallback_releases_message(connect: Connect, fresh: Fresh) -> None:
    address = fresh("spare")
    spare = fallback(connect, address)
    sender = connect().sender(address)
    spare.detach()
    assert sender.request(message.message("x")).name == "released"


def test_fallback_is_balanced_and_counted(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("spare")
    spares = [fallback(connect, address) for _ in range(2)]
    sender = connect().sender(address)
    for number in range(4):
        pass_one(sender, spares[number % 2], number)
    row = management.one("router.address", key=f"M0{address}")
    assert row["deliveriesRedirectedToFallback"] == 4
    assert any(row["key"] == f"MF{address}" for row in management.query("router.address", "key"))
