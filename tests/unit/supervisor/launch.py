"""Program that runs a supervisor with stand-in workers: `launch.py CONFIGURATION`.

Environment:
WORKER_MODULE: module to run instead of the stand-in.
DEADLINE: seconds after which a worker counts as hung.
PROBE: seconds between two probes; a worker silent for five times as long is killed.
FAULTY_ADDRESS: address whose attaches make the supervisor fail.
"""

import os
import sys

import sluice.supervisor.children.pool
import sluice.supervisor.children.probes
from sluice.router.config.inherited import INHERITED
from sluice.router.config.load import load
from sluice.router.control.messages import Attach
from sluice.router.log import ProcessLog
from sluice.supervisor.links.attach import AttachAccepted, AttachDecider, AttachRefused, AttachRouted
from sluice.supervisor.main import run


def main() -> int:
    configuration = load(sys.argv[1])
    log = ProcessLog(configuration.log_settings())
    INHERITED.seal()
    if "DEADLINE" in os.environ:
        deadline = float(os.environ["DEADLINE"])
        sluice.supervisor.children.pool.START_DEADLINE = sluice.supervisor.children.pool.ACKNOWLEDGE_DEADLINE = deadline  # type: ignore[misc]
    if "PROBE" in os.environ:
        sluice.supervisor.children.probes.PROBE_EVERY = float(os.environ["PROBE"])  # type: ignore[misc]
        sluice.supervisor.children.probes.KILL_AFTER = 5 * sluice.supervisor.children.probes.PROBE_EVERY  # type: ignore[misc]
    if "FAULTY_ADDRESS" in os.environ:
        fail_at(os.environ["FAULTY_ADDRESS"])
    module = os.environ.get("WORKER_MODULE", "tests.unit.supervisor.stand_in_worker")
    return run(configuration, log, program="sluice", test_hooks=False, worker_module=module)


def fail_at(address: str) -> None:
    decide = AttachDecider.decide

    def fail(
        self: AttachDecider, message: Attach, role: str, usable: bool = False
    ) -> AttachAccepted | AttachRefused | AttachRouted:
        if message.address == address:
            raise LookupError(address)
        return decide(self, message, role, usable)

    AttachDecider.decide = fail  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
