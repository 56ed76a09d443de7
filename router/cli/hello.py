"""`sluice hello`: send a first message through a router, and receive it again.

A router stores nothing, so a message is accepted only after its receiver has accepted it. A program that sends and
waits for the outcome before it receives, on one thread, would wait for ever. So the command starts to send, receives,
and only then waits for the outcome.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from sluice.router.cli.connection import ToolConnection
from sluice.router.cli.failure import ToolFailure, report
from sluice.router.cli.options import Parser, add_connection_options, target
from sluice.router.cli.tool import run_tool
from sluice.router.client.blocking import SyncConnection
from sluice.router.client.errors import ClientError, LinkDetachedError
from sluice.router.client.message import Message
from sluice.router.client.outcome import Accepted, Outcome, Rejected, Released

ADDRESS: Final = "hello"
TEXT: Final = "Hello through the router"
NOT_EXCHANGED: Final = 3  # exit code: a router answers, but the message did not come back
DESCRIPTION: Final = (
    "Send a message to an address, and receive it again over a second link, to see that a router works. The exit code "
    f"is 0, {NOT_EXCHANGED} if the message did not come back, 4 if no router answers."
)


class HelloError(Exception):
    """Raised when the message was not exchanged. Its text continues a sentence about the router."""


class HelloProgress:
    """Progress of the exchange, with one time limit for all steps. seconds: the limit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self.missing = "did not attach the links"  # first expected event that has not happened

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)


def main(words: Sequence[str] | None = None, program: str = "sluice hello") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options, program), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, DESCRIPTION)
    made.add_argument(
        "address", metavar="ADDRESS", nargs="?", default=ADDRESS, help=f"address of the message, default {ADDRESS}"
    )
    add_connection_options(made)
    made.set_defaults(router=None, edge_router=None)  # the message stays at the router of the connection
    return made


def _run(options: argparse.Namespace, program: str) -> int:
    where = target(options)
    connection = ToolConnection(where)
    progress = HelloProgress(where.timeout)
    try:
        exchange(connection.client, options.address, progress)
    except HelloError as error:
        problem = str(error)
    except LinkDetachedError as error:
        problem = f"refused a link: {error}"
    except ClientError as error:
        problem = f"{progress.missing}: {error}"
    except TimeoutError:
        problem = f"{progress.missing} within {progress.seconds:g} seconds"
    else:
        print(f"Sent to {options.address!r}, accepted, and received again: {TEXT}")
        return 0
    finally:
        connection.close()
    advice = f"`sluice explain {options.address}` says what happens to messages to this address"
    report(ToolFailure(f"the router at {where.url.text} {problem}", advice), program)
    return NOT_EXCHANGED


def exchange(connection: SyncConnection, address: str, progress: HelloProgress) -> None:
    """Send and receive the message. Raises HelloError, ClientError, TimeoutError."""
    receiver = connection.receiver(address, timeout=progress.left)
    sender = connection.sender(address, timeout=progress.left)
    progress.missing = "gave no credit to send"
    sending = sender.start_send(Message(TEXT), timeout=progress.left)
    progress.missing = "gave the message to another receiver of the address, or to none"
    connection.wait(lambda: receiver.state.arrived or sending.done, progress.left)
    if sending.done:  # before this receiver has accepted it
        check(sending.result())
    delivery = receiver.receive(timeout=progress.left)
    delivery.accept()
    if delivery.message.body != TEXT:
        raise HelloError("delivered a message of another sender: name an address that nobody uses")
    progress.missing = "did not report the message as accepted"
    connection.wait(lambda: sending.done, progress.left)
    check(sending.result())


def check(outcome: Outcome) -> None:
    """Raise HelloError for a message that was not accepted."""
    if isinstance(outcome, Rejected):
        raise HelloError("rejected the message")
    if isinstance(outcome, Released):
        raise HelloError("found no receiver for the message")
    if not isinstance(outcome, Accepted):
        raise HelloError("did not report the message as accepted")


if __name__ == "__main__":
    sys.exit(main())
