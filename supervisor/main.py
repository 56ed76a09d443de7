"""Start and end of the router: setup before the event loop, and the exit status (management.md 3.3, 3.5).

The order matters. Memory, descriptors and keys come first, then the zygote inherits them, and only then are the event
loop and ZeroMQ touched: workers are forked from a process without either.
"""

import asyncio
import os
import resource
import signal
from typing import Final

from sluice.router.addressing.address import INTERIOR_MODE
from sluice.router.config.capacity import BASE_MEGABYTES, MIB, WORKER_MEGABYTES, measure
from sluice.router.config.entities import Configuration
from sluice.router.control.setup import RouterFacts, WorkerSetup
from sluice.router.log import ProcessLog
from sluice.router.stats.sums import AddressCounters
from sluice.router.user_check import find_obstacle
from sluice.router.version import VERSION
from sluice.supervisor.children import zygote
from sluice.supervisor.children.privileges import Identity, PrivilegeError, find_identity
from sluice.supervisor.children.shared_resources import SharedResources
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.service import EXIT_FAILED, Supervisor, log_identity
from sluice.supervisor.service_manager import PERIOD as NOTIFY_PERIOD
from sluice.supervisor.service_manager import SOCKET as NOTIFY_SOCKET
from sluice.supervisor.takeover.messages import TakeOverError
from sluice.supervisor.takeover.predecessor import Predecessor, find_predecessor

PRODUCT: Final = "sluice-router"  # product property of opens to clients; the name of the distribution

# Sizes of the memory region. The region is sparse: unused parts cost only address space.
LINKS_PER_WORKER: Final = 1 << 17  # link slots of a worker
ADDRESSES: Final = 1 << 18  # address slots of a standalone or edge router
ADDRESSES_OF_A_NETWORK: Final = 1 << 20  # of an interior router, where each address of each other router needs a slot
RING_OCTETS: Final = 1 << 20  # octets of the ring of each ordered pair of workers

WORKER_MODULE: Final = "sluice.workers.main"

# Detection of stuck deliveries and links without credit: scan interval and minimum age in seconds.
STUCK_SECONDS: Final = (30, 10)
STUCK_SECONDS_TEST: Final = (5, 3)  # with option -T
# Removal of idle streaming links to another router: scan interval in seconds, and number kept for each connection.
SCRUB: Final = (30, 128)
SCRUB_TEST: Final = (5, 2)  # with option -T


