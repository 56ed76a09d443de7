"""Names used on the channels between supervisor and workers: topics, socket identities, keys."""

from typing import Final

DELTA_TOPIC: Final = b"d"  # first octet of each delta; topic to subscribe to
CONTROL_KEY: Final = "control"  # key of `local` for control messages of other routers, in place of an address


def deltas_path(directory: str, worker: bytes) -> str:
    """Return the path of the socket on which the worker with this identity receives deltas."""
    return f"{directory}/{worker.decode()}"


def identity(worker: int, generation: int) -> bytes:
    """Return the identity of a worker process; its subscription to this topic shows that it receives deltas."""
    return b"w%d.%d" % (worker, generation)
