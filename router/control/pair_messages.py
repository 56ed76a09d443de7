"""Control messages about routed links: pairs of a client's link and a container's link, on two workers or on one."""

from sluice.router.control.message import ControlMessage

# -- worker to supervisor -----------------------------------------------------------------------------------------


class Pairable(ControlMessage):
    """Report that the container's link of a pair exists and is not attached yet; with its slot and generation."""

    conn: int
    pair: int
    link: int
    slot: int
    gen: int


class Unpairable(ControlMessage):
    """Report that the container's link of a pair cannot be created, with the error for the client."""

    pair: int
    condition: str
    description: str


class Unpaired(ControlMessage):
    """Report that the client's link of a pair ended before the two were connected."""

    pair: int


class RoutedUp(ControlMessage):
    """Report that the attach of a routed link is answered."""

    conn: int
    link: int


# -- supervisor to worker -----------------------------------------------------------------------------------------


class Pair(ControlMessage, kw_only=True):
    """Order to create the container's link of a pair."""

    conn: int
    pair: int
    identity: int
    outgoing: bool  # the container receives
    name: str  # name of the link
    worker: int  # worker of the client's link
    epoch: int  # epoch in which that worker came up
    slot: int  # slot of the client's link; `gen` is the slot's generation
    gen: int
    survives: bool  # the client's terminus outlives its connection
    address: str | None  # address for the container; None: the client's address
    answer: tuple[str, str]  # prefix removed from the address in the container's attach, prefix put in its place
    # For a link to the next router instead of a container. If that router is Sluice: ids of the router with the
    # container and of the routers passed; else empty.
    route: list[str] | None = None
    group: str  # the client's session; links of the same client session share a session on this connection


class Paired(ControlMessage, kw_only=True):
    """Answer to an attach: the link is routed; the container's link is the other end."""

    conn: int
    link: int
    pair: int
    identity: int
    worker: int  # worker of the container's link, with its slot; `epoch` is the epoch in which it came up
    epoch: int
    slot: int
    gen: int
    survives: bool
    plain: bool = False  # the peer is a router of 1.19


class Unpair(ControlMessage):
    """Order to end the container's link of a pair, because the client's link ended."""

    pair: int
