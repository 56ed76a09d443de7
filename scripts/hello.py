"""Send one message to the address `hello` and receive it again: `python scripts/hello.py [URL]`.

Event-driven: a router stores nothing, so a message is accepted only after its receiver has accepted it. A program that
sends and waits for the outcome before it receives, on one thread, would wait for ever.
"""

import sys

from proton import Condition, Connection, Event, Link, Message, Transport
from proton.handlers import MessagingHandler
from proton.reactor import Container

DEFAULT_URL = "amqp://127.0.0.1:5672"
ADDRESS = "hello"
TEXT = "Hello through the router"
TIMEOUT = 10.0  # seconds for everything


class HelloHandler(MessagingHandler):
    """Handler that attaches a receiver and a sender, sends once, and ends when the message is accepted and received."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.opened = self.sent = self.accepted = False
        self.received: str | None = None
        self.problem: str | None = None

    @property
    def missing(self) -> str | None:
        """First expected event that has not happened, as text. None: all have happened."""
        if not self.opened:
            return "did not open an AMQP connection"
        if not self.sent:
            return "gave no credit to send"
        if not self.accepted:
            return "did not report the message as accepted"
        return "gave the message to another receiver of the address" if self.received is None else None

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self.container.schedule(TIMEOUT, self)
        self.connection = self.container.connect(self.url, reconnect=False)

    def on_connection_opened(self, event: Event) -> None:
        self.opened = True
        self.container.create_receiver(self.connection, ADDRESS)

    def on_link_opened(self, event: Event) -> None:
        if event.receiver is not None:
            self.container.create_sender(self.connection, ADDRESS)

    def on_sendable(self, event: Event) -> None:
        if not self.sent and event.sender is not None:
            self.sent = True
            event.sender.send(Message(body=TEXT))

    def on_message(self, event: Event) -> None:
        self.received = event.message.body
        self.end_when_done()

    def on_accepted(self, event: Event) -> None:
        self.accepted = True
        self.end_when_done()

    def on_rejected(self, event: Event) -> None:
        self.fail("rejected the message")

    def on_released(self, event: Event) -> None:
        self.fail("found no receiver for the message")

    def on_link_error(self, event: Event) -> None:
        self.fail(f"refused a link: {reason(event.link)}")

    def on_connection_error(self, event: Event) -> None:
        self.fail(f"closed the connection: {reason(event.connection)}")

    def on_transport_error(self, event: Event) -> None:
        self.fail(f"{self.missing}: {reason(event.transport)}")

    def on_timer_task(self, event: Event) -> None:
        self.fail(f"{self.missing} within {TIMEOUT:g} seconds")

    def end_when_done(self) -> None:
        """Close after the last of the two events, in either order."""
        if self.missing is None:
            self.connection.close()

    def on_connection_closed(self, event: Event) -> None:
        self.container.stop()

    def fail(self, problem: str) -> None:
        """Record the first problem, and end. Problems after the last expected event do not count."""
        if self.missing is not None and self.problem is None:
            self.problem = problem
        self.container.stop()


def reason(what: Connection | Link | Transport | None) -> str:
    """Return the error with which an endpoint ended, as text."""
    if what is None:
        return "no reason given"
    condition: Condition | None = what.condition if isinstance(what, Transport) else what.remote_condition
    return "no reason given" if condition is None else f"{condition.name}: {condition.description}"


def main() -> int:
    """Send and receive; return the exit status."""
    url = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_URL
    hello = HelloHandler(url)
    try:
        Container(hello).run()
    except (OSError, ValueError) as error:
        hello.problem = f"cannot be reached: {error}"
    if hello.problem is None:
        print(f"Sent to {ADDRESS!r}, accepted, and received again: {hello.received}")
        return 0
    print(f"hello: {url} {hello.problem}", file=sys.stderr)
    if not hello.opened:
        print("Is the router running? 'make run' starts one.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
