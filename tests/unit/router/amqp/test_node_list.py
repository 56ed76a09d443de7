"""Lists of borrowed pointers: an object deallocated while listed leaves its list; the debug flavour aborts."""

import os
import signal

import pytest

from sluice.router.testing.write_lists import deallocate_in_list
from tests.conftest import FLAVOUR


def in_child() -> int:
    """Return the wait status of a child that deallocates a listed object and exits with the list's remaining length."""
    pid = os.fork()
    if pid == 0:
        os._exit(deallocate_in_list())
    return os.waitpid(pid, 0)[1]


@pytest.mark.starts
def test_object_deallocated_within_list_leaves_it_or_aborts_debug_flavour() -> None:
    status = in_child()
    if FLAVOUR == "debug":
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGABRT
    else:
        assert os.WIFEXITED(status)
        assert os.WEXITSTATUS(status) == 1
