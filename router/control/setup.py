"""What a worker process is born with. It is inherited through fork and never encoded."""

from typing import Any, ClassVar

from msgspec import Struct

from router.record import Record


class RouterFacts(Struct, frozen=True):
    """What all workers know of the router; it does not change while the router runs. Owner: immutable."""

    id: str
    mode: str
    product: str
    version: str
    allow_unsettled_multicast: bool
    test_hooks: bool  # option -T
    buffered_megabytes: int
    stuck_scan_seconds: int
    stuck_age_seconds: int
    scrub_seconds: int
    streams_kept: int


class WorkerSetup(Record, frozen=True):
    """What a worker is born with, inherited through fork. repr() does not show secrets."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    worker: int
    generation: int
    workers: int
    region_fd: int
    eventfds: list[int]
    handover_fd: int
    control_fd: int
    directory: str  # of the sockets of deltas
    server_public: bytes
    client_public: bytes
    client_secret: bytes
    cpu: int | None
    router: RouterFacts
    log: dict[str, Any]  # LogSettings.to_dict()
