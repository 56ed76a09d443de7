"""Commands as run from a shell, with a supervisor that records its arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]

# Supervisor that records its arguments and exits. The commands need nothing else of the real one.
RECORDER = """
import json, os
def run(configuration, log, *, program, test_hooks, become, take_over):
    log.notice("SERVER", "Operational")
    record = {"id": configuration.router.id, "program": program, "hooks": test_hooks, "pid": os.getpid(),
              "session": os.getsid(0), "directory": os.getcwd(), "stdin": os.readlink("/proc/self/fd/0"),
              "user": os.getuid(), "descriptors": len(os.listdir("/proc/self/fd")),
              "take_over": take_over}
    with open(os.environ["RECORD"] + ".new", "w") as file:
        json.dump(record, file)
    os.rename(os.environ["RECORD"] + ".new", os.environ["RECORD"])
    return 7
"""


class CommandRunner:
    """Runs a command in its own directory, with the recording supervisor."""

    def __init__(self, folder):
        self.folder = folder
        self.python, self.path = sys.executable, []
        self.record = folder / "record"
        (folder / "lib").mkdir()
        (folder / "lib" / "recorder.py").write_text(RECORDER)
        (folder / "good.conf").write_text("router {\n  id: A\n}\nlistener {\n  host: localhost\n}\n")
        (folder / "bad.conf").write_text("router {\n  id: A\n  nonsense: 1\n}\nauthServicePlugin {\n  name: x\n}\n")

    def __call__(self, command, *words):
        module = {"sluice": "main", "qdrouterd": "qdrouterd"}[command]
        program = (
            "import sys, recorder; sys.modules['sluice.supervisor.main'] = recorder\n"
            f"import sluice.router.cli.{module} as cli; sys.argv[0] = 'bin/{command}'; sys.exit(cli.main())"
        )
        path = os.pathsep.join([str(self.folder / "lib"), str(ROOT), *self.path])
        return subprocess.run(
            [self.python, "-c", program, *words],
            env={**os.environ, "PYTHONPATH": path, "RECORD": str(self.record)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def recorded(self):
        return json.loads(self.record.read_text())
