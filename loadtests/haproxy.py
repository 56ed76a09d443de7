"""HAProxy as the reference for TLS (one thread, TCP mode, TLS 1.3 with AES-128-GCM), and the certificate for both."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from loadtests.processes import MeasureError
from tests.system.router import free_port

CIPHER: Final = "TLS_AES_128_GCM_SHA256"
START_LIMIT: Final = 10.0  # seconds
LISTEN: Final = "0A"  # state LISTEN in /proc/net/tcp
DEBIAN_PATH: Final = "/usr/sbin"
SETTINGS: Final = f"""\
global
    nbthread 1
    maxconn 8000
    ssl-default-bind-ciphersuites {CIPHER}
    ssl-default-server-ciphersuites {CIPHER}
defaults
    mode tcp
    timeout connect 5s
    timeout client 120s
    timeout server 120s
"""


class Certificate:
    """Self-signed ECDSA certificate (prime256v1) for 127.0.0.1, in files that live as long as the object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-tls-")
        folder = Path(self._folder.name)
        self.key, self.certificate, self.both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
        request = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
            "-keyout", str(self.key), "-out", str(self.certificate),
        ]  # fmt: skip
        made = subprocess.run(request, capture_output=True, text=True, check=False)
        if made.returncode:
            raise MeasureError(f"openssl: {made.stderr.strip()}")
        self.both.write_text(self.certificate.read_text() + self.key.read_text())


class Haproxy:
    """HAProxy front ends with TLS: `pid` and `ports` after entry.

    to: back end of each, as (port, True if it uses TLS); None: close after the handshake.
    """

    pid: int

    def __init__(self, certificate: Certificate, to: Sequence[tuple[int, bool] | None]) -> None:
        self.ports = [free_port() for _ in to]
        self._text = SETTINGS
        for number, (port, target) in enumerate(zip(self.ports, to, strict=True)):
            server = ""
            if target is not None:
                server = f"server s 127.0.0.1:{target[0]} {'ssl verify none' if target[1] else ''}"
            self._text += f"""\
frontend f{number}
    bind 127.0.0.1:{port} ssl crt {certificate.both}
    default_backend b{number}
backend b{number}
    {server}
"""

    def __enter__(self) -> Self:
        program = shutil.which("haproxy") or shutil.which("haproxy", path=DEBIAN_PATH)
        if program is None:
            raise MeasureError("haproxy is missing (apt-get install haproxy)")
        self._folder = tempfile.TemporaryDirectory(prefix="bench-haproxy-")
        configuration = Path(self._folder.name) / "haproxy.cfg"
        configuration.write_text(self._text)
        self._process = subprocess.Popen(
            [program, "-q", "-db", "-f", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.pid = self._process.pid
        until = time.monotonic() + START_LIMIT
        while not all(listens(port) for port in self.ports):
            if self._process.poll() is not None or time.monotonic() > until:
                self._process.kill()
                _, complaints = self._process.communicate()
                self._folder.cleanup()
                raise MeasureError(f"haproxy does not listen: {complaints.decode(errors='replace').strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()


def listens(port: int) -> bool:
    """Return True if a process listens on the port. Reads /proc: HAProxy would forward a probing connection."""
    sockets = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1].endswith(f":{port:04X}") and fields[3] == LISTEN for fields in map(str.split, sockets))
