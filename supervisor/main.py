"""Start and end of the router: what has to exist before the event loop does, and the exit status.

The order matters. Memory, descriptors and keys come first, then the zygote inherits them, and only then are the event
loop and ZeroMQ touched: workers are forked from a process without either.
"""
import asyncio
import os
import resource
import signal
from importlib import metadata
from typing import Any, Final

from router.config.entities import Configuration
from router.ipc.control import WorkerSetup
from router.ipc.layout import Region
from router.ipc.scan import AddressCounters
from router.log import Log
from router.routing.address import INTERIOR_MODE
from supervisor import zygote
from supervisor.control import Endpoints, Keys, make_endpoints, make_keys
from supervisor.core import Core
from supervisor.service import EXIT_FAILED, Supervisor, log_identity

PRODUCT: Final = "sluice-router"  # as clients see it in open, and the name of the distribution
VERSION: Final = metadata.version(PRODUCT)

# Sizes of the memory region. It is sparse: what is not used costs address space only.
LINKS_PER_WORKER: Final = 1 << 17
ADDRESSES: Final = 1 << 18
ADDRESSES_OF_A_NETWORK: Final = 1 << 20  # each address of each other router has counters of its own
RING_OCTETS: Final = 1 << 20  # of each ordered pair of workers

WORKER_MODULE: Final = "workers.main"

# Of deliveries that are stuck and links without credit: seconds between looks, age from which they count; with -T.
STUCK_SECONDS: Final = (30, 10)
STUCK_SECONDS_TEST: Final = (5, 3)
# Of idle streaming links to another router: seconds between looks, how many of a connection are kept; with -T.
SCRUB: Final = (30, 128)
SCRUB_TEST: Final = (5, 2)


def run(
    configuration: Configuration, log: Log, *, program: str, test_hooks: bool, worker_module: str = WORKER_MODULE
) -> int:
    """Run the router until a signal or a failure; returns the exit status.

    program: the name under which it was started. test_hooks: option -T. worker_module: what the workers run. After
    SIGINT this process ends itself with that signal and the function does not return.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a configuration that can be loaded again
    log_identity(log, configuration, VERSION)
    interval, age = STUCK_SECONDS_TEST if test_hooks else STUCK_SECONDS
    log.info(
        "ROUTER_CORE",
        f"Stuck delivery detection: Scan interval: {interval} seconds, Delivery age threshold: {age} seconds",
    )
    pause, kept = SCRUB_TEST if test_hooks else SCRUB
    log.info(
        "ROUTER_CORE", f"Streaming link scrubber: Scan interval: {pause} seconds, max free pool: {kept} links"
    )
    _raise_descriptor_limit()
    workers = configuration.router.workers
    addresses = ADDRESSES_OF_A_NETWORK if configuration.router.mode == INTERIOR_MODE else ADDRESSES
    try:
        keys, endpoints = make_keys(), make_endpoints()
        region = Region.create(workers, LINKS_PER_WORKER, addresses, RING_OCTETS)
        eventfds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        counters = AddressCounters(region)
        core = Core(configuration, log, addresses, counters.reset, test_hooks=test_hooks)
        setup = _setup(configuration, log, region.fd, eventfds, endpoints, keys, test_hooks)
        parent = zygote.start(setup, _cores(workers), worker_module, os.path.basename(program))
    except (OSError, RuntimeError) as error:
        log.critical("SERVER", f"The router cannot start: {error}")
        return EXIT_FAILED
    loop = asyncio.new_event_loop()
    try:
        supervisor = Supervisor(
            loop, configuration, log, core, parent, region, endpoints, keys, VERSION, counters, eventfds
        )
        result = loop.run_until_complete(supervisor.run())
    finally:
        parent.close()
        loop.close()
    for descriptor in eventfds:
        os.close(descriptor)
    region.close()
    if result == signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0 if result > 0 else -result


def _setup(
    configuration: Configuration,
    log: Log,
    region_fd: int,
    eventfds: list[int],
    endpoints: Endpoints,
    keys: Keys,
    test_hooks: bool,
) -> WorkerSetup:
    """What all workers are born with; number, generation, hand-over socket and core are filled in by the zygote."""
    router = configuration.router
    interval, age = STUCK_SECONDS_TEST if test_hooks else STUCK_SECONDS
    pause, kept = SCRUB_TEST if test_hooks else SCRUB
    facts: dict[str, Any] = {
        "id": router.id,
        "mode": router.mode,
        "product": PRODUCT,
        "version": VERSION,
        "allowUnsettledMulticast": router.allow_unsettled_multicast,
        "testHooks": test_hooks,
        "maxBufferedMegabytes": router.buffered_megabytes,
        "stuckScanSeconds": interval,
        "stuckAgeSeconds": age,
        "scrubSeconds": pause,
        "streamsKept": kept,
    }
    return WorkerSetup(
        worker=0,
        generation=0,
        workers=router.workers,
        region_fd=region_fd,
        eventfds=eventfds,
        handover_fd=-1,
        pub_endpoint=endpoints.pub,
        ctl_endpoint=endpoints.ctl,
        server_public=keys.server_public,
        client_public=keys.client_public,
        client_secret=keys.client_secret,
        cpu=None,
        router=facts,
        log=log.settings.to_dict(),
    )


def _cores(workers: int) -> list[int | None]:
    """The core for each worker: one of its own where all are ours, else any; other routers may run on this machine."""
    cores = sorted(os.sched_getaffinity(0))
    return list(cores) if workers == len(cores) > 1 else [None] * workers


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as the system lets us have; each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
