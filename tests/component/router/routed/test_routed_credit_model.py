"""Random flows, deliveries and outcomes on a routed link, against a model of its credit.

The sender never has more credit than its receiver has granted, nor more than the bound; and never none for good.
"""

import random

import pytest

from tests.component.engine.routed_ends import ROUTED, connect_ends
from tests.peer.frames import ACCEPTED
from tests.peer.talk import flow, frames, message, producer, say

#: Deliveries of a routed link in flight or unsettled. docs/user/link-routes.md, Memory.
ROUTED_MOST = 10_000
STEPS = 25
CREDITS = (1, 10, 5000, ROUTED_MOST - 1, ROUTED_MOST, ROUTED_MOST + 1, 15_000, 25_000, 65_536)
INITIALS = (0, 5, 0x7FFFF000, 0xFFFFF000)
NUMBERS = 1 << 32


def ahead(one, other):
    """Return how far a serial number is ahead of another (RFC 1982)."""
    distance = (one - other) % NUMBERS
    return distance - NUMBERS if distance >= NUMBERS // 2 else distance


class CreditModel:
    """Client that sends and container that receives, with the counts and the delivery-limit that each knows."""

    def __init__(self, routers, far, chance):
        self.chance = chance
        self.router, self.container, self.client = connect_ends(routers, far)
        self.initial = chance.choice(INITIALS)
        self.sent = self.sender_limit = self.received = self.receiver_limit = self.initial
        self.client.feed(producer(0, "queue.a", initial_delivery_count=self.initial))
        self.container.accept()
        self.drain = False
        self.number = 0
        self.unsettled = []
        self.read()

    @property
    def credit(self):
        return max(ahead(self.sender_limit, self.sent), 0)

    def likely(self, share):
        return self.chance.random() < share

    # -- steps ---------------------------------------------------------------------------------------------------------

    def grant(self):
        credit = self.chance.choice(CREDITS)
        count = None if self.received == self.initial and self.likely(0.5) else self.received
        self.receiver_limit = (self.received + credit) % NUMBERS
        drain, echo = (self.likely(0.3) or None for _ in range(2))
        self.container.peer.feed(flow(40, credit, delivery_count=count, channel=ROUTED, drain=drain, echo=echo))

    def grant_twice(self):
        self.grant()
        self.grant()

    def withdraw(self):
        self.receiver_limit = self.received
        self.container.peer.feed(flow(40, 0, delivery_count=self.received, channel=ROUTED))

    def ask(self):
        """Send a flow without link-credit."""
        count = self.chance.choice([None, self.received])
        drain = self.likely(0.3) or None
        self.container.peer.feed(flow(40, None, delivery_count=count, channel=ROUTED, drain=drain, echo=True))

    def send(self, most=ROUTED_MOST, **fields):
        count = min(self.credit, self.chance.randint(1, most))
        octets = []
        for number in range(self.number, self.number + count):
            own = {"delivery_tag": b"%d" % number, "message_format": 0, **fields}
            octets.append(say("transfer", payload=message(b"x"), handle=0, delivery_id=number, **own))
        self.client.feed(b"".join(octets))
        self.number += count
        self.sent = (self.sent + count) % NUMBERS

    def send_settled(self):
        self.send(settled=True)

    def send_refused(self):
        """Send deliveries that the router rejects: their tags are too long."""
        self.send(5, delivery_tag=b"t" * 33)

    def settle(self):
        if self.unsettled:
            count = self.chance.randint(1, len(self.unsettled))
            first, last = self.unsettled[0], self.unsettled[count - 1]
            del self.unsettled[:count]
            self.container.peer.feed(
                say("disposition", channel=ROUTED, role=True, first=first, last=last, settled=True, state=ACCEPTED)
            )

    def give_back(self):
        if self.drain and self.credit:
            self.sent = self.sender_limit
            self.client.feed(flow(0, 0, delivery_count=self.sent, drain=True))

    # -- checks --------------------------------------------------------------------------------------------------------

    def read(self):
        self.router.settle()
        for each in frames(self.client):
            assert each.name != "detach"
            if each.name == "flow" and each.handle is not None and each.link_credit is not None:
                self.sender_limit = (each.delivery_count + each.link_credit) % NUMBERS
                self.drain = bool(each.drain)
        for each in frames(self.container.peer):
            assert each.name != "detach"
            if each.name == "transfer":
                self.received = (self.received + 1) % NUMBERS
                if not each.settled:
                    self.unsettled.append(each.delivery_id)
            elif each.name == "flow" and each.handle is not None:
                assert ahead(each.delivery_count, self.received) >= 0
                self.received = int(each.delivery_count)
            assert ahead(self.receiver_limit, self.received) >= 0, "more was sent or given back than was granted"

    def check(self):
        granted = ahead(self.receiver_limit, self.received)
        assert self.credit <= granted
        assert self.credit + len(self.unsettled) <= ROUTED_MOST or not self.credit
        assert self.credit or not granted or self.unsettled, "the sender waits for good"


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("seed", range(6))
def test_random_steps_keep_credit_within_grant_and_bound(routers, seed, far):
    chance = random.Random(seed)
    model = CreditModel(routers, far, chance)
    usual = [model.grant, model.grant_twice, model.ask, model.send, model.send, model.settle, model.settle]
    rare = [model.withdraw, model.send_settled, model.send_refused, model.give_back]
    for _ in range(STEPS):
        chance.choice(usual * 2 + rare)()
        model.read()
        model.check()
