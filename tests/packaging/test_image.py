"""The container image: built, unpacked, and run as a container would be, without a shell, root or a writable root."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from scripts.image_content import folder_octets
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import pass_one

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("mmdebstrap", "umoci", "bwrap", "strip")
MOST_OCTETS = 150_000_000  # size of the root file system
# Time from the start of the process to the line `Listening`: elapsed, or used if other programs run as well.
START_SECONDS = 1.0
STARTS = 5  # the fastest counts
EXIT_SECONDS = 15.0
CONFIGURATION = """
router {
    id: contained
    workerThreads: 2
}
log {
    module: DEFAULT
    enable: notice+
    outputFile: stderr
}
listener {
    name: amqp
    host: 127.0.0.1
    port: 0
    saslMechanisms: ANONYMOUS
}
listener {
    name: web
    host: 127.0.0.1
    port: 0
    http: yes
}
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Image:
    """Unpacked OCI image: its root file system, and the process that its configuration asks for."""

    def __init__(self, bundle: Path) -> None:
        self.root = bundle / "rootfs"
        self.process: dict[str, Any] = json.loads((bundle / "config.json").read_text())["process"]

    def path(self, text: str) -> Path:
        """Return the path of a file of the image on this machine."""
        return self.root / text.lstrip("/")


class ContainerOfImage:
    """Router that runs as process 1 in namespaces of its own, with a read-only root and no capability."""

    def __init__(self, image: Image, folder: Path) -> None:
        """Start the process. folder: mounted as /etc/sluice."""
        user = image.process["user"]
        reading, writing = os.pipe()
        mounts = ["--ro-bind", image.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        mounts += ["--tmpfs", "/dev/shm", "--ro-bind", folder, "/etc/sluice"]
        identity = ["--unshare-user", "--uid", user["uid"], "--gid", user["gid"], "--cap-drop", "ALL"]
        process = ["--unshare-pid", "--as-pid-1", "--unshare-ipc", "--die-with-parent", "--new-session", "--clearenv"]
        words = ["bwrap", *identity, *process, *mounts, "--info-fd", writing, *image.process["args"]]
        began = time.monotonic()
        self._process = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=[writing]
        )
        os.close(writing)
        with os.fdopen(reading) as info:
            self._child: int = json.load(info)["child-pid"]
        self.lines: list[str] = []
        self.ports = [self._next_port(), self._next_port()]
        self.elapsed_seconds = time.monotonic() - began
        times = [each.cpu_times() for each in psutil.Process(self._process.pid).children(recursive=True)]
        self.processor_seconds = sum(each.user + each.system for each in times)

    def _next_port(self) -> int:
        """Return the port of the next listener that opens."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if found := re.search(r"Listening on 127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise AssertionError(f"the router has ended: {''.join(self.lines)}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the router, and return its exit status."""
        os.kill(self._child, number)
        self._process.communicate(timeout=EXIT_SECONDS)
        return self._process.returncode

    def close(self) -> None:
        """End what is left of the container."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate(timeout=EXIT_SECONDS)


Start = Callable[[], ContainerOfImage]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    if os.geteuid() != 0:
        pytest.skip("only root can build the image")
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed (Debian: mmdebstrap umoci bubblewrap binutils)")
    built = subprocess.run([sys.executable, "scripts/build_image.py"], cwd=ROOT, stdin=subprocess.DEVNULL)
    assert built.returncode == 0
    bundle = tmp_path_factory.mktemp("image") / "bundle"
    subprocess.run(["umoci", "unpack", "--image", f"{ROOT / 'build/image/oci'}:sluice", bundle], check=True)
    return Image(bundle)


@pytest.fixture
def start(image: Image, tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "qdrouterd.conf").write_text(CONFIGURATION)
    # Another user reads the folder.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    running: list[ContainerOfImage] = []

    def start_container() -> ContainerOfImage:
        running.append(ContainerOfImage(image, tmp_path))
        return running[-1]

    yield start_container
    for container in running:
        container.close()


def test_image_listens_within_a_second(start: Start) -> None:
    elapsed, used = [], []
    for _ in range(STARTS):
        container = start()
        elapsed.append(container.elapsed_seconds)
        used.append(container.processor_seconds)
        assert container.stop() == 0
    print(f"start to `Listening`: {min(elapsed):.2f} s, {min(used):.2f} s of processor time")
    assert min(*elapsed, *used) <= START_SECONDS


def test_message_passes_through_container(start: Start) -> None:
    container = start()
    receiving, sending = (AmqpPeer.opened(container.ports[0]) for _ in range(2))
    receiver = receiving.receiver("orders", 10)
    pass_one(sending.sender("orders"), receiver)
    for peer in (receiving, sending):
        peer.close()
    assert container.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_container_exits_in_order_on_signal(start: Start, number: int) -> None:
    assert start().stop(number) == 0


def test_image_has_no_shell_and_nothing_privileged(image: Image) -> None:
    files = [path for path in image.root.rglob("*") if not path.is_symlink()]
    folders = [image.path(each) for each in ("bin", "usr/bin", "sbin", "usr/sbin")]
    programs = {path.name for folder in folders for path in folder.glob("*")}
    assert not {"sh", "bash", "dash", "perl", "pip", "apt", "dpkg"} & programs
    assert not [path for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert image.process["user"]["uid"] >= 10000
    assert image.process["args"][0] == "/usr/bin/sluice"
    assert not [path for path in files if "testing" in path.parts]


def test_image_is_small(image: Image) -> None:
    total = folder_octets(image.root)
    print(f"root file system: {total / 1e6:.1f} MB")
    assert total <= MOST_OCTETS


def test_bill_of_materials_names_every_package(image: Image) -> None:
    document = json.loads(image.path("/usr/share/sluice/sbom.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    named = {component["purl"].partition("?")[0] for component in document["components"]}
    assert len(named) == len(document["components"])
    # Shared libraries belong to packages that are named.
    for name in ("libc6", "libssl3", "libsasl2-2", "python3.11-minimal"):
        assert any(purl.startswith(f"pkg:deb/debian/{name}@") for purl in named)
    installed = {file.name.split("-")[0].replace("_", "-").lower() for file in image.root.rglob("*.dist-info")}
    python = [component for component in document["components"] if component["purl"].startswith("pkg:pypi/")]
    assert installed - {"sluice-router"} == {each["purl"][9:].partition("@")[0] for each in python}
    assert not [each for each in python if each["licenses"][0]["license"]["name"] == "unknown"]
