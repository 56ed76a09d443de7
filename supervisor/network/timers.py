"""Times and limits of the protocol between routers. All times in seconds."""

from dataclasses import dataclass
from typing import Final

# Mask bits of a router of Dispatch 1.19, itself included (inter-router.md 1).
ROUTERS_OF_1_19: Final = 128


@dataclass(frozen=True, slots=True)
class Timers:
    """What the `router` entity sets, then ours. All in seconds, except where the name says otherwise."""

    hello_interval: float = 1.0
    hello_max_age: float = 3.0
    ra_interval: float = 30.0
    ra_interval_flux: float = 4.0
    remote_ls_max_age: float = 60.0

    held_up: float = 0.5  # a tick that is so late says that this router did not run: nobody was silent in that time
    maintenance: float = 1.0  # the tick of 1.19: ages, nodes that nobody names any more
    node_ticks: int = 2  # maintenance ticks that such a node outlives

    # HELLO out of turn (on a new link, and in answer to one who is not named in ours yet) on one link in one interval.
    hello_answers: int = 4
    # Own link state: a loss is announced at once. What comes up, soon after, for more may come with it; not twice
    # within `announce_gap`, which doubles to `announce_gap_most` while that goes on, and is small again after a rest.
    announce_soon: float = 0.02
    announce_gap: float = 0.05
    announce_gap_most: float = 1.0
    # Paths are computed at once after a change, then not before `compute_gap`, which doubles alike. A lost link of our
    # own never waits.
    compute_gap: float = 0.02
    compute_gap_most: float = 0.5
    # Mobile addresses: one update in `mobile_gap`; the first after that long without leaves after `mobile_first`, with
    # what has come with it.
    mobile_gap: float = 1.0
    mobile_first: float = 0.05
    mobile_part: float = 0.05  # between updates that together are one
    # What a neighbour of ours is about to tell by itself is asked for only when it has not come by then.
    pull_grace: float = 0.25
    # Requests without an answer are repeated after 1, 2, 4 … seconds, so many times; then when the router is heard of.
    tries: int = 4
    # An unanswered request for mobile addresses is repeated after a gap when another update has come.
    request_timeout: float = 2.0
    # Copies of one flooded message come within this time; an equal one that comes later is a new one.
    flood_window: float = 2.0

    # Damping: each loss of a neighbour adds 1 to its penalty, which halves every `flap_half_life`. Above `flap_free` it
    # is announced again only 2 ** (penalty - flap_free - 1) seconds after the loss, `flap_most` at most: about 1 s
    # after the third loss in a row, 2 s after the fourth, and so on. One that has restarted is not held for that.
    flap_half_life: float = 15.0
    flap_free: float = 2.0
    flap_most: float = 30.0
    flap_alone: float = 2.0  # the most where there is no other way to it


@dataclass(frozen=True, slots=True)
class Limits:
    """What peers can make the engine hold. Beyond: dropped, and said in the log."""

    routers: int = 2048  # this one included
    routers_beside_1_19: int = ROUTERS_OF_1_19  # … that neighbours of Dispatch 1.19 are told of
    neighbours: int = 1024  # in one link state
    keys: int = 1_000_000  # of all routers together
    key_octets: int = 65_536
    id_octets: int = 1024
    # Of a message, as workers take them: what 1.19 says of its addresses, and is told of ours, is in one.
    message_octets: int = 32 << 20
    part_octets: int = 512 << 10  # of addresses in one message, where they can come in several
