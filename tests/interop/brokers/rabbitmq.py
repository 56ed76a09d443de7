"""RabbitMQ 3.10 of Debian with its AMQP 1.0 plugin and an epmd process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.interop.brokers.process import START_LIMIT, STOP_LIMIT, TOOLS, BrokerError, BrokerProcess, require
from tests.system.router import free_port

#: Milliseconds until Mnesia moves a change of the database from its log into a table. A kill may lose the log's end.
DUMP_AFTER = 500
TABLES = ("rabbit_durable_queue.DCD", "rabbit_durable_queue.DCL")
CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users.guest = true
amqp1_0.default_user = guest
amqp1_0.default_vhost = /
vm_memory_high_watermark.absolute = 256MB
disk_free_limit.absolute = 10MB
"""


class RabbitMQ(BrokerProcess):
    """RabbitMQ process; ANONYMOUS logs in as the user guest.

    An attach to NAME or /queue/NAME creates the queue; the queue of /amq/queue/NAME must exist. The broker has no
    transactions and no selectors over AMQP 1.0.
    """

    name = "RabbitMQ"
    user = "guest"
    password = "guest"

    def prepare(self) -> None:
        """See the base class."""
        root = require(TOOLS / "rabbitmq", "rabbitmq")
        self._erlang = root / "usr" / "lib" / "erlang" / "bin"
        self._scripts = next((root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*")) / "sbin"
        self._epmd_port, self._distribution_port = free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        (self.directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (self.directory / "rabbitmq.conf").write_text(CONFIGURATION.format(port=self.port))

    def existing(self, queue: str) -> str:
        """See the base class. A plain name declares the queue again, which fails for a durable one."""
        return f"/amq/queue/{queue}"

    def wait_until_kept(self, queue: str) -> None:
        """See the base class. A killed RabbitMQ forgets a queue created just before, but accepts messages for it."""
        deadline = time.monotonic() + START_LIMIT
        while not self._has_stored(queue.encode()):
            if time.monotonic() > deadline:
                raise BrokerError(f"{self.name} did not store {queue} within {START_LIMIT:g} s:\n{self.tail()}")
            time.sleep(0.05)

    def _has_stored(self, queue: bytes) -> bool:
        return any(queue in path.read_bytes() for name in TABLES for path in self.directory.glob(f"mnesia/*/{name}"))

    def logs(self) -> list[Path]:
        """See the base class. After its banner, RabbitMQ writes only to log files."""
        return [self.log, *sorted((self.directory / "log").glob("*.log"))]

    def command(self) -> list[str]:
        """See the base class."""
        return [str(self._scripts / "rabbitmq-server")]

    def environment(self) -> dict[str, str]:
        """See the base class. All files are in the broker's folder, and all its listeners are on loopback."""
        here = self.directory
        return {
            "PATH": f"{self._erlang}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "HOME": str(here),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"sluice-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_PID_FILE": str(self._pid_file),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-mnesia dump_log_time_threshold {DUMP_AFTER}",
            "RABBITMQ_GENERATED_CONFIG_DIR": str(here / "generated"),
        }

    @property
    def _pid_file(self) -> Path:
        """File with the process id of the broker, which is a child of the started script."""
        return self.directory / "pid"

    def spawn(self) -> None:
        """See the base class. Starts epmd, the node register of Erlang, as a child: the broker would leave it."""
        self._pid_file.unlink(missing_ok=True)
        if self._epmd is None:
            words = [str(self._erlang / "epmd"), "-address", "127.0.0.1", "-port", str(self._epmd_port)]
            self._epmd = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=self.environment())
        super().spawn()

    def signal_broker(self, number: int) -> None:
        """See the base class."""
        os.kill(int(self._pid_file.read_text()), number)

    def stop(self) -> None:
        """See the base class."""
        try:
            super().stop()
        finally:
            if self._epmd is not None:
                self._epmd.send_signal(signal.SIGTERM)
                self._epmd.wait(STOP_LIMIT)
                self._epmd = None
