"""Locust users that send, receive, request and respond, over one connection each."""

from __future__ import annotations

import time
from typing import ClassVar

import gevent
from locust import task
from proton import Delivery, Message

from loadtests.users import stamp
from loadtests.users.connection import GeventConnection
from loadtests.users.errors import LocustError, NotAccepted, TimedOut
from loadtests.users.links import ReceivingLink, SendingLink
from loadtests.users.user import LINGER, AmqpUser, Phase

IDLE_LOOK = 1.0  # seconds between a receiver's checks that its link is attached
SETTLE_LIMIT = 2.0  # seconds that a stopping sender waits for outstanding messages


class SendingUser(AmqpUser):
    """Sender of stamped messages.

    `send`: milliseconds from the attempt to send, including the wait for credit, to settlement. For a presettled
    message: until it was handed over.
    """

    abstract = True
    address = "queue"
    body_size = 100
    presettled = False
    window = 1
    #: Fields of each message, for example {"durable": True}.
    fields: ClassVar[dict[str, object]] = {}

    def __init__(self, environment: object) -> None:
        super().__init__(environment)
        self.address = self.addressed(self.address)
        self.window = self.option("window") or self.window
        settle = self.option("settle")
        self.presettled = settle == "presettled" if settle else self.presettled
        self._template = stamp.Template(self.option("body_size") or self.body_size, **self.fields)
        self._number = 0

    def attach(self, connection: GeventConnection) -> None:
        """Attach the sending link."""
        self.link = SendingLink(connection, self.address, presettled=self.presettled)
        self.link.attach()

    @task
    def send(self) -> None:
        """Send one message, and wait until fewer than `window` are outstanding."""
        if self.ready():
            self.attempt("send", self.address, self._send)

    def _send(self) -> None:
        started = time.monotonic()
        self.link.wait_for_credit()
        self._number += 1
        octets = self._template.stamped(self._number)

        def settled(error: NotAccepted | None) -> None:
            self.report("send", self.address, started, octets=len(octets), error=error)

        self.link.send(octets, settled)
        if not self.presettled:
            self.link.wait_for_window(self.window)

    def on_stop(self) -> None:
        """Wait for outstanding messages, then close."""
        if self.connection is not None and self.connection.lost is None:
            try:
                self.connection.wait(lambda: not self.link.outstanding, "settlement", SETTLE_LIMIT)
            except LocustError as error:
                self.report("send", self.address, time.monotonic(), error=error)
        super().on_stop()


class ReceivingUser(AmqpUser):
    """Receiver of messages. Its task only waits: arrivals are counted as they come.

    `receive`: milliseconds from the stamp in the message to its arrival. Both ends must be on one machine.
    """

    abstract = True
    address = "queue"
    credit = 250
    #: Outcome of each message: Delivery.ACCEPTED, RELEASED, REJECTED or MODIFIED.
    outcome: int = Delivery.ACCEPTED

    def __init__(self, environment: object) -> None:
        super().__init__(environment)
        self.address = self.addressed(self.address)

    def wait_time(self) -> float:
        """Return 0: a rate is for senders."""
        return 0.0

    def attach(self, connection: GeventConnection) -> None:
        """Attach the receiving link."""
        self.link = ReceivingLink(connection, self.address, self.credit, self.arrived)
        self.link.attach()

    def arrived(self, octets: bytes) -> int:
        """Count a message. Return its outcome."""
        found = stamp.read(octets)
        if found is not None:
            self.report_latency("receive", self.address, found[0], octets=len(octets))
        return self.outcome

    @task
    def listen(self) -> None:
        """Receive for a while. A lost connection or link is reported."""
        if self.ready():
            self.attempt("receive", self.address, self._listen)

    def _listen(self) -> None:
        connection, link = self.connection, self.link
        assert connection is not None
        try:
            connection.wait(lambda: link.detached, "detach", IDLE_LOOK)
        except TimedOut:
            return  # the link is still attached, as expected
        raise link.reason()

    def on_stop(self) -> None:
        """Stay until the senders of other processes have stopped, receive messages in flight, and close."""
        if self.connection is not None and self.connection.lost is None:
            if not Phase.running:
                gevent.sleep(LINGER)
            try:
                self.link.drain()
            except LocustError as error:
                self.report("receive", self.address, time.monotonic(), error=error)
        super().on_stop()


