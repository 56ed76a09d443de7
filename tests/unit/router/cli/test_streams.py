"""Standard streams of a command that are closed, full, or read by nobody."""

import os
import subprocess
import sys

import pytest

from sluice.router.cli.streams import run_command
from tests.unit.router.cli.commands import ROOT

pytestmark = pytest.mark.starts

WRITES = (
    "import sys; from sluice.router.cli.streams import run_command; sys.exit(run_command(lambda: print('text') or 0))"
)


def run(program: str, redirected: str = "") -> tuple[int, str, str]:
    """Run a Python program with redirected streams. Return (exit code, output, diagnostics)."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {redirected}', sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("redirected", "reason"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
)
def test_command_whose_output_is_lost_fails(redirected: str, reason: str) -> None:
    assert run(WRITES, redirected) == (1, "", f"standard output: {reason}\n")


def test_command_whose_reader_has_gone_fails_silently() -> None:
    program = f"import os; reading, writing = os.pipe(); os.dup2(writing, 1); os.close(reading); {WRITES}"
    assert run(program) == (1, "", "")


def test_error_other_than_of_output_is_raised() -> None:
    def command() -> int:
        raise FileNotFoundError("none.conf")

    with pytest.raises(FileNotFoundError, match=r"none\.conf"):
        run_command(command)


def test_closed_stream_gives_its_number_to_no_file() -> None:
    program = "import os, sluice.router.cli; number = os.open('/', 0); print(number > 2, file=open(os.dup(3), 'w'))"
    assert run(program, "3>&1 <&- >&- 2>&-") == (0, "True\n", "")


def test_closed_input_cannot_be_read() -> None:
    """A command must not take a closed standard input for an empty file."""
    code, output, text = run("import sluice.router.cli, sys; sys.stdin.read()", "<&-")
    assert (code, output) == (1, "")
    assert text.endswith("OSError: [Errno 9] Bad file descriptor\n")


def test_router_may_write_to_streams_closed_at_start() -> None:
    program = (
        "import os; from sluice.router.cli.streams import discard_missing\n"
        "try: os.write(1, b'lost')\n"
        "except OSError: print('refused', file=open(2, 'w', closefd=False))\n"
        "discard_missing(); os.write(1, b'discarded')"
    )
    assert run(program, ">&-") == (0, "", "refused\n")


def test_open_streams_are_left_alone() -> None:
    program = "from sluice.router.cli.streams import discard_missing; discard_missing(); print('text')"
    assert run(program) == (0, "text\n", "")
