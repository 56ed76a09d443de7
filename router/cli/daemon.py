"""Detaching the router from its terminal: two forks, a new session, and a report to the waiting parent process."""

import os
import pwd

from sluice.router.files import open_trusted
from sluice.router.user_check import find_obstacle

_STARTED = b"\0"  # report of a daemon that has started; any other report is an error text
_ENDED_SILENTLY = "the detached router ended before it had started"
_READ_SIZE = 65536  # octets


class DaemonError(Exception):
    """Raised when the daemon cannot be set up as the command line requires."""


class Daemon:
    """Either process after `detach`: the parent, which waits for the report, or the daemon, which sends it."""

    def __init__(self, pipe: int, child: int | None) -> None:
        self._pipe = pipe
        self._child = child

    @classmethod
    def detach(cls) -> "Daemon":
        """Fork, and return in both processes. The daemon is no session leader, so it cannot acquire a terminal.

        management.md 3.4.
        """
        reading, writing = os.pipe()
        child = os.fork()
        if child:
            os.close(writing)
            return cls(reading, child)
        os.close(reading)
        os.setsid()
        if os.fork():
            os._exit(0)
        return cls(writing, None)

    @property
    def is_parent(self) -> bool:
        """Whether this is the parent, the process started by the user."""
        return self._child is not None

    def outcome(self) -> str | None:
        """In the parent: wait for the daemon's report. Return None if it has started, else the error."""
        if self._child is not None:
            os.waitpid(self._child, 0)
        report = b""
        while octets := os.read(self._pipe, _READ_SIZE):
            report += octets
        os.close(self._pipe)
        if report == _STARTED:
            return None
        return report.decode("utf-8", "replace") or _ENDED_SILENTLY

    def settle(self, pidfile: str | None, user: str | None) -> None:
        """In the daemon: change directory, release the terminal, write the pid file, change the user.

        Raises DaemonError.
        """
        os.umask(0)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        if null > 2:
            os.close(null)
        if pidfile is not None:
            try:
                with open(open_trusted(pidfile, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC), "w") as file:
                    file.write(f"{os.getpid()}\n")
            except (OSError, ValueError) as error:
                raise DaemonError(f"Can't write pidfile {pidfile}") from error
        if user is not None:
            _become(user)

    def report(self, error: str | None) -> None:
        """In the daemon: report once to the parent that the daemon has started (None), or the error."""
        report = _STARTED if error is None else error.encode("utf-8", "backslashreplace")
        try:
            while report:
                report = report[os.write(self._pipe, report) :]
        except BrokenPipeError:
            pass  # the parent has been killed
        os.close(self._pipe)


def _become(user: str) -> None:
    """Change to `user`. The group stays the same, as in Dispatch. Raises DaemonError."""
    try:
        number = pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError) as error:
        raise DaemonError(f"Can't look up user {user}") from error
    try:
        if (obstacle := find_obstacle(lambda: os.setuid(number))) is not None:
            raise DaemonError(f"Can't become user {user}: that user cannot run the router: {obstacle}")
        os.setuid(number)
    except OSError as error:
        raise DaemonError(f"Can't become user {user}: {error.strerror}") from error
