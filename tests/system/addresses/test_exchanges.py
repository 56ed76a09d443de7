"""Exchanges and bindings (routing-semantics.md 15)."""

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.message import annotations_of
from tests.peer.types import ULong
from tests.system.fixtures import Connect, bodies, pass_one
from tests.system.router import Section, listener

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)


def exchange(name: str, bindings: list[tuple[str | None, str]], **attributes: object) -> list[Section]:
    """Return an exchange at address `name` with its bindings (key, next hop)."""
    sections: list[Section] = [("exchange", {"name": name, "address": name, **attributes})]
    for number, (key, hop) in enumerate(bindings):
        keyed = {} if key is None else {"bindingKey": key}
        sections.append(("binding", {"name": f"{name}-{number}", "exchangeName": name, **keyed, "nextHopAddress": hop}))
    return sections


SECTIONS: list[Section] = [
    listener("open", stripAnnotations="no"),
    *exchange("ex.amqp", [("a.*", "q1"), ("a.#", "q2"), ("*.b", "q1")]),
    *exchange("ex.mqtt", [("a/+", "m1"), ("a/#", "m2")], matchMethod="mqtt"),
    *exchange("ex.all", [(None, "everything")]),
    *exchange("ex.alternate", [("known", "alt.known")], alternateAddress="alt.other"),
    *exchange("ex.hops", [("#", "multicast.hop")]),
    *exchange("ex.count", [("c.*", "count.1"), ("c.#", "count.1"), ("c.x", "count.2")], alternateAddress="count.alt"),
    *exchange("ex.empty", []),
]


def test_message_refused_by_direct_consumer_is_rejected(connect: Connect) -> None:
    """The exchange has no next hop either (routing-semantics.md 8.11)."""
    receiver = connect().receiver("ex.empty", 10, max_message_size=ULong(500))
    sender = connect().sender("ex.empty")
    outcome = sender.request(message.properties(subject="s") + message.value("x" * 1000))
    assert (outcome.name, outcome.error and outcome.error[0]) == ("rejected", "amqp:link:message-size-exceeded")
    number = sender.send(message.properties(subject="s") + message.value("short"))
    assert bodies([receiver.next()]) == ["short"]
    assert sender.outcome(number).name == "accepted"


def publish(sender: PeerSender, subject: str | None, receivers: dict[str, PeerReceiver]) -> set[str]:
    """Publish one message, and return the names of the next hops that received it, at most one copy each.

    A marker sent to every next hop afterwards proves that no further copy is under way.
    """
    fields = {} if subject is None else {"subject": subject}
    number = sender.send(message.properties(**fields) + message.value("event"))
    outcome = sender.outcome(number)
    markers = sender.peer.sender()
    found = set()
    for name, receiver in receivers.items():
        markers.send(message.message("marker", to=receiver.address), settled=True)
        got = bodies([receiver.next()])
        if got == ["event"]:
            found.add(name)
            got = bodies([receiver.next()])
        assert got == ["marker"], f"{name} got more than one copy"
    assert outcome.name == ("accepted" if found else "released")
    return found


@pytest.mark.parametrize(
    ("subject", "hops"),
    [
        ("a.b", {"q1", "q2"}),
        ("a", {"q2"}),
        ("a.b.c", {"q2"}),
        ("x.b", {"q1"}),
        ("a..b", {"q2"}),
        (".a.b", {"q1", "q2"}),
        ("zzz", set()),
        ("A.b", {"q1"}),
        ("", set()),
        (None, set()),
    ],
)
def test_amqp_keys_select_next_hops(connect: Connect, subject: str | None, hops: set[str]) -> None:
    peer = connect()
    receivers = {name: peer.receiver(name, 10) for name in ("q1", "q2")}
    assert publish(connect().sender("ex.amqp"), subject, receivers) == hops


@pytest.mark.parametrize(
    ("subject", "hops"),
    [("a/b", {"m1", "m2"}), ("a", {"m2"}), ("a/", {"m2"}), ("/a/b", {"m1", "m2"}), ("b/a", set()), ("a/b/c", {"m2"})],
)
def test_mqtt_keys_select_next_hops(connect: Connect, subject: str, hops: set[str]) -> None:
    peer = connect()
    receivers = {name: peer.receiver(name, 10) for name in ("m1", "m2")}
    assert publish(connect().sender("ex.mqtt"), subject, receivers) == hops


