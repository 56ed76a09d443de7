"""Title of a process as the system shows it."""

import ast
import os
import subprocess
import sys

import pytest

PATIENCE = 60  # seconds
PROGRAM = """
import os, sys
from sluice.supervisor.children.title import show_title
show_title("before")
show_title(os.environ["TITLE"])
with open("/proc/self/cmdline", "rb") as line:
    print(line.read())
print(sys.argv[1:])
"""


@pytest.mark.starts
@pytest.mark.parametrize("title", ["t", "sluice: worker 3", "x" * 10_000, "w\u00f6rker"])
def test_process_title_replaces_arguments(title: str) -> None:
    """A title can be replaced by another one. The process itself keeps its arguments."""
    arguments = [sys.executable, "-c", PROGRAM, "one", "two"]
    environment = {**os.environ, "TITLE": title}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=PATIENCE, env=environment)
    shown, kept = map(ast.literal_eval, done.stdout.splitlines())
    room = sum(len(each.encode()) + 1 for each in arguments)
    assert shown == title.encode()[: room - 2] + b"\0"
    assert kept == ["one", "two"]