def run(
    configuration: Configuration,
    log: ProcessLog,
    *,
    program: str,
    test_hooks: bool,
    become: tuple[str | None, str | None] = (None, None),
    take_over: int | None = None,
    worker_module: str = WORKER_MODULE,
) -> int:
    """Run the router until a signal or a failure. Returns the exit status.

    program: name under which the router was started. test_hooks: option -T. become: user and group to change to once
    the ports are open. take_over: process id of the running router whose place this one takes; 0: the only one with
    the same id. worker_module: module that the workers run. After SIGINT the process ends itself with that
    signal and the function does not return.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the supervisor can reload the configuration
    log_identity(log, configuration, VERSION)
    interval, age = STUCK_SECONDS_TEST if test_hooks else STUCK_SECONDS
    log.info(
        "ROUTER_CORE",
        f"Stuck delivery detection: Scan interval: {interval} seconds, Delivery age threshold: {age} seconds",
    )
    pause, kept = SCRUB_TEST if test_hooks else SCRUB
    log.info("ROUTER_CORE", f"Streaming link scrubber: Scan interval: {pause} seconds, max free pool: {kept} links")
    _raise_descriptor_limit()
    log_capacity(configuration, log)
    workers = configuration.router.workers
    addresses = ADDRESSES_OF_A_NETWORK if configuration.router.mode == INTERIOR_MODE else ADDRESSES
    shared = predecessor = None
    try:
        identity = find_identity(*become)
        if identity is not None and (obstacle := find_obstacle(identity.drop)) is not None:
            raise PrivilegeError(f"user {become[0] or '-'}, group {become[1] or '-'} cannot run the router: {obstacle}")
        shared = SharedResources(workers, LINKS_PER_WORKER, addresses, RING_OCTETS)
        counters = AddressCounters(shared.region)
        name = os.path.basename(program)
        inherited = InheritedSockets(os.environ, log)
        if take_over is not None:
            predecessor = _take_over(configuration.router.id, take_over, identity, inherited, log)

        def forget() -> None:
            """Close the descriptors that only the supervisor keeps."""
            inherited.close()
            if predecessor is not None:
                predecessor.close()

        core = RouterCore(
            configuration, log, addresses, counters.reset, test_hooks=test_hooks, program=name, inherited=inherited
        )
        setup = _setup(configuration, log, shared, test_hooks)
        parent = zygote.start_zygote(setup, _cores(workers), worker_module, name, identity, forget)
    except (OSError, RuntimeError, PrivilegeError, TakeOverError) as error:
        log.critical("SERVER", f"The router cannot start: {error}")
        if shared is not None:
            shared.close()
        return EXIT_FAILED
    loop = asyncio.new_event_loop()
    try:
        supervisor = Supervisor(loop, configuration, log, core, parent, shared, counters, identity)
        result = loop.run_until_complete(supervisor.run(predecessor))
    finally:
        parent.close()
        loop.close()
        shared.close()
    if result == signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0 if result > 0 else -result


def _take_over(
    router: str, process: int, identity: Identity | None, inherited: InheritedSockets, log: ProcessLog
) -> Predecessor:
    """Return the connection to the running router, after its sockets were added to `inherited`. Raises TakeOverError
    and OSError.
    """
    users = {os.geteuid()}
    if identity is not None and identity.user is not None:
        users.add(identity.user)
    predecessor = find_predecessor(router, process or None, users)
    predecessor.take()
    running = predecessor.identity
    text = f"process {predecessor.peer.pid}, version {running.version}, hands over"
    log.notice("SERVER", f"Take-over of router '{running.router}': {text} {len(predecessor.sockets)} listening sockets")
    inherited.adopt(predecessor.sockets)
    predecessor.sockets.clear()
    for variable, value in ((NOTIFY_SOCKET, predecessor.notify), (NOTIFY_PERIOD, predecessor.watchdog)):
        if value:
            os.environ.setdefault(variable, value)
    return predecessor


def _setup(configuration: Configuration, log: ProcessLog, shared: SharedResources, test_hooks: bool) -> WorkerSetup:
    """Return the setup of all workers; the zygote fills in number, generation, sockets and core."""
    router = configuration.router
    interval, age = STUCK_SECONDS_TEST if test_hooks else STUCK_SECONDS
    pause, kept = SCRUB_TEST if test_hooks else SCRUB
    facts = RouterFacts(
        id=router.id,
        mode=router.mode,
        product=PRODUCT,
        version=VERSION,
        allow_unsettled_multicast=router.allow_unsettled_multicast,
        test_hooks=test_hooks,
        buffered_megabytes=router.buffered_megabytes,
        stuck_scan_seconds=interval,
        stuck_age_seconds=age,
        scrub_seconds=pause,
        streams_kept=kept,
        awaits_routers=router.router_absence_seconds > 0,
    )
    return WorkerSetup(
        worker=0,
        generation=0,
        workers=router.workers,
        region_fd=shared.region.fd,
        eventfds=shared.eventfds,
        handover_fd=-1,
        control_fd=-1,
        directory=str(shared.directory.path),
        server_public=shared.keys.server_public,
        client_public=shared.keys.client_public,
        client_secret=shared.keys.client_secret,
        cpu=None,
        router=facts,
        log=log.settings.to_dict(),
    )


def log_capacity(configuration: Configuration, log: ProcessLog) -> None:
    """Log what the router may use, and what it uses."""
    router, capacity = configuration.router, measure()
    unit = "worker" if router.workers == 1 else "workers"
    text = f"{router.workers} {unit} with {router.buffered_megabytes} MiB for messages each"
    log.notice("SERVER", f"May use {capacity.describe()}: {text}")
    needed = BASE_MEGABYTES + router.workers * (WORKER_MEGABYTES + router.buffered_megabytes)
    limit = capacity.limits.octets
    if limit is not None and needed * MIB > limit.value:
        text = f"{needed} MiB of memory, more than the limit of {limit.value / MIB:.0f} MiB: lower workerThreads or"
        log.warning("SERVER", f"The router may need {text} maxBufferedMegabytes, or the kernel may kill it")


def _cores(workers: int) -> list[int | None]:
    """Return the core to bind each worker to; None: not bound.

    Workers are bound only if there is one for each core. With fewer workers other routers may run on this machine.
    """
    cores = sorted(os.sched_getaffinity(0))
    return list(cores) if workers == len(cores) > 1 else [None] * workers


def _raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as the system allows, because each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
