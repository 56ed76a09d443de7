"""Receiver that accepts every message without reading it: `python -m loadtests.accepting PORT ADDRESS`."""

import sys

from sluice.pipeline.bulk import BulkState
from sluice.router.client.attach import Terminus
from sluice.router.client.blocking import connect
from sluice.router.client.outcome import Accepted

CREDIT = 50_000


def main(port: str, address: str) -> None:
    """Receive until killed."""
    connection = connect(f"amqp://127.0.0.1:{port}", timeout=10)
    session = connection.session()
    receiver = BulkState(session.state, source=Terminus(address), target=Terminus(), max_message_size=1 << 20)
    session.state.add(receiver)
    connection.wait(lambda: receiver.attached, 10)
    receiver.flow(CREDIT)
    print("receiving", flush=True)
    while True:
        connection.wait(lambda: receiver.rows, None)
        batch = receiver.take()
        assert batch is not None
        receiver.settle(batch, Accepted())
        receiver.flow(CREDIT)


if __name__ == "__main__":
    main(*sys.argv[1:])
