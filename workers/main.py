"""Entry point of a worker process; the zygote has imported this module before it forks."""

import os
import resource

from router.control.setup import WorkerSetup
from router.process import come_soon
from router.seccomp import deny_system_calls
from workers.worker import Worker


def run(setup: WorkerSetup) -> int:
    """Be the worker that `setup` describes; returns the exit status."""
    if setup.cpu is not None:
        os.sched_setaffinity(0, {setup.cpu})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    come_soon()
    deny_system_calls()
    return Worker(setup).run()
