"""Names on the channels between supervisor and workers: topics, identities of sockets, keys."""

from typing import Final

DELTA_TOPIC: Final = b"d"  # first octet of each delta, and the subscription for deltas
CONTROL_KEY: Final = "control"  # of `local`, instead of an address: a control message of another router


def deltas_path(directory: str, worker: bytes) -> str:
    """Path of the socket by which the worker of this identity gets deltas."""
    return f"{directory}/{worker.decode()}"


def identity(worker: int, generation: int) -> bytes:
    """ZeroMQ identity of a worker's control socket, and the topic that says it is subscribed."""
    return b"w%d.%d" % (worker, generation)
