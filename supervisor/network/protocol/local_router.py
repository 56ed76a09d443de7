"""Identity, configuration and sequences of this router."""

from msgspec import Struct

from sluice.router.amqp import codec
from sluice.supervisor.network.protocol.annotations import originated_head
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers


class LocalRouter(Struct):
    """State of this router that all modules of the protocol read. Owner: the engine."""

    id: str
    instance: int  # raised when the network has a later one
    process: int  # random number that distinguishes routers of one id started in the same second; 0: none
    timers: Timers  # replaced at a change of the configuration
    limits: ProtocolLimits
    started: float  # time of the start, in seconds of the monotonic clock
    ls_seq: int = 0  # sequence of the local link state. Writer: LinkStates
    mobile_seq: int = 0  # sequence of the local addresses. Writer: Mobile
    node: bytes = b""  # encoded node id
    head: bytes = b""  # header and annotations of messages that this router originates

    def __post_init__(self) -> None:
        self.node = node_id(self.id)
        self.head = originated_head(self.node)


def node_id(router_id: str) -> bytes:
    """Return the encoded node id `0/ID`, as in ingress and trace."""
    return codec.encode_string(f"0/{router_id}")
