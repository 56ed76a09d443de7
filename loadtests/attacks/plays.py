"""Attacks: legal frames of one anonymous client or broker that cost the router the most. A call plays one round.

Each attack takes the ports of listeners. It raises RefusedError or OSError if the router ends the connection, which it
may do. Faults: chapter E of the list of 2026-11.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from loadtests.attacks.attacker import SESSION, Attacker, Broker, receiver, sender
from loadtests.liveness.frames import (
    STATES,
    TRANSFER,
    disposition,
    flow,
    frame,
    rare,
    transfer,
)
from tests.peer.codec import encode
from tests.peer.frames import Performative, rejected
from tests.peer.random_peer import Habits, RandomPeer, SessionModel
from tests.peer.types import Described, Symbol, ULong

BODY = b"\x00\x53\x77\x45"  # a section with an empty list
ACCEPTED, RELEASED = STATES["accepted"], STATES["released"]
#: Delivery states that are not outcomes: those of transactions.
OTHER_STATES = Described(ULong(0x34), [b"txn" * 5]), Described(ULong(0x33), [b"txn" * 50])
HANDLE_MAX = 65535
GARBAGE = 10  # actions of a random client
FRAME = 16000  # payload octets of the longest frame
HUGE_RANGE = 0x70000000  # delivery-ids
#: Containers that links are routed to; also the first segments of the addresses.
BROKERS = FLOWS, RANGES, LINKS = "flows", "ranges", "links"


@dataclass(frozen=True, slots=True)
class Ports:
    """Listener ports of the router, for clients and for brokers.

    beyond: client listener of another router in its network, or `clients` again.
    """

    clients: int
    brokers: int
    beyond: int


Attack = Callable[[Ports], None]


def parts(count: int, size: int = 100) -> Iterator[range]:
    """Yield the numbers from 0 to `count` - 1 in ranges of `size`."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def fill(consumer: Attacker, producer: Attacker, address: str, links: int) -> int:
    """Send unsettled deliveries to a consumer, as many as the credit of `links` links allows. Return their number."""
    consumer.send(receiver(0, address, credit=1 << 20))
    consumer.attached(1)
    producer.send(b"".join(sender(handle, address) for handle in range(links)))
    granted = producer.credits(links)
    number = 0
    for (_, handle), credit in granted.items():
        last = number + credit
        producer.send(
            b"".join(transfer(0, handle, BODY, False, (n, struct.pack(">I", n), False)) for n in range(number, last))
        )
        number = last
    consumer.take(TRANSFER, number)
    return number


def wide_dispositions(ports: Ports) -> None:
    """Change the state of thousands of deliveries by each frame; the producer does not read."""
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as producer:
        consumer.begin()
        producer.begin()
        last = fill(consumer, producer, "attack.wide", 8) - 1
        received = b"\x00\x53\x23\xc0\x0b\x02\x43\x80" + bytes(8)
        both = disposition(0, True, 0, last, False, received) + disposition(0, True, 0, last, False, ACCEPTED)
        for _ in range(40):
            consumer.send(both * 50)
        consumer.send(disposition(0, True, 0, last, True, ACCEPTED))
        consumer.handled()


def empty_ranges(ports: Ports) -> None:
    """Settle two billion deliveries that do not exist, by each frame."""
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as producer:
        consumer.begin()
        producer.begin()
        last = fill(consumer, producer, "attack.empty", 8)
        for _ in range(20):
            consumer.send(disposition(0, True, last, last + HUGE_RANGE, True, ACCEPTED) * 200)
            producer.send(disposition(0, False, last, last + HUGE_RANGE, True, ACCEPTED) * 200)
        consumer.handled()
        producer.handled()


def distinct_outcomes(ports: Ports) -> None:
    """Reject each of thousands of deliveries with an error of its own; the producer does not read."""
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as producer:
        consumer.begin()
        producer.begin()
        count = fill(consumer, producer, "attack.outcomes", 16)
        for numbers in parts(count):
            consumer.send(
                b"".join(
                    rare("disposition", role=True, first=n, settled=True, state=rejected("a:b", f"{n}" + 900 * "x"))
                    for n in numbers
                )
            )
        consumer.handled()


def multicast(ports: Ports) -> None:
    """Send tiny messages to ten thousand multicast receivers that take none."""
    receivers, senders = 10_000, 4
    with Attacker(ports.clients) as client:
        client.begin()
        for handles in parts(receivers):
            client.send(b"".join(receiver(handle, "multicast.attack") for handle in handles))
        client.attached(receivers)
        client.send(b"".join(sender(receivers + n, "multicast.attack") for n in range(senders)))
        number = 0
        for (_, handle), credit in client.credits(senders).items():
            octets = []
            for _ in range(credit):
                octets.append(transfer(0, handle, BODY, False, (number, struct.pack(">I", number), False)))
                number += 1
            client.send(b"".join(octets))
        time.sleep(2)


