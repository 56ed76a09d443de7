"""Messages of a take-over, whole and damaged."""

from random import Random
from typing import Any

import msgspec

from sluice.supervisor.takeover.messages import (
    Greeting,
    Handed,
    HandedSocket,
    Refusal,
    RunningIdentity,
    SuccessorReady,
    Take,
    TakeOverError,
    Yielded,
    decode_answer,
    decode_request,
)
from tests.peer.damage import spoil

Case = dict[str, Any]


def message(rng: Random) -> Case:
    """Return a message of either router, perhaps damaged."""
    sockets = [
        HandedSocket("a", by_manager=rng.random() < 0.5, hosts=("::",) * rng.randrange(3))
        for _ in range(rng.randrange(4))
    ]
    made = rng.choice(
        (
            Greeting(rng.randrange(3), rng.randrange(1 << 70)),
            Take("1"),
            SuccessorReady([rng.randrange(1 << 70) for _ in range(rng.randrange(4))]),
            RunningIdentity(1, "QDR", "1"),
            Handed(sockets, more=True, notify="@x", watchdog="1"),
            Yielded(),
            Refusal("reason"),
        )
    )
    octets = msgspec.json.encode(made)
    if rng.random() < 0.1:
        octets = octets[:-1] + b',"x":' + rng.choice((b"[", b'{"x":')) * rng.randrange(5000)
    return {"octets": (spoil(rng, octets) if rng.random() < 0.7 else octets).hex()}


def run_message(case: Case) -> None:
    """A message is at most a request or an answer, and is the same after it was encoded again."""
    octets = bytes.fromhex(case["octets"])
    for decode in (decode_request, decode_answer):
        try:
            found = decode(octets)
        except TakeOverError:
            continue
        assert decode(msgspec.json.encode(found)) == found
