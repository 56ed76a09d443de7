"""Times and limits of the protocol between routers. All times in seconds.

inter-router-protocol.md 8, 9.
"""

from typing import Final

from msgspec import Struct

# Mask bits of a router of Dispatch 1.19, itself included (inter-router.md 1).
ROUTERS_OF_1_19: Final = 128


class Timers(Struct, frozen=True):
    """Those of the `router` entity, then others. In seconds, except where the name says otherwise."""

    hello_interval: float = 1.0
    hello_max_age: float = 3.0
    ra_interval: float = 30.0
    ra_interval_flux: float = 4.0
    remote_ls_max_age: float = 60.0

    held_up: float = 0.5  # a tick this late means that this router did not run: no silence of others counts then
    maintenance: float = 1.0  # the tick of 1.19: ages, and nodes that no router lists
    node_ticks: int = 2  # maintenance ticks until such a node is removed

    # Extra HELLOs (on a new link, or in answer to a router not yet named in the last one) on one link in one interval.
    hello_answers: int = 4
    # The local link state: a loss is announced at once, a new link after `announce_soon`, since more may come up with
    # it; not twice within `announce_gap`, which doubles to `announce_gap_most` while changes go on, and is reset after
    # a quiet time.
    announce_soon: float = 0.02
    announce_gap: float = 0.05
    announce_gap_most: float = 1.0
    # Paths are computed at once after a change, then after `compute_gap`, which doubles likewise. A lost local link
    # never waits.
    compute_gap: float = 0.02
    compute_gap_most: float = 0.5
    # Mobile addresses: one update in `mobile_gap`; the first one after a longer pause is sent after `mobile_first`,
    # with what has changed by then.
    mobile_gap: float = 1.0
    mobile_first: float = 0.05
    mobile_part: float = 0.0125  # between the parts of one update
    # News that a Sluice neighbour should send by itself is requested after this time.
    pull_grace: float = 0.25
    # Unanswered requests are repeated this many times, after 1, 2, 4 … seconds; then when there is news of the router.
    tries: int = 4
    # An unanswered request for mobile addresses is repeated after a gap when another update has come.
    request_timeout: float = 2.0
    # Copies of one flooded message arrive within this time; a later equal one is a new message.
    flood_window: float = 2.0

    # Damping: each loss of a neighbour adds 1 to its penalty, which halves every `flap_half_life`. Above `flap_free` it
    # is announced again only 2 ** (penalty - flap_free - 1) seconds after the loss, `flap_most` at most: about 1 s
    # after the third loss in a row, 2 s after the fourth, and so on. One that has restarted is not held for that.
    flap_half_life: float = 15.0
    flap_free: float = 2.0
    flap_most: float = 30.0
    flap_alone: float = 2.0  # the limit if there is no other path to it


class Limits(Struct, frozen=True):
    """Limits of what peers can make the engine keep. More is dropped and logged."""

    routers: int = 2048  # this one included
    routers_beside_1_19: int = ROUTERS_OF_1_19  # … that neighbours of Dispatch 1.19 learn of
    neighbours: int = 1024  # in one link state
    keys: int = 1_000_000  # of all routers together
    key_octets: int = 65_536
    id_octets: int = 1024
    # Of a message, as in the workers: 1.19 sends and gets all addresses in one.
    message_octets: int = 32 << 20
    part_octets: int = 128 << 10  # of addresses in one message, where they can come in several
