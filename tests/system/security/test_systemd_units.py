"""systemd units of conf/systemd: their syntax, their exposure, and a router under their restrictions."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sluice.router.client import Accepted, Message, connect
from tests.peer.pki import Pki, pki
from tests.system.fixtures import Start
from tests.system.router import ROOT, RouterProcess, command, listener, poll
from tests.system.security.confined import LIBRARY, allowed_calls

UNITS = ROOT / "conf" / "systemd"
SERVICES = ("sluice.service", "sluice@.service")
PIPELINE = ("sluice-lander@.service", "sluice-query@.service", "sluice-gc.service")
MOST_EXPOSURE = 30  # tenths; the scale of systemd-analyze ends at 10.0
PATIENCE = 20.0
CONFINED = Path(__file__).with_name("confined.py")

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing (Debian: apt-get install systemd)"
)


def libseccomp_exists() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words, "--no-pager"], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", [*SERVICES, *PIPELINE])
def test_services_exposure_is_at_most_three(name: str) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", str(UNITS / name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout


@pytest.mark.parametrize("name", [*SERVICES, *PIPELINE, "sluice.socket", "sluice-gc.timer"])
def test_units_have_no_errors(name: str, tmp_path: Path) -> None:
    """The command of the units is replaced by that of the checkout, because systemd looks for the program."""
    for unit in UNITS.glob("sluice*"):
        text = unit.read_text("utf-8").replace("/usr/bin/sluice", str(ROOT / ".venv" / "bin" / "sluice"))
        (tmp_path / unit.name).write_text(text)
    # An instance: systemd-analyze does not verify templates.
    done = analyze("verify", "--man=no", str(tmp_path / name.replace("@.", "@instance.")))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_services_differ_only_in_names() -> None:
    """The template has every line of the service, so that neither is hardened less."""
    service, template = ((UNITS / name).read_text("utf-8").splitlines()[1:] for name in SERVICES)
    names = {
        "/etc/sluice/router.conf": "/etc/sluice/%i.conf",
        "AMQP router": "AMQP router %i",
        "RuntimeDirectory=sluice": "RuntimeDirectory=sluice-%i",
        "LogsDirectory=sluice": "LogsDirectory=sluice/%i",
        "StateDirectory=sluice": "StateDirectory=sluice/%i",
    }
    text = "\n".join(service)
    for name, changed in names.items():
        text = text.replace(name, changed)
    assert template == text.splitlines()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def confined(start: Start, tmp_path: Path, authority: Pki) -> RouterProcess:
    """Return a router under the filters of the unit, with every kind of process.

    As root, its file system is read-only but for the test's folder, as with ProtectSystem=strict.
    """
    if not libseccomp_exists():
        pytest.skip(f"{LIBRARY} is missing (Debian: apt-get install libseccomp2)")
    sluice = command()[0]
    users = tmp_path / "users"
    words = [sluice, "passwd", str(users), "alice"]
    subprocess.run(words, input="secret\n", text=True, capture_output=True, timeout=60, check=True)
    program = [sys.executable, str(CONFINED), str(UNITS / "sluice.service"), sluice]
    mounts = f"mount --bind '{tmp_path}' '{tmp_path}' && mount -o remount,bind,ro /"
    unshare = ["unshare", "--mount", "sh", "-c"]
    probe = subprocess.run([*unshare, mounts], capture_output=True, timeout=60, check=False)
    if probe.returncode == 0:
        program = [*unshare, f'{mounts} && cd "{tmp_path}" && exec "$@"', "sh", *program]
    certificate = authority.server
    sections = [
        listener(),
        listener("named", saslUsers="people"),
        ("saslUsers", {"name": "people", "file": users}),
        ("sslProfile", {"name": "keys", "certFile": certificate.certificate, "privateKeyFile": certificate.key}),
        listener("tls", sslProfile="keys", requireSsl=True),
        listener("http", http=True),
        ("log", {"module": "AGENT", "enable": "info+", "outputFile": str(tmp_path / "router.log")}),
    ]
    return start(sections, 3, program=program)


def worker_pids(router: RouterProcess) -> list[int]:
    """Return the process ids of the workers, by the titles of the processes."""
    return [process.pid for process in router.family() if " ".join(process.cmdline()).startswith("sluice: worker")]


def test_router_under_the_unit_serves_and_replaces_workers(confined: RouterProcess) -> None:
    filters = Path(f"/proc/{confined.pid}/status").read_text()
    assert re.search(r"^Seccomp:\s+2$", filters, re.MULTILINE)
    first = worker_pids(confined)
    os.kill(first[0], signal.SIGKILL)
    poll(
        lambda: len(present := worker_pids(confined)) == len(first) and first[0] not in present,
        "the worker is replaced",
        PATIENCE,
    )
    with connect(f"127.0.0.1:{confined.port}", timeout=PATIENCE) as connection:
        receiver, sender = connection.receiver("a"), connection.sender("a")
        sending = sender.state.send(Message("x"))
        connection.poll()
        receiver.receive(timeout=PATIENCE).accept()
        connection.wait(lambda: sending.done, PATIENCE)
        assert sending.result() == Accepted()
    with connect(f"127.0.0.1:{confined.ports['named']}", login=("alice", "secret"), timeout=PATIENCE) as login:
        assert login.remote["container"]
    with urllib.request.urlopen(f"http://127.0.0.1:{confined.ports['http']}/metrics", timeout=PATIENCE) as page:
        assert "sluice_worker" in page.read().decode()
    assert "Operation not permitted" not in confined.log


def test_unit_refuses_calls_that_no_router_needs() -> None:
    allowed = allowed_calls((UNITS / "sluice.service").read_text("utf-8"))
    assert not allowed & {"mount", "reboot", "bpf", "init_module", "setuid", "ptrace", "chroot"}
    assert {"memfd_create", "pidfd_open", "sched_setaffinity", "prlimit64", "execve"} <= allowed
