"""Initial data of a worker process, inherited through fork and never encoded."""

from typing import Any, ClassVar

from msgspec import Struct

from sluice.router.record import Record


class RouterFacts(Struct, frozen=True):
    """Facts about the router that all workers share and that do not change while it runs. Immutable."""

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
    awaits_routers: bool  # links to a lost neighbour are suspended (routerAbsenceSeconds)


class WorkerSetup(Record, frozen=True):
    """Initial data of a worker, inherited through fork. repr() omits secrets."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    worker: int
    generation: int
    workers: int
    region_fd: int
    eventfds: list[int]
    handover_fd: int
    control_fd: int
    directory: str  # directory of the sockets for deltas
    server_public: bytes
    client_public: bytes
    client_secret: bytes
    cpu: int | None
    router: RouterFacts
    log: dict[str, Any]  # LogSettings.to_dict()
