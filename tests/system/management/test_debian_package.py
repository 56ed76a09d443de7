"""Debian package: built, installed in a fresh system, used, and purged."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.router.client import Accepted, Message, connect
from tests.system.router import ROOT, free_port

SYSTEM = ROOT / "build" / "deb" / "bookworm.tar"
INCLUDED = "python3,libsasl2-2,libssl3,libstdc++6,systemd-standalone-sysusers,systemd-standalone-tmpfiles"
COMMANDS = ("sluice", "qdrouterd", "qdstat", "qdmanage")
PATIENCE = 60.0
# Files of dpkg, apt and user management, which change with every package.
ANY_PACKAGE = re.compile(
    r"^(var/lib/(dpkg|apt)|var/cache|var/log|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|etc/\.pwd\.lock)"
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(800)]


def run(*words: str | Path, timeout: float = 300.0) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def package() -> Path:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing: not a Debian system")
    built = run(ROOT / "scripts" / "build-deb").splitlines()[-1]
    return ROOT / built


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Path]:
    """Return the root of a fresh Debian, which is unpacked from a file that is made once."""
    if os.getuid() != 0:
        pytest.skip("only root can use chroot")
    if not SYSTEM.exists():
        if shutil.which("mmdebstrap") is None:
            pytest.skip("mmdebstrap is missing (Debian: apt-get install mmdebstrap)")
        SYSTEM.parent.mkdir(parents=True, exist_ok=True)
        new = SYSTEM.with_suffix(".new.tar")
        made = subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={INCLUDED}", "bookworm", str(new)],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"mmdebstrap cannot make a system here: {made.stderr.splitlines()[-1:]}")
        new.rename(SYSTEM)
    root = tmp_path / "system"
    root.mkdir()
    run("tar", "-xf", SYSTEM, "-C", root, "--exclude=./dev/*")
    for device in ("null", "urandom"):
        run("cp", "-a", f"/dev/{device}", root / "dev" / device)
    (root / "dev" / "shm").mkdir(mode=0o1777)
    (root / "dev" / "shm").chmod(0o1777)
    run("mount", "-t", "proc", "proc", root / "proc")
    try:
        yield root
    finally:
        run("umount", root / "proc")


def contents(root: Path) -> set[str]:
    """Return the paths of a system, without those that any package changes."""
    found = set()
    for folder, folders, names in os.walk(root):
        if folder == str(root):
            folders[:] = [name for name in folders if name not in ("proc", "dev", "sys", "tmp", "run")]
        for name in (*folders, *names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if not ANY_PACKAGE.match(path):
                found.add(path)
    return found


def users(root: Path) -> list[str]:
    return sorted(
        (root / "etc" / "passwd").read_text().splitlines() + (root / "etc" / "group").read_text().splitlines()
    )


def test_package_has_all_parts(package: Path) -> None:
    listed = {line.split()[5].removeprefix("./") for line in run("dpkg-deb", "--contents", package).splitlines()}
    assert {f"usr/bin/{name}" for name in COMMANDS} <= listed
    assert {
        "etc/sluice/router.conf",
        "usr/lib/systemd/system/sluice.service",
        "usr/lib/systemd/system/sluice@.service",
        "usr/lib/sysusers.d/sluice.conf",
        "usr/lib/tmpfiles.d/sluice.conf",
    } <= listed
    assert not [path for path in listed if "testing" in path and "/sluice/router/" in path]
    assert {
        f"usr/share/man/{page}.gz" for page in ("man1/sluice-run.1", "man5/sluice.conf.5", "man8/qdstat.8")
    } <= listed
    assert {
        "usr/share/bash-completion/completions/sluice",
        "usr/share/zsh/vendor-completions/_sluice",
        "usr/share/fish/vendor_completions.d/sluice.fish",
    } <= listed
    assert run("dpkg-deb", "--info", package, "conffiles") == "/etc/sluice/router.conf\n"


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is missing (Debian: apt-get install lintian)")
def test_package_has_no_errors_of_lintian(package: Path) -> None:
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error", str(package)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert [line for line in done.stdout.splitlines() if line.startswith("E:")] == []
    assert done.returncode == 0, done.stderr


def test_package_in_a_fresh_system_runs_and_leaves_nothing_after_purge(package: Path, system: Path) -> None:
    before, users_before = contents(system), users(system)
    shutil.copy(package, system / "tmp" / "package.deb")
    run("chroot", system, "dpkg", "--install", "/tmp/package.deb")
    assert re.search(r"^sluice:", (system / "etc" / "passwd").read_text(), re.MULTILINE)
    configuration = system / "etc" / "sluice" / "router.conf"
    assert configuration.stat().st_mode & 0o777 == 0o640
    for name in COMMANDS:
        assert run("chroot", system, f"/usr/bin/{name}", "--version" if name != "sluice" else "version")
    port = free_port()
    text = (
        configuration.read_text()
        .replace("port: amqp  ", f"port: {port}  ")
        .replace("port: 8672", f"port: {free_port()}")
    )
    configuration.write_text(text.replace("host: localhost", "host: 127.0.0.1"))
    command = [
        "chroot",
        "--userspec=sluice:sluice",
        str(system),
        "/usr/bin/sluice",
        "run",
        "-c",
        "/etc/sluice/router.conf",
    ]
    router = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert router.stderr is not None
        lines = []
        for line in router.stderr:
            lines.append(line)
            if f"Listening on 127.0.0.1:{port}" in line:
                break
        else:
            raise AssertionError("".join(lines))
        with connect(f"127.0.0.1:{port}", timeout=PATIENCE) as client:
            receiver = client.receiver("a", timeout=PATIENCE)
            sending = client.sender("a").state.send(Message("x"))
            client.poll()
            receiver.receive(timeout=PATIENCE).accept()
            client.wait(lambda: sending.done, PATIENCE)
            assert sending.result() == Accepted()
        assert "Standalone" in run("chroot", system, "/usr/bin/qdstat", "-g", "-b", f"127.0.0.1:{port}")
    finally:
        router.send_signal(signal.SIGTERM)
        router.communicate(timeout=PATIENCE)
    assert router.returncode == 0
    # A changed configuration survives an update and a removal, also with other rights.
    configuration.chmod(0o600)
    run("chroot", system, "dpkg", "--install", "/tmp/package.deb")
    assert configuration.stat().st_mode & 0o777 == 0o600
    run("chroot", system, "dpkg", "--remove", "sluice-router")
    assert f"port: {port}" in configuration.read_text()
    (system / "var" / "log" / "sluice" / "old.log").write_text("x")
    run("chroot", system, "dpkg", "--purge", "sluice-router")
    assert contents(system) - before == set()
    assert before - contents(system) == set()
    assert users(system) == users_before