def routed_flows(ports: Ports) -> None:
    """Send flows with long properties over a routed link to a broker that does not read."""
    with Broker(ports.brokers, FLOWS) as broker, Attacker(ports.clients) as client:
        client.begin()
        client.send(receiver(0, f"{FLOWS}.q"))
        broker.answer(f"{FLOWS}.q")
        client.attached(1)
        for number in range(20_000):
            client.send(
                rare("flow", next_incoming_id=0, incoming_window=1 << 30, next_outgoing_id=0, outgoing_window=1 << 30,
                     handle=0, delivery_count=0, link_credit=number, properties={Symbol("x"): "y" * 12000})
            )  # fmt: skip
        client.handled()


def routed_ranges(ports: Ports) -> None:
    """Settle empty ranges over a routed link while a broker waits for the outcomes of thousands of deliveries."""
    count = 2000
    with Broker(ports.brokers, RANGES) as broker, Attacker(ports.clients) as client:
        client.begin()
        client.send(receiver(0, f"{RANGES}.q", credit=count))
        channel, handle, _ = broker.answer(f"{RANGES}.q")
        broker.send(
            b"".join(transfer(channel, handle, BODY, False, (n, struct.pack(">I", n), False)) for n in range(count))
        )
        client.take(TRANSFER, count)
        for _ in range(20):
            client.send(disposition(0, True, count, count + HUGE_RANGE, True, ACCEPTED) * 200)
            client.send(disposition(0, True, 0, count - 1, False, RELEASED) * 5)
        client.handled()


def endless_annotations(ports: Ports) -> None:
    """Send a message in frames of one octet each, within a section that does not end."""
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as client:
        consumer.begin()
        consumer.send(receiver(0, "attack.endless", credit=1000))
        consumer.attached(1)
        client.begin()
        client.send(sender(0, "attack.endless"))
        client.credits(1)
        head = b"\x00\x53\x72\xd1" + struct.pack(">II", 1 << 20, 2) + b"\xa3\x01k\xb0" + struct.pack(">I", 1 << 19)
        octets = head + bytes(131072 - len(head) - 10)
        client.send(transfer(0, 0, octets[:FRAME], True, (0, b"t", False)))
        for at in range(FRAME, len(octets), FRAME):
            client.send(transfer(0, 0, octets[at : at + FRAME], True))
        for _ in range(100):
            client.send(transfer(0, 0, b"\x00", True) * 1000)
        client.handled()


def replaced_links(ports: Ports) -> None:
    """Send flows on links that wait for a broker's answer, while the router replaces them by routed links."""
    address = f"{LINKS}.q"
    with Broker(ports.brokers, LINKS) as broker, Attacker(ports.clients) as client:
        client.begin()
        for handle in range(100):
            client.send(receiver(handle, address) + flow(0, SESSION, (handle, 0, 10, True, False)) * 20)
            broker.answer(address)
            client.attached(1)


def sparse_handles(ports: Ports) -> None:
    """Attach and detach links with the highest handles, on sessions that come and go."""
    with Attacker(ports.clients) as client:
        for turn in range(20):
            client.begin(turn)
            handles = [HANDLE_MAX - 977 * n for n in range(60)]
            client.send(b"".join(sender(handle, "attack.sparse", turn) for handle in handles))
            client.attached(len(handles))


def unfinished(ports: Ports) -> None:
    """Begin a message on each of many links, and complete none."""
    links = 300
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as client:
        consumer.begin()
        consumer.send(receiver(0, "attack.unfinished", credit=1000))
        consumer.attached(1)
        client.begin()
        client.send(b"".join(sender(handle, "attack.unfinished") for handle in range(links)))
        granted = client.credits(links)
        head = b"\x00\x53\x75\xb0" + struct.pack(">I", 1 << 20)
        for number, (_, handle) in enumerate(granted):
            client.send(transfer(0, handle, head + bytes(FRAME - len(head)), True, (number, b"t", False)))
            for _ in range(7):
                client.send(transfer(0, handle, bytes(FRAME), True))


def promises(ports: Ports) -> None:
    """Use the credit of many links of many sessions for a consumer that takes no message.

    With container ids of their own, the two may be on different workers.
    """
    sessions, links = 60, 20
    with Attacker(ports.clients, "consumer") as consumer, Attacker(ports.clients, "producer") as client:
        consumer.begin()
        consumer.send(receiver(0, "attack.promises"))
        consumer.attached(1)
        for channel in range(sessions):
            client.begin(channel)
            client.send(b"".join(sender(handle, "attack.promises", channel) for handle in range(links)))
        payload = b"\x00\x53\x75\xb0" + struct.pack(">I", FRAME - 8) + bytes(FRAME - 8)
        numbers = [0] * sessions
        for (_, handle), credit in client.credits(links).items():
            for channel in range(sessions):
                for _ in range(min(credit, 40)):
                    n = numbers[channel]
                    client.send(transfer(channel, handle, payload, False, (n, struct.pack(">I", n), False)))
                    numbers[channel] += 1


def echoes(ports: Ports) -> None:
    """Request flows, and read none."""
    with Attacker(ports.clients) as client:
        client.begin()
        client.send(receiver(0, "attack.echoes", credit=1))
        client.attached(1)
        for _ in range(200):
            client.send(flow(0, SESSION, (0, 0, 1, False, True)) * 1000)


