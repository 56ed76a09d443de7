"""System-call filter: denied calls fail, all others work."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.starts

TRY = """
import ctypes, os, socket, threading
from sluice.router.seccomp import deny_system_calls

if not deny_system_calls():
    print("no filters")
    raise SystemExit
libc = ctypes.CDLL(None, use_errno=True)
for call in ("execve", "ptrace", "mount", "unshare"):
    ctypes.set_errno(0)
    arguments = {"execve": (b"/bin/true", None, None), "ptrace": (0, 0, 0, 0), "mount": (b"", b"", b"", 0, 0),
                 "unshare": (0,)}[call]
    print(call, getattr(libc, call)(*arguments), ctypes.get_errno())
pid = os.fork()
if pid == 0:
    try:
        os.execv("/bin/true", ["true"])
    except PermissionError:
        os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
thread = threading.Thread(target=lambda: print("thread", open("/proc/self/status").read().count("Seccomp:\\t2")))
thread.start()
thread.join()
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
    print("network")
"""


def test_denied_calls_fail_and_others_work():
    done = subprocess.run([sys.executable, "-c", TRY], capture_output=True, text=True, timeout=60, check=True)
    if done.stdout == "no filters\n":
        pytest.skip("this kernel or machine has no filters")
    assert done.stdout.splitlines() == [
        "execve -1 1", "ptrace -1 1", "mount -1 1", "unshare -1 1", "child 7", "thread 1", "network",
    ]  # fmt: skip
