"""The wheel beside other projects of PyPI whose packages have the names of our folders."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from sluice.router.version import VERSION
from tests.unit.source_files import ROOT

#: Projects with a package `supervisor`, `pipeline`, `router`, `workers`. Not all can be built today.
OTHERS = ("supervisor", "pipeline", "router", "workers")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


class Environment:
    """Virtual environment with the libraries of this one, and without its checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        [self.packages] = folder.glob("lib/python*/site-packages")
        # A .pth file in a folder that another .pth file names has no effect, so the editable install is not found.
        (self.packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*PIP, "--python", self.bin / "python", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def install(self, what: str | Path) -> bool:
        return self.pip("install", "--no-deps", "--ignore-installed", what).returncode == 0

    def uninstall(self, name: str) -> None:
        self.pip("uninstall", "--yes", name).check_returncode()

    def output(self, command: str, *words: str | Path) -> str:
        done = subprocess.run(
            [self.bin / command, *words], cwd=self.folder, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def check_router(self) -> None:
        """Fail unless the installed commands and compiled modules work."""
        assert self.output("sluice", "version") == VERSION
        assert self.output("sluice", "check", ROOT / "conf" / "gateway.conf").endswith("gateway.conf: ok")
        where = self.output("python", "-c", "import sluice.workers.loop as loop; print(loop.__file__)")
        assert Path(where).is_relative_to(self.packages)

    def check_supervisord(self) -> None:
        """Fail unless the process manager works, with its web server."""
        assert self.output("supervisord", "--version")
        self.output("python", "-c", "from supervisor.web import StatusView")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts" / "build-wheel", folder], check=True, stdout=subprocess.DEVNULL, timeout=600)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


@pytest.mark.timeout(700)
@pytest.mark.xdist_group("wheel")
@pytest.mark.parametrize("ours_first", [True, False])
def test_wheel_beside_projects_of_same_names_works(wheel: Path, environment: Environment, ours_first: bool) -> None:
    if ours_first:
        assert environment.install(wheel)
    installed = [name for name in OTHERS if environment.install(name)]
    if "supervisor" not in installed:
        pytest.skip("PyPI's supervisor cannot be installed")
    if not ours_first:
        assert environment.install(wheel)
    environment.check_router()
    environment.check_supervisord()
    for name in installed:
        environment.uninstall(name)
    environment.check_router()
    assert environment.install("supervisor")
    environment.uninstall("sluice-router")
    environment.check_supervisord()
    assert not (environment.packages / "sluice").exists()
    assert not (environment.bin / "sluice").exists()
