"""Build a Debian package of the router, with all its libraries, by dpkg-deb alone.

The package has an environment of its own in /usr/lib/sluice, on the distribution's Python. Its libraries are copied
from the virtual environment of the checkout, so that the package has the tested versions and the build needs no
network. The router comes from a wheel of the checkout.
"""

from __future__ import annotations

import compileall
import gzip
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from scripts.wheel import build_wheel
from sluice.router.version import VERSION

ROOT: Final = Path(__file__).resolve().parents[1]
DEBIAN: Final = ROOT / "conf" / "debian"
SYSTEMD: Final = ROOT / "conf" / "systemd"
NAME: Final = "sluice-router"
COMMANDS: Final = ("sluice", "qdrouterd", "qdstat", "qdmanage")
HOME: Final = "usr/lib/sluice"
PYTHON: Final = "/usr/bin/python3"
# Files of the package by their place in the source tree.
FILES: Final = {
    SYSTEMD / "sluice.service": "usr/lib/systemd/system/sluice.service",
    SYSTEMD / "sluice@.service": "usr/lib/systemd/system/sluice@.service",
    SYSTEMD / "sluice.socket": f"usr/share/doc/{NAME}/examples/sluice.socket",
    SYSTEMD / "sysusers.conf": "usr/lib/sysusers.d/sluice.conf",
    SYSTEMD / "tmpfiles.conf": "usr/lib/tmpfiles.d/sluice.conf",
    ROOT / "conf" / "standalone.conf": "etc/sluice/router.conf",
    DEBIAN / "copyright": f"usr/share/doc/{NAME}/copyright",
    DEBIAN / "lintian-overrides": f"usr/share/lintian/overrides/{NAME}",
}
COMMAND: Final = """\
#!/{home}/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""


class BuildError(Exception):
    """Raised if the package cannot be built; the text is the reason."""


def run(*words: str | Path) -> str:
    """Run a command and return its output."""
    done = subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(str(word) for word in words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def libraries() -> list[Distribution]:
    """Return the distributions that the router needs, with those that they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in project["dependencies"]]
    while waiting:
        wanted = waiting.pop()
        own = distribution(wanted.name)
        if own.name in found:
            continue
        found[own.name] = own
        for text in own.requires or []:
            needed = Requirement(text)
            extras = {"", *wanted.extras}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return [found[name] for name in sorted(found)]


def copy_libraries(into: Path) -> None:
    """Copy the installed libraries, without their commands and bytecode."""
    for library in libraries():
        for file in library.files or []:
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                copy(source, into / file)


def copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def compress(source: Path, target: Path) -> None:
    """Write a compressed copy, equal for equal contents."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))
    target.chmod(0o644)


def copy_router(into: Path) -> None:
    """Copy the files of a wheel of the router."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(build_wheel(Path(folder))) as archive:
        archive.extractall(into)


def strip(folder: Path) -> None:
    """Remove debugging information of compiled modules, if binutils are installed."""
    program = shutil.which("strip")
    if program:
        for compiled in folder.rglob("*.so"):
            run(program, "--strip-unneeded", compiled)


def make_environment(stage: Path) -> None:
    """Create the Python environment of the router."""
    home = stage / HOME
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(PYTHON)
    (home / "pyvenv.cfg").write_text(f"home = {Path(PYTHON).parent}\ninclude-system-site-packages = false\n")
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    copy_libraries(packages)
    copy_router(packages)
    strip(packages / "sluice")
    # The service cannot write bytecode. It is valid whatever times dpkg gives to the files.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(packages, quiet=2, stripdir=str(stage), prependdir="/", invalidation_mode=mode)


def make_commands(stage: Path) -> None:
    """Write the commands, with links in /usr/bin."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    (stage / "usr" / "bin").mkdir(parents=True)
    for name in COMMANDS:
        module, function = scripts[name].split(":")
        path = stage / HOME / "bin" / name
        path.write_text(COMMAND.format(home=HOME, module=module, function=function))
        path.chmod(0o755)
        (stage / "usr" / "bin" / name).symlink_to(f"../lib/sluice/bin/{name}")


def copy_documents(stage: Path) -> None:
    """Make man pages and completions of shells, and copy them and the changelog."""
    run(sys.executable, "-m", "scripts.make_man")
    for page in sorted((ROOT / "build" / "man").iterdir()):
        compress(page, stage / "usr" / "share" / "man" / f"man{page.suffix[1:]}" / f"{page.name}.gz")
    for path in sorted(path for path in (ROOT / "build" / "completion").rglob("*") if path.is_file()):
        if path.name.startswith("_"):
            target = f"zsh/vendor-completions/{path.name}"
        elif path.suffix == ".fish":
            target = f"fish/vendor_completions.d/{path.name}"
        else:
            target = f"bash-completion/completions/{path.name.removesuffix('.bash')}"
        copy(path, stage / "usr" / "share" / target)
    compress(ROOT / "CHANGELOG.md", stage / "usr" / "share" / "doc" / NAME / "changelog.gz")


def files(stage: Path) -> Iterator[Path]:
    """Yield the regular files of the package."""
    for path in sorted(stage.rglob("*")):
        if path.is_file() and not path.is_symlink() and "DEBIAN" not in path.relative_to(stage).parts:
            yield path


def write_control(stage: Path, architecture: str) -> None:
    """Write the control files of the package."""
    control = stage / "DEBIAN"
    control.mkdir()
    size = sum(path.stat().st_size for path in files(stage)) // 1024
    text = (DEBIAN / "control").read_text("utf-8").format(
        version=VERSION, architecture=architecture, size=size, python=f"3.{sys.version_info.minor}",
        next_python=f"3.{sys.version_info.minor + 1}",
    )  # fmt: skip
    (control / "control").write_text(text)
    (control / "conffiles").write_text("/etc/sluice/router.conf\n")
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(stage)}\n" for path in files(stage))
    (control / "md5sums").write_text("".join(sums))
    for name in ("postinst", "prerm", "postrm"):
        copy(DEBIAN / name, control / name, 0o755)


def build() -> Path:
    """Build the package and return its path. Raises BuildError."""
    if shutil.which("dpkg-deb") is None:
        raise BuildError("dpkg-deb is missing: this command needs Debian or a system like it")
    theirs = run(PYTHON, "-c", "import sys; print(*sys.version_info[:2], sep='.')")
    if theirs != f"{sys.version_info.major}.{sys.version_info.minor}":
        text = f"the modules are compiled for Python {sys.version_info.major}.{sys.version_info.minor}"
        raise BuildError(f"{text}, but {PYTHON} is {theirs}: build with `make clean build PYTHON={PYTHON}`")
    architecture = run("dpkg", "--print-architecture")
    package = ROOT / "dist" / f"{NAME}_{VERSION}_{architecture}.deb"
    package.parent.mkdir(exist_ok=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="sluice-deb-") as folder:
        stage = Path(folder) / "stage"
        stage.mkdir()
        make_environment(stage)
        make_commands(stage)
        copy_documents(stage)
        for source, target in FILES.items():
            copy(source, stage / target)
        write_control(stage, architecture)
        # Equal commits make equal packages.
        os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct")
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", stage, package)
    return package


if __name__ == "__main__":
    try:
        print(build().relative_to(ROOT))
    except BuildError as failure:
        sys.exit(f"build-deb: {failure}")
