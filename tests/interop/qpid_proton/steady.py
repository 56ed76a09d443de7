"""Send durable messages 0 to COUNT - 1 to ADDRESS, 20 at a time, until each is accepted.

A message with another outcome is sent again a little later. With "again" as the last argument, the program attaches
again after its link was detached. It writes "begun" on stderr when a tenth is accepted, and finally prints the count
of each outcome, including "detached".
"""

import json
import sys
from collections import Counter, deque

from proton import Delivery, Endpoint, Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

WINDOW = 20
OUTCOMES: dict[int, str] = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}
AGAIN = 0.05  # seconds until a message that was not accepted is sent again
ATTACH_AGAIN = 0.3  # seconds between a detach and the next attach


class SteadySender(MessagingHandler):
    """Sender that repeats messages until they are accepted.

    `numbers` maps the delivery tag, which counts attempts, to the number of the outstanding message.
    """

    def __init__(self, port: str, address: str, count: int, again: bool) -> None:
        super().__init__(auto_settle=False)
        self.again = again
        self.url, self.address, self.count = f"amqp://127.0.0.1:{port}", address, count
        self.waiting = deque(range(count))
        self.outstanding = self.attempts = self.names = 0
        self.numbers: dict[int, int] = {}
        self.outcomes: Counter[str] = Counter()

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.attach()

    def attach(self) -> None:
        self.names += 1
        self.sender = self.container.create_sender(self.connection, self.address, name=f"steady-{self.names}")

    def on_sendable(self, event: Event) -> None:
        while self.sender.credit > 0 and self.outstanding < WINDOW and self.waiting:
            number = self.waiting.popleft()
            self.attempts += 1
            self.sender.send(Message(body=number, durable=True), tag=str(self.attempts))
            self.numbers[self.attempts] = number
            self.outstanding += 1

    def on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        if not event.sender or not delivery or not delivery.updated or delivery.remote_state not in OUTCOMES:
            return
        outcome = OUTCOMES[delivery.remote_state]
        number = self.numbers.pop(int(delivery.tag))
        delivery.settle()
        self.outstanding -= 1
        self.outcomes[outcome] += 1
        if outcome != "accepted":
            self.waiting.append(number)
            self.container.schedule(AGAIN, self)
            return
        if self.outcomes["accepted"] == self.count // 10:
            print("begun", file=sys.stderr, flush=True)
        if self.outcomes["accepted"] == self.count:
            print(json.dumps(self.outcomes))
            self.connection.close()
        else:
            self.on_sendable(event)

    def on_timer_task(self, event: Event) -> None:
        if self.sender.state & Endpoint.REMOTE_CLOSED:
            self.attach()
        else:
            self.on_sendable(event)

    def on_link_error(self, event: Event) -> None:
        if not self.again:
            sys.exit(f"link: {self.sender.remote_condition}")
        self.outcomes["detached"] += 1
        self.waiting.extend(self.numbers.values())
        self.numbers.clear()
        self.outstanding = 0
        self.container.schedule(ATTACH_AGAIN, self)

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


Container(SteadySender(sys.argv[1], sys.argv[2], int(sys.argv[3]), "again" in sys.argv[4:])).run()
