"""Entry point of a worker process. The zygote imports this module before it forks."""

import os
import resource

from sluice.router.control.setup import WorkerSetup
from sluice.router.process import shorten_scheduling_slice
from sluice.router.seccomp import deny_system_calls
from sluice.workers.worker import WorkerRuntime


def run(setup: WorkerSetup) -> int:
    """Run the worker that `setup` describes; return its exit status."""
    if setup.cpu is not None:
        os.sched_setaffinity(0, {setup.cpu})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    shorten_scheduling_slice()
    deny_system_calls()
    return WorkerRuntime(setup).run()
