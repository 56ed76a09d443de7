"""Send one message to the address `hello` and receive it again: `python scripts/hello.py [URL]`.

A router stores nothing, so a message is accepted only after its receiver has accepted it. A program that sends and
waits for the outcome before it receives, on one thread, would wait for ever. So the script starts to send, receives,
and only then waits for the outcome.
"""

import sys
import time

from sluice.router.client.blocking import SyncConnection, connect
from sluice.router.client.errors import ClientError, LinkDetachedError
from sluice.router.client.message import Message
from sluice.router.client.outcome import Accepted, Outcome, Rejected, Released

DEFAULT_URL = "amqp://127.0.0.1:5672"
ADDRESS = "hello"
TEXT = "Hello through the router"
TIMEOUT = 10.0  # seconds for everything


class HelloError(Exception):
    """Raised when the message was not exchanged. Its text continues a sentence about the router."""


class HelloProgress:
    """Progress of the exchange, with one time limit for all steps."""

    def __init__(self) -> None:
        self._end = time.monotonic() + TIMEOUT
        self.missing = "did not open an AMQP connection"  # first expected event that has not happened

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)


def exchange(url: str, progress: HelloProgress) -> str:
    """Send the message and return the body of the received one. Raises HelloError, ClientError, TimeoutError."""
    with connect(url, timeout=progress.left, allow_insecure_mechs=True) as connection:
        return exchange_on(connection, progress)


def exchange_on(connection: SyncConnection, progress: HelloProgress) -> str:
    """Send and receive on an open connection."""
    progress.missing = "did not attach the links"
    receiver = connection.receiver(ADDRESS, timeout=progress.left)
    sender = connection.sender(ADDRESS, timeout=progress.left)
    progress.missing = "gave no credit to send"
    sending = sender.start_send(Message(TEXT), timeout=progress.left)
    progress.missing = "gave the message to another receiver of the address, or to none"
    connection.wait(lambda: receiver.state.arrived or sending.done, progress.left)
    if sending.done:  # before this receiver has accepted it
        check(sending.result())
    delivery = receiver.receive(timeout=progress.left)
    delivery.accept()
    progress.missing = "did not report the message as accepted"
    connection.wait(lambda: sending.done, progress.left)
    check(sending.result())
    return str(delivery.message.body)


def check(outcome: Outcome) -> None:
    """Raise HelloError for a message that was not accepted."""
    if isinstance(outcome, Rejected):
        raise HelloError("rejected the message")
    if isinstance(outcome, Released):
        raise HelloError("found no receiver for the message")
    if not isinstance(outcome, Accepted):
        raise HelloError("did not report the message as accepted")


def main() -> int:
    """Send and receive; return the exit status."""
    url = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_URL
    progress = HelloProgress()
    opening = progress.missing
    try:
        received = exchange(url, progress)
    except HelloError as error:
        problem = str(error)
    except LinkDetachedError as error:
        problem = f"refused a link: {error}"
    except ClientError as error:
        problem = f"{progress.missing}: {error}"
    except TimeoutError:
        problem = f"{progress.missing} within {TIMEOUT:g} seconds"
    except ValueError as error:
        problem = f"cannot be reached: {error}"
    else:
        print(f"Sent to {ADDRESS!r}, accepted, and received again: {received}")
        return 0
    print(f"hello: {url} {problem}", file=sys.stderr)
    if progress.missing == opening:
        print("Is the router running? 'make run' starts one.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
