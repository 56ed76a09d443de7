"""Zygote: a small process that has loaded the worker's code and forks the workers.

The zygote is forked before the supervisor starts an event loop or ZeroMQ, so that workers begin with a clean process
and share its pages. The supervisor sends requests over a SOCK_SEQPACKET pair: one request, one answer, in order. `pid`
in an answer is -errno if no worker could be created, possibly for a temporary reason.
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
from typing import Final, NoReturn, cast

from msgspec.structs import replace

from sluice.router import environment
from sluice.router.config.inherited import INHERITED
from sluice.router.control.codec import decode_fork_request, encode_fork
from sluice.router.control.handover import ForkAnswer
from sluice.router.control.setup import WorkerSetup
from sluice.router.log import LogError, LogSettings, ProcessLog
from sluice.router.process import PR_SET_NAME, PR_SET_PDEATHSIG, drop_capabilities, prctl
from sluice.supervisor.children.privileges import Identity
from sluice.supervisor.children.title import show_title

MAX_NAME: Final = 15  # characters of a process name, Linux' limit
SOCKETS: Final = 2  # with each request: one for hand-overs, one for messages
MAX_MESSAGE: Final = 4096  # octets; a request or answer has less than a hundred

# Terminals and service managers send these signals to all processes. Only the supervisor handles them.
IGNORED: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)

EXIT_FAILED: Final = 1


class Zygote:
    """Supervisor's end of a running zygote. Owner: supervisor."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel

    def close(self) -> None:
        """Kill the zygote, and with it all running workers."""
        self.channel.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def start_zygote(
    setup: WorkerSetup,
    cpus: list[int | None],
    module: str,
    name: str,
    become: Identity | None = None,
    forget: Callable[[], object] | None = None,
) -> Zygote:
    """Fork the zygote. Raises OSError.

    setup: template for all workers, completed at each fork. cpus: core of each worker; None for any. module: has the
    worker's function `run(setup) -> int`. name: of the program. become: identity to change to before the first fork.
    forget: called in the zygote, to close descriptors that only the supervisor keeps.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        if forget is not None:
            forget()
        _run_child(lambda: _serve(theirs, parent, setup, cpus, module, name, become), setup)
    theirs.close()
    ours.setblocking(False)
    return Zygote(pid, ours)


def _run_child(body: Callable[[], int], setup: WorkerSetup) -> NoReturn:
    """Run `body` as the only task of this forked process, and exit with its result. setup: for the settings of the
    log.
    """
    status = EXIT_FAILED
    try:
        status = body()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else EXIT_FAILED
    except BaseException:  # noqa: BLE001 - a forked process must never return into its parent's code
        _log_fault(traceback.format_exc(), setup)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _log_fault(trace: str, setup: WorkerSetup) -> None:
    """Write the exception that ends this process to the log, or to stderr if the log cannot be opened."""
    try:
        log = ProcessLog(LogSettings.from_dict(setup.log))
        log.critical("SERVER", f"Process {os.getpid()} of the router ends after an internal error\n{trace}")
    except (LogError, OSError):
        sys.stderr.write(trace)


def _serve(
    channel: socket.socket,
    parent: int,
    setup: WorkerSetup,
    cpus: list[int | None],
    module: str,
    name: str,
    become: Identity | None,
) -> int:
    """Run the zygote: load the worker's code, then fork on request until the supervisor has exited."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the workers
    adopt_process(parent, f"{name}-zygote", "zygote")
    environment.reduce_environment(INHERITED.area)
    INHERITED.forget()
    entry = cast(Callable[[WorkerSetup], int], importlib.import_module(module).run)
    gc.collect()
    gc.freeze()  # objects that exist now are never collected in workers, so their pages stay shared
    settled = False  # whether this process has the identity and rights of the workers; forking needs no more
    while True:
        data, fds, _, _ = socket.recv_fds(channel, MAX_MESSAGE, SOCKETS)
        if not data:
            return 0
        request = decode_fork_request(data)
        try:
            if not settled:
                if become is not None:
                    become.drop()
                drop_capabilities()
                _die_with(parent)  # a change of identity clears this setting in the kernel
                settled = True
            if len(fds) < SOCKETS:
                raise OSError(errno.EMFILE, "the sockets of the worker did not arrive")
            own = replace(
                setup,
                worker=request.worker,
                generation=request.generation,
                handover_fd=fds[0],
                control_fd=fds[1],
                cpu=cpus[request.worker],
            )
            pid, pidfd = _fork_worker(channel, own, entry, f"{name}-w{own.worker}")
        except OSError as error:
            channel.send(encode_fork(ForkAnswer(-(error.errno or EXIT_FAILED))))
        else:
            socket.send_fds(channel, [encode_fork(ForkAnswer(pid))], [pidfd])
            os.close(pidfd)
        finally:
            for descriptor in fds:
                os.close(descriptor)


def _fork_worker(
    channel: socket.socket, setup: WorkerSetup, entry: Callable[[WorkerSetup], int], name: str
) -> tuple[int, int]:
    """Fork one worker and return its pid and a pidfd. Raises OSError if there is no worker."""
    parent = os.getpid()
    gate, opener = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            channel.close()
            _run_child(lambda: _run_worker(gate, parent, setup, entry, name), setup)
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
    finally:
        os.close(gate)
        os.close(opener)  # the worker waits for this, so that its pid stays valid until the pidfd exists


def _run_worker(gate: int, parent: int, setup: WorkerSetup, entry: Callable[[WorkerSetup], int], name: str) -> int:
    """Run a worker, once the zygote has its pidfd."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    adopt_process(parent, name, f"worker {setup.worker}")
    os.read(gate, 1)
    os.close(gate)
    return entry(setup)


def adopt_process(parent: int, name: str, part: str) -> None:
    """Make the kernel kill this process when its parent exits, and set its name and title.

    The supervisor keeps its command line, which scripts look for.
    """
    prctl(PR_SET_NAME, ctypes.c_char_p(name.encode("utf-8", "replace")[:MAX_NAME]))
    _die_with(parent)
    show_title(f"sluice: {part}")


def _die_with(parent: int) -> None:
    prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # the parent exited before the setting took effect
        os._exit(EXIT_FAILED)
