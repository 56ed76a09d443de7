"""Notifications to the service manager that has started the router: sd_notify(3), decision 0072.

The protocol is a datagram of lines `NAME=VALUE` to the socket in NOTIFY_SOCKET. The service manager reads it whether
the unit has Type=notify or, from systemd 253 on, Type=notify-reload.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Final

from sluice.router.config.entities import Configuration
from sluice.router.log import ProcessLog
from sluice.supervisor.subsystem import Subsystem

SOCKET: Final = "NOTIFY_SOCKET"
PERIOD: Final = "WATCHDOG_USEC"  # microseconds without a notification after which the router is restarted
WATCHED: Final = "WATCHDOG_PID"  # process that has to send the watchdog's notifications; any process if missing
RETRY_AFTER: Final = 0.1  # seconds until a notification is sent again, if the service manager's queue is full
MOST_WAITING: Final = 64  # notifications that wait for the queue; further ones are dropped
PER_PERIOD: Final = 2  # watchdog notifications in each period
MICROSECOND: Final = 1e-6


class ServiceManager(Subsystem):
    """Service manager of the router, if it has one. Owner: the supervisor.

    Watchdog notifications come from a timer of the event loop, so that a stalled loop sends none and is restarted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: ProcessLog,
        is_ending: Callable[[], bool],
        environment: MutableMapping[str, str],
    ) -> None:
        """Take the variables of the protocol out of `environment`, so that no child process notifies.

        variables: the values of SOCKET and PERIOD, for a process that takes over.
        """
        self._loop: Final = loop
        self._log: Final = log
        self._is_ending: Final = is_ending
        self.variables: Final = environment.pop(SOCKET, ""), environment.pop(PERIOD, "")
        self._address: Final = self._read_address(self.variables[0])
        self._interval: Final = self._read_interval(self.variables[1], environment.pop(WATCHED, ""))
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._status = ""
        self._reloads = 0  # reloads in progress
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def _read_address(self, value: str) -> str:
        """Return the address of the socket for the kernel; empty if there is none."""
        if value.startswith("@"):  # abstract
            return f"\0{value[1:]}"
        if value and not value.startswith("/"):
            self._log.warning("SERVER", f"{SOCKET}={value} is not supported: the service manager gets no notifications")
            return ""
        return value

    def _read_interval(self, period: str, process: str) -> float:
        """Return the seconds between watchdog notifications; 0: none."""
        if not self._address or not period or (process and process != str(os.getpid())):
            return 0.0
        if not period.isdecimal():
            self._log.warning("SERVER", f"{PERIOD}={period} is no number: the watchdog gets no notifications")
            return 0.0
        return int(period) * MICROSECOND / PER_PERIOD

    # Life of the router

    def start(self, configuration: Configuration) -> None:
        """Report that the listeners are open, and begin with watchdog notifications."""
        if self._socket is None or self._is_ending():
            return
        router = configuration.router
        workers = "1 worker" if router.workers == 1 else f"{router.workers} workers"
        self._status = f"Router {router.id} serves with {workers}"
        self._notify("READY=1", f"STATUS={self._status}")
        if self._interval:
            self._keep_alive()

    def hand_over(self, process: int) -> None:
        """Report the process that takes the place of this one, and nothing more."""
        self._notify(f"MAINPID={process}", f"STATUS=Process {process} takes over")
        self._close()

    def draining(self, seconds: float) -> None:
        """Report that the router drains before it exits, which may take this long, whatever TimeoutStopSec is."""
        extension = f"EXTEND_TIMEOUT_USEC={round(seconds / MICROSECOND)}"
        self._notify("STOPPING=1", extension, f"STATUS=Draining for at most {seconds:g} seconds")

    def stop(self) -> None:
        self._notify("STOPPING=1", "STATUS=Shutting down")
        self._close()

    def _close(self) -> None:
        for timer in (self._retry, self._watchdog):
            if timer is not None:
                timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _keep_alive(self) -> None:
        self._notify("WATCHDOG=1")
        self._watchdog = self._loop.call_later(self._interval, self._keep_alive)

    # Reloads

    def reload_begun(self) -> None:
        """Report that a reload begins. The time lets the service manager tell it from an earlier reload."""
        self._reloads += 1
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._notify("RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=Reloading the configuration")

    def reload_done(self, refusal: str | None) -> None:
        """Report that all workers use the configuration. refusal: why it is unchanged."""
        self._reloads -= 1
        if not self._reloads:
            suffix = f"; the last reload was refused: {refusal.splitlines()[0]}" if refusal else ""
            self._notify("READY=1", f"STATUS={self._status}{suffix}")

    # Datagrams

    def _notify(self, *lines: str) -> None:
        if self._socket is None or len(self._waiting) >= MOST_WAITING:
            return
        self._waiting.append("\n".join(lines).encode())
        if self._retry is None:
            self._send()

    def _send(self) -> None:
        """Send all notifications in order. Those that do not fit into the service manager's queue wait."""
        self._retry = None
        while self._waiting and self._socket is not None:
            try:
                self._socket.sendto(self._waiting[0], self._address)
            except BlockingIOError:
                self._retry = self._loop.call_later(RETRY_AFTER, self._send)
                return
            except OSError as error:
                text = f"The service manager does not get '{self._waiting[0].decode().partition(chr(10))[0]}'"
                self._log.warning("SERVER", f"{text}: {error.strerror or error}")
            self._waiting.popleft()
