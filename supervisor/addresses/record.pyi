from collections.abc import Iterator

from sluice.router.control.ops import AddressOp, ConsumerOp, RemoteOp
from sluice.supervisor.addresses.consumer_edge import ConsumerEdge

class AddressRecord:
    id: int
    key: str
    treatment: str
    priority: int | None
    overflow: str
    inproc: bool
    rejects: bool
    scope: str
    fixed: bool
    hint: str | None
    exchange: int | None
    taps: tuple[int, ...]
    fallback: AddressRecord | None
    primary: AddressRecord | None
    consumers: dict[int, int] | None
    edges: dict[int, ConsumerEdge] | None
    suspended: int | None
    remotes: dict[int, int] | None
    producers: int
    edge_producers: int
    holders: int
    epoch: int
    users_epoch: int
    def __init__(self, number: int, record_key: str, treatment: str, priority: int | None, overflow: str) -> None: ...
    def unused(self) -> bool: ...
    @property
    def is_suspended_alone(self) -> bool: ...
    def beyond(self, conn: int) -> bool: ...
    def has_other_local_consumers(self, conn: int) -> bool: ...
    @property
    def consumers_at_peers(self) -> int: ...
    @property
    def local(self) -> bool: ...
    def op(self) -> AddressOp: ...
    def consumer_ops(self) -> Iterator[ConsumerOp]: ...
    def remote_ops(self) -> Iterator[RemoteOp]: ...

def worker_of(consumer: int) -> int: ...
def consumer_number(worker: int, slot: int, generation: int) -> int: ...