class RequestingUser(AmqpUser):
    """Requester with a dynamic reply-to. `request`: milliseconds from request to answer."""

    abstract = True
    address = "service"
    body_size = 100
    #: Seconds to wait for an answer.
    limit = 10.0

    def __init__(self, environment: object) -> None:
        super().__init__(environment)
        self.address = self.addressed(self.address)
        self._number = 0
        self._answered = 0

    def attach(self, connection: GeventConnection) -> None:
        """Attach a dynamic receiver for answers, then the sender."""
        self.answers = ReceivingLink(connection, None, 10, self._arrived)
        self.answers.attach()
        self.link = SendingLink(connection, self.address)
        self.link.attach()
        size = self.option("body_size") or self.body_size
        self._template = stamp.Template(size, reply_to=self.answers.address)

    def _arrived(self, octets: bytes) -> int:
        found = stamp.read(octets)
        if found is not None:
            self._answered = found[1]
        return Delivery.ACCEPTED

    @task
    def request(self) -> None:
        """Send one request and wait for its answer."""
        if self.ready():
            self.attempt("request", self.address, self._request)

    def _request(self) -> None:
        started = time.monotonic()
        self.link.wait_for_credit()
        self._number += 1
        refusals: list[NotAccepted] = []
        octets = self._template.stamped(self._number)
        self.link.send(octets, lambda error: refusals.append(error) if error else None)
        assert self.connection is not None
        self.connection.wait(lambda: self._answered == self._number or bool(refusals), "answer", self.limit)
        self.report("request", self.address, started, octets=len(octets), error=refusals[0] if refusals else None)


class RespondingUser(ReceivingUser):
    """Responder that answers each request on `address` with the request's body, over an anonymous sender.

    `receive`: latency of requests. An answer that is not accepted is a failure of `respond`.
    """

    abstract = True
    address = "service"

    def attach(self, connection: GeventConnection) -> None:
        """Attach the sender for answers, then the receiver of requests."""
        self.replies = SendingLink(connection, None)
        self.replies.attach()
        super().attach(connection)

    def arrived(self, octets: bytes) -> int:
        """Answer a request. Without credit for answers, release it."""
        outcome = super().arrived(octets)
        request = Message()
        request.decode(octets)
        if request.reply_to is None:
            return Delivery.REJECTED
        if self.replies.link.credit <= 0:
            return Delivery.RELEASED
        answer = Message(address=request.reply_to, body=request.body, inferred=True)
        started = time.monotonic()

        def settled(error: NotAccepted | None) -> None:
            if error:
                self.report("respond", self.address, started, error=error)

        self.replies.send(answer.encode(), settled)
        return outcome


class ReconnectingUser(AmqpUser):
    """User that connects, attaches a sender, sends and closes, repeatedly. `connect`, `attach`, `close`: ms of each."""

    abstract = True
    address = "queue"
    body_size = 100
    #: Messages of each connection.
    messages = 0

    def __init__(self, environment: object) -> None:
        super().__init__(environment)
        self.address = self.addressed(self.address)
        self._template = stamp.Template(self.option("body_size") or self.body_size)

    def attach(self, connection: GeventConnection) -> None:
        """Attach a sender, and report the time."""
        started = time.monotonic()
        self.link = SendingLink(connection, self.address)
        self.link.attach()
        self.report("attach", self.address, started)

    @task
    def come_and_go(self) -> None:
        """Use one connection."""
        if self.ready():
            self.attempt("churn", self.address, self._use)

    def _use(self) -> None:
        connection = self.connection
        assert connection is not None
        for number in range(self.messages):
            started = time.monotonic()
            self.link.wait_for_credit()
            found: list[NotAccepted | None] = []
            octets = self._template.stamped(number)
            self.link.send(octets, found.append)
            connection.wait(lambda found=found: bool(found), "settlement")  # type: ignore[misc]
            self.report("send", self.address, started, octets=len(octets), error=found[0])
        started = time.monotonic()
        connection.close()
        self.report("close", "", started)
