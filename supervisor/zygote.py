"""The zygote: a small process that has loaded the worker's code and forks the workers.

It is forked before the supervisor starts an event loop or ZeroMQ, so that workers begin with a clean process and
share their pages. The supervisor talks to it over a SOCK_SEQPACKET pair: one request, one answer, in order. `pid` in an
answer is -errno when there is no worker, for a reason that may pass.
"""
import ctypes
import errno
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NoReturn, cast

from router.ipc.control import WorkerSetup, decode_fork_request, encode_fork
from supervisor.title import show_title

PR_SET_PDEATHSIG: Final = 1  # prctl(2)
PR_SET_NAME: Final = 15
MAX_NAME: Final = 15  # characters of a process name, Linux' limit
MAX_MESSAGE: Final = 4096  # octets; a request or answer has less than a hundred

# A terminal sends these to all processes at once, a service manager too: only the supervisor decides about the end.
IGNORED: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)

EXIT_FAILED: Final = 1


class Zygote:
    """The supervisor's end of a running zygote. Owner: supervisor."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel

    def close(self) -> None:
        """End the zygote, and with it all workers that still run."""
        self.channel.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def start(setup: WorkerSetup, cpus: list[int | None], module: str, name: str) -> Zygote:
    """Fork the zygote. `setup` is the pattern for all workers: what differs between them is filled in at each fork.

    cpus: the core of each worker, None for any. module: has the function `run(setup) -> int` of a worker. name: of the
    program. Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run_child(lambda: _serve(theirs, parent, setup, cpus, module, name))
    theirs.close()
    ours.setblocking(False)
    return Zygote(pid, ours)


def _run_child(body: Callable[[], int]) -> NoReturn:
    """Run `body` as all that this forked process does; its value is the exit status."""
    status = EXIT_FAILED
    try:
        status = body()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else EXIT_FAILED
    except BaseException:  # noqa: BLE001 - a forked process must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve(
    channel: socket.socket, parent: int, setup: WorkerSetup, cpus: list[int | None], module: str, name: str
) -> int:
    """The zygote: load the worker's code, then fork on request until the supervisor is gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the workers
    _adopt_process(parent, f"{name}-zygote", "zygote")
    entry = cast(Callable[[WorkerSetup], int], importlib.import_module(module).run)
    gc.collect()
    gc.freeze()  # what is here is never collected in the workers: their pages stay shared
    while True:
        data, fds, _, _ = socket.recv_fds(channel, MAX_MESSAGE, 1)
        if not data:
            return 0
        request = decode_fork_request(data)
        try:
            if not fds:
                raise OSError(errno.EMFILE, "the hand-over socket did not arrive")
            own = replace(
                setup,
                worker=request["worker"],
                generation=request["generation"],
                handover_fd=fds[0],
                cpu=cpus[request["worker"]],
            )
            pid, pidfd = _fork_worker(channel, own, entry, f"{name}-w{own.worker}")
        except OSError as error:
            channel.send(encode_fork({"pid": -(error.errno or EXIT_FAILED)}))
        else:
            socket.send_fds(channel, [encode_fork({"pid": pid})], [pidfd])
            os.close(pidfd)
        finally:
            for descriptor in fds:
                os.close(descriptor)


def _fork_worker(
    channel: socket.socket, setup: WorkerSetup, entry: Callable[[WorkerSetup], int], name: str
) -> tuple[int, int]:
    """Fork one worker; returns its pid and a pidfd. Raises OSError, and then there is no worker."""
    parent = os.getpid()
    gate, opener = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            channel.close()
            _run_child(lambda: _work(gate, parent, setup, entry, name))
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
    finally:
        os.close(gate)
        os.close(opener)  # it cannot end, and its number not be another's, before the pidfd is there


def _work(gate: int, parent: int, setup: WorkerSetup, entry: Callable[[WorkerSetup], int], name: str) -> int:
    """A worker, once the zygote has a pidfd of it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _adopt_process(parent, name, f"worker {setup.worker}")
    os.read(gate, 1)
    os.close(gate)
    return entry(setup)


def _adopt_process(parent: int, name: str, part: str) -> None:
    """Die with the parent, by the kernel's hand; be seen by name, and as this part of the router, in process lists.

    The supervisor keeps the command line that it was started with: scripts look for the router by it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    _prctl(libc, PR_SET_NAME, ctypes.c_char_p(name.encode("utf-8", "replace")[:MAX_NAME]))
    if os.getppid() != parent:  # it died before the first line took effect
        os._exit(EXIT_FAILED)
    show_title(f"sluice: {part}")


def _prctl(libc: ctypes.CDLL, option: int, argument: Any) -> None:
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, argument, zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl option {option}: {os.strerror(number)}")
