"""Runs a supervisor whose workers are stand-ins: `launch.py CONFIGURATION`.

Environment: WORKER_MODULE runs instead of the stand-in; DEADLINE is the seconds after which workers are taken for hung,
PROBE those between two probes, a fifth of those after which one that does not react is killed.
"""

import os
import sys

import supervisor.probes
import supervisor.workers
from router.config.load import load
from router.log import Log
from supervisor.main import run


def main() -> int:
    configuration = load(sys.argv[1])
    log = Log(configuration.log_settings())
    if "DEADLINE" in os.environ:
        deadline = float(os.environ["DEADLINE"])
        supervisor.workers.START_DEADLINE = supervisor.workers.ACKNOWLEDGE_DEADLINE = deadline  # type: ignore[misc]
    if "PROBE" in os.environ:
        supervisor.probes.PROBE_EVERY = float(os.environ["PROBE"])  # type: ignore[misc]
        supervisor.probes.KILL_AFTER = 5 * supervisor.probes.PROBE_EVERY  # type: ignore[misc]
    module = os.environ.get("WORKER_MODULE", "tests.unit.supervisor.standin")
    return run(configuration, log, program="sluice", test_hooks=False, worker_module=module)


if __name__ == "__main__":
    sys.exit(main())
