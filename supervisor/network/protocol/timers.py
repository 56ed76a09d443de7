"""Times and limits of the protocol between routers. All times are in seconds.

inter-router-protocol.md 8, 9.
"""

from typing import Final

from msgspec import Struct

# Mask bits of a router of Dispatch 1.19, including its own (inter-router.md 1).
ROUTERS_OF_1_19: Final = 128
NEVER: Final = float("inf")  # time of an event that is not planned


class Timers(Struct, frozen=True):
    """Timers of the `router` entity, then others. In seconds unless stated otherwise."""

    hello_interval: float = 1.0
    hello_max_age: float = 3.0
    ra_interval: float = 30.0
    ra_interval_flux: float = 4.0
    remote_ls_max_age: float = 60.0

    # delay of a tick beyond which this router counts as not having run, so that the silence of others does not count
    held_up: float = 0.5
    maintenance: float = 1.0  # tick as in 1.19, for ages and for nodes that no router lists
    node_ticks: int = 2  # maintenance ticks until such a node is removed

    # Limit of extra HELLOs on one link in one interval: on a new link, or in answer to a router not named in the last
    # one.
    hello_answers: int = 4
    # Local link state: a loss is announced at once, a new link after `announce_soon`, because more may come up with
    # it. Announcements are at least `announce_gap` apart. The gap doubles up to `announce_gap_most` while changes
    # continue, and is reset after a quiet time.
    announce_soon: float = 0.02
    announce_gap: float = 0.05
    announce_gap_most: float = 1.0
    # Paths are computed at once after a change, then after `compute_gap`, which doubles likewise. A lost local link is
    # never delayed.
    compute_gap: float = 0.02
    compute_gap_most: float = 0.5
    # Mobile addresses: one update in `mobile_gap`. The first update after a longer pause is sent after `mobile_first`,
    # with all changes until then.
    mobile_gap: float = 1.0
    mobile_first: float = 0.05
    mobile_part: float = 0.0125  # between the parts of one update
    # A new Sluice neighbour is listed in the local link state once what it knows of the network is in the tables of all
    # workers, or after this time. 0: at once, as in 1.19; deliveries that come before are released.
    sync_limit: float = 0.0
    # News expected from a Sluice neighbour is requested after this time.
    pull_grace: float = 0.25
    # Unanswered requests are repeated this many times, after 1, 2, 4 … seconds; then when there is news of the router.
    tries: int = 4
    # An unanswered request for mobile addresses is repeated after this time when another update has come.
    request_timeout: float = 2.0
    # Copies of a flooded message arrive within this time. A later equal message is new.
    flood_window: float = 2.0

    # Damping: each loss of a neighbour adds 1 to its penalty, which halves every `flap_half_life`. Above `flap_free`
    # the neighbour is announced again only 2 ** (penalty - flap_free - 1) seconds after the loss, at most `flap_most`:
    # about 1 s after the third loss in a row, 2 s after the fourth, and so on. A restart of the neighbour is not
    # penalised.
    flap_half_life: float = 15.0
    flap_free: float = 2.0
    flap_most: float = 30.0
    flap_alone: float = 2.0  # limit if there is no other path to the neighbour


class ProtocolLimits(Struct, frozen=True):
    """Limits of the state that peers can make the engine keep. Excess is dropped and logged."""

    routers: int = 2048  # including this one
    routers_beside_1_19: int = ROUTERS_OF_1_19  # number of routers that neighbours of Dispatch 1.19 are notified of
    neighbours: int = 1024  # in one link state
    keys: int = 1_000_000  # of all routers together
    key_octets: int = 65_536
    id_octets: int = 1024
    # Limit of a message, as in the workers. 1.19 sends and receives all addresses in one.
    message_octets: int = 32 << 20
    part_octets: int = 128 << 10  # octets of addresses in one message, if they can be split
