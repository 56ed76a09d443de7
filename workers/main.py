"""Entry point of a worker process. The zygote imports this module before it forks."""

import os
import resource

from router.control.setup import WorkerSetup
from router.process import come_soon
from router.seccomp import deny_system_calls
from workers.worker import WorkerRuntime


def run(setup: WorkerSetup) -> int:
    """Run the worker that `setup` describes; return its exit status."""
    if setup.cpu is not None:
        os.sched_setaffinity(0, {setup.cpu})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    come_soon()
    deny_system_calls()
    return WorkerRuntime(setup).run()