def garbage(ports: Ports) -> None:
    """Send the frames of random clients, many of them damaged, each on a connection of its own."""
    rng = random.Random(time.monotonic_ns())
    for number in range(20):
        peer = RandomPeer(rng, number, rudeness=0.1)
        peer.habits = Habits(("attack.garbage",), routed=0.0, large=0.0, loyal=1.0)
        with Attacker(ports.clients) as client:
            client.begin()
            client.send(receiver(0, "attack.garbage", credit=10))
            client.attached(1)
            peer.sessions[0] = SessionModel()
            client.send(b"".join(peer.act() for _ in range(GARBAGE)))


def settled_flood(ports: Ports) -> None:
    """Send settled messages beyond the credit to a consumer that does not read."""
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as client:
        consumer.begin()
        consumer.send(receiver(0, "attack.settled", credit=1 << 20))
        consumer.attached(1)
        client.begin()
        client.send(sender(0, "attack.settled"))
        (credit,) = client.credits(1).values()
        number = 0
        end = time.monotonic() + 3
        while time.monotonic() < end:
            client.send(
                b"".join(
                    transfer(0, 0, BODY, False, (n, struct.pack(">I", n), True)) for n in range(number, number + credit)
                )
            )
            number += credit


def late_settlements(ports: Ports) -> None:
    """Use up the credit of many links of one connection, and settle late, so that the credit of all of them grows."""
    links, rounds = 40, 4
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as client:
        consumer.begin()
        consumer.send(receiver(0, "attack.late", credit=0x7FFFFFFF))
        consumer.attached(1)
        client.begin()
        client.send(b"".join(sender(handle, "attack.late") for handle in range(links)))
        number = 0
        for _ in range(rounds):
            first = number
            for (_, handle), credit in client.credits(links).items():
                octets = []
                for _ in range(credit):
                    octets.append(transfer(0, handle, BODY, False, (number, struct.pack(">I", number), False)))
                    number += 1
                client.send(b"".join(octets))
            consumer.take(TRANSFER, number - first)
            time.sleep(0.02)
            consumer.send(disposition(0, True, first, number - 1, True, ACCEPTED))


def credit_given_back(ports: Ports) -> None:
    """Give the credit of a hundred links back as often as it is granted: none of them is limited by credit."""
    links = 100
    with Attacker(ports.clients) as consumer, Attacker(ports.clients) as client:
        consumer.begin()
        consumer.send(receiver(0, "attack.back", credit=1))
        consumer.attached(1)
        client.begin()
        client.send(b"".join(sender(handle, "attack.back") for handle in range(links)))
        counts = dict.fromkeys(range(links), 0)
        for _ in range(50):
            for (_, handle), credit in client.credits(links).items():
                counts[handle] += credit
                client.send(flow(0, SESSION, (handle, counts[handle], 0, False, False)))
            time.sleep(0.05)


def states_in_streams(ports: Ports) -> None:
    """Send states in later frames and by dispositions for streams to consumers of all workers and of another router.

    All frames are legal. Raises LookupError if a consumer does not get what was sent.
    """
    address, count, size = f"multicast.states{time.monotonic_ns()}", 4, 200_000
    message = b"\x00\x53\x75\xb0" + struct.pack(">I", size) + b"\xff" * size
    with ExitStack() as stack:
        far, client, *near = (stack.enter_context(Attacker(port)) for port in (ports.beyond, *[ports.clients] * 7))
        far.begin()
        far.send(receiver(0, address, credit=100))
        far.attached(1)
        client.begin()
        client.send(sender(0, address))
        client.credits(1)
        for consumer in near:
            consumer.begin()
            consumer.send(receiver(0, address, credit=100))
            consumer.attached(1)
        for number in range(count):
            octets = []
            for at in range(0, len(message), FRAME):
                body = Performative(
                    "transfer",
                    handle=0,
                    delivery_id=number,
                    delivery_tag=b"t",
                    more=at + FRAME < len(message),
                    state=OTHER_STATES[number % 2] if at > number * 3 * FRAME else None,
                )
                octets.append(frame(body.encode() + message[at : at + FRAME], 0))
                if number > 1 and at % (2 * FRAME):
                    octets.append(disposition(0, False, number, number, False, encode(OTHER_STATES[number % 2])))
            client.send(b"".join(octets))
        for consumer in (far, *near):
            if any(consumer.message() != message for _ in range(count)):
                raise LookupError("a consumer got other octets than were sent")


ATTACKS: Final[dict[str, Attack]] = {
    play.__name__: play
    for play in (
        wide_dispositions,
        empty_ranges,
        distinct_outcomes,
        multicast,
        routed_flows,
        routed_ranges,
        endless_annotations,
        replaced_links,
        sparse_handles,
        unfinished,
        promises,
        echoes,
        garbage,
        settled_flood,
        late_settlements,
        credit_given_back,
        states_in_streams,
    )
}
