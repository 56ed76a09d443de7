"""What a worker process is born with. It is inherited through fork and never encoded."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RouterFacts:
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


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker is born with, inherited through fork. repr() does not show secrets."""

    worker: int
    generation: int
    workers: int
    region_fd: int
    eventfds: list[int]
    handover_fd: int
    pub_endpoint: str
    ctl_endpoint: str
    server_public: bytes
    client_public: bytes
    client_secret: bytes = field(repr=False)
    cpu: int | None
    router: RouterFacts
    log: dict[str, Any]  # LogSettings.to_dict()