@pytest.mark.parametrize(("subject", "matches"), [("any.thing", True), ("", True), (None, False)])
def test_binding_without_key_matches_any_subject(connect: Connect, subject: str | None, matches: bool) -> None:
    receivers = {"everything": connect().receiver("everything", 10)}
    assert bool(publish(connect().sender("ex.all"), subject, receivers)) is matches


def test_anonymous_publisher_reaches_exchange(connect: Connect) -> None:
    receiver = connect().receiver("everything", 10)
    sender = connect().sender()
    assert sender.request(message.message("event", to="ex.all", subject="s")).name == "accepted"
    assert bodies([receiver.next()]) == ["event"]


def test_direct_subscriber_also_gets_message(connect: Connect) -> None:
    direct, hop = connect().receiver("ex.all", 10), connect().receiver("everything", 10)
    sender = connect().sender("ex.all")
    number = sender.send(message.message("event", subject="s"))
    delivery = direct.next()
    assert not delivery.settled
    copy = hop.next()
    assert copy.settled, "copies to next hops are presettled"
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_alternate_address_gets_unmatched_messages(connect: Connect) -> None:
    other, known = connect().receiver("alt.other", 10), connect().receiver("alt.known", 10)
    sender = connect().sender("ex.alternate")
    assert sender.request(message.message(1, subject="unknown")).name == "accepted"
    assert sender.request(message.message(2, subject="known")).name == "accepted"
    assert sender.request(message.message(3)).name == "accepted"
    assert bodies(other.receive(2)) == [1, 3]
    assert bodies([known.next()]) == [2]
    assert len(other.deliveries) == 2
    direct = connect().receiver("ex.alternate", 10)
    number = sender.send(message.message(4, subject="unknown"))
    direct.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert sender.request(message.message(5, subject="known")).name == "accepted" or direct.taken
    other.peer.barrier()
    assert len(other.deliveries) == 2, "a direct subscriber suppresses the alternate"


def test_next_hop_uses_its_own_distribution(connect: Connect) -> None:
    receivers = [connect().receiver("multicast.hop", 5) for _ in range(2)]
    assert connect().sender("ex.hops").request(message.message("event", subject="s")).name == "accepted"
    for receiver in receivers:
        assert bodies([receiver.next()]) == ["event"]


def test_annotations_name_the_next_hop(connect: Connect) -> None:
    receiver = connect("open").receiver("everything", 5)
    connect().sender("ex.all").request(message.message("event", subject="s"))
    found = annotations_of(receiver.next().payload)
    assert found is not None
    assert found["x-opt-qd.to"] == "everything"
    assert (found["x-opt-qd.ingress"], found["x-opt-qd.trace"]) == ("0/QDR", ["0/QDR"])


def test_large_message_passes_exchange(connect: Connect) -> None:
    receiver = connect().receiver("everything", 5)
    payload = message.properties(subject="s") + message.data(bytes(400_000))
    sender = connect().sender("ex.all")
    number = sender.send(payload[:250_000], more=True)
    sender.send(payload[250_000:])
    assert receiver.next().payload == payload
    assert sender.outcome(number).name == "accepted"


def test_unmatched_message_is_released_and_credit_returned(connect: Connect) -> None:
    sender = connect().sender("ex.empty")
    assert sender.credit == 250
    for _ in range(260):
        sender.wait_credit()
        assert sender.request(message.message("x", subject="s")).name == "released"
    assert not sender.draining


def test_exchange_counters_count_matches(connect: Connect, management: Management) -> None:
    one, two, alternate = (connect().receiver(name, 10) for name in ("count.1", "count.2", "count.alt"))
    sender = connect().sender("ex.count")
    before = management.one("router.config.exchange", name="ex.count")
    bound = {row["name"]: row["matchedCount"] for row in management.query("router.config.binding")}
    for subject in ("c.x", "c.y.z", "other"):
        assert sender.request(message.message("x", subject=subject)).name == "accepted"
    one.receive(2)
    two.next()
    alternate.next()
    after = management.one("router.config.exchange", name="ex.count")
    names = ("receivedCount", "forwardedCount", "droppedCount", "divertedCount")
    assert [after[name] - before[name] for name in names] == [3, 3, 0, 1]
    rows = {row["name"]: row["matchedCount"] for row in management.query("router.config.binding")}
    assert [rows[f"ex.count-{n}"] - bound[f"ex.count-{n}"] for n in range(3)] == [1, 2, 1]


def test_address_without_exchange_is_unaffected(connect: Connect) -> None:
    receiver = connect().receiver("ex.other", 5)
    pass_one(connect().sender("ex.other"), receiver, subject="a.b")
