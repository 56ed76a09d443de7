"""Build the container image: a root file system of Debian packages, packed as an OCI image.

    python scripts/build_image.py --root build/image/root    # only the root file system, as the Dockerfile does
    python scripts/build_image.py                            # also the OCI image in build/image/oci

Needs root, mmdebstrap and pip, and for the OCI image umoci. The router comes from a wheel of the built checkout; the
pipeline is left out. Prints the sizes of the parts, and writes the content of the image in the form of CycloneDX.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from scripts.image_content import (
    DebianPackage,
    folder_octets,
    list_debian_packages,
    list_python_packages,
    show_sizes,
    write_content,
)
from scripts.wheel import build_wheel

ROOT: Final = Path(__file__).resolve().parent.parent
SUITE: Final = "bookworm"
PYTHON: Final = "python3.11"
#: Debian packages that the router needs; apt adds those that they depend on.
PACKAGES: Final = (
    f"{PYTHON}-minimal",
    f"lib{PYTHON}-stdlib",
    "libssl3",
    "libsasl2-2",
    "libsasl2-modules",
    "libstdc++6",
    "ca-certificates",
)
#: Packages that others depend on only for their installation or for programs that the image does not run.
UNWANTED: Final = (
    "debconf",
    "dpkg",
    "libacl1",
    "libmd0",
    "libpcre2-8-0",
    "libselinux1",
    "libzstd1",
    "openssl",
    "perl-base",
    "tar",
)
#: Files of Debian packages that nothing in the image reads. Licences stay.
EXCLUDED: Final = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
    "/usr/share/bug/*",
    "/usr/lib/x86_64-linux-gnu/gconv/*",
    "/usr/lib/aarch64-linux-gnu/gconv/*",
)
INCLUDED: Final = ("/usr/share/doc/*/copyright",)
#: Parts of the standard library that a service does not use.
UNUSED_MODULES: Final = ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "unittest")
#: Number of the user and the group in the image. A number, because Kubernetes cannot check a name with runAsNonRoot.
USER: Final = 10001
IMAGE: Final = "sluice"


def run(*words: str | Path) -> None:
    """Run a command and end this program if the command fails."""
    status = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL).returncode
    if status:
        sys.exit(f"build_image: {words[0]} failed with status {status}")


def unpack_debian(root: Path, suite: str) -> list[DebianPackage]:
    """Unpack Debian packages into `root` without running their scripts, and return the list of packages.

    The descriptions of packages go to /var/lib/dpkg/status.d, where scanners for vulnerabilities look for them in
    images without dpkg.
    """
    status = root.parent / "status.d"
    shutil.rmtree(status, ignore_errors=True)
    status.mkdir(parents=True)
    describe = (
        'for deb in "$1"/var/cache/apt/archives/*.deb; do'
        f' file="{status}/$(dpkg-deb -f "$deb" Package)" && dpkg-deb -f "$deb" >"$file" &&'
        ' dpkg-deb --fsys-tarfile "$deb" | tar -t | sed "s|^\\.||" >"$file.files"; done'
    )
    filters = [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
    filters += [f"--dpkgopt=path-include={pattern}" for pattern in INCLUDED]
    options = ["--variant=extract", "--mode=chrootless", "--quiet", f"--include={','.join(PACKAGES)}", *filters]
    run("mmdebstrap", *options, f"--extract-hook={describe}", suite, root)
    remove_unwanted(root, status)
    target = root / "var/lib/dpkg/status.d"
    packages = list_debian_packages(status)
    shutil.rmtree(root / "var/lib/dpkg", ignore_errors=True)
    target.mkdir(parents=True)
    for package in packages:
        shutil.copyfile(status / package.name, target / package.name)
    shutil.rmtree(status)
    return packages


def remove_unwanted(root: Path, status: Path) -> None:
    """Remove the files of unwanted packages, and the packages from the list in `status`."""
    for name in UNWANTED:
        listed = status / f"{name}.files"
        if not listed.exists():
            continue
        for path in listed.read_text().splitlines():
            file = root / path.lstrip("/")
            if not path.endswith("/") and (file.is_symlink() or file.is_file()):
                file.unlink()
        listed.unlink()
        (status / name).unlink()


def tidy(root: Path) -> None:
    """Remove what installation left, and write the files that scripts of packages would have written."""
    for path in ("var/cache", "var/log", "var/lib/apt", "etc/apt", "dev", "var/lib/pam", "usr/share/debconf"):
        shutil.rmtree(root / path, ignore_errors=True)
    library = root / "usr/lib" / PYTHON
    for name in UNUSED_MODULES:
        shutil.rmtree(library / name, ignore_errors=True)
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(file.read_text() for file in certificates))
    shutil.rmtree(root / "usr/share/ca-certificates")
    # mmdebstrap copies the first three from the machine that builds; the others belong to programs that are not here.
    for path in ("etc/hostname", "etc/resolv.conf", "etc/fstab", "etc/cron.daily", "etc/dpkg", "etc/logrotate.d"):
        file = root / path
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
    (root / "etc/passwd").write_text(f"root:x:0:0:root:/:/\nsluice:x:{USER}:{USER}:sluice:/:/\n")
    (root / "etc/group").write_text(f"root:x:0:\nsluice:x:{USER}:\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    for path in ("dev", "proc", "sys", "tmp", "run", "etc/sluice"):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    delete_empty(root / "usr/share")


def delete_empty(folder: Path) -> None:
    """Delete the empty folders below `folder`."""
    for path, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(path):
            os.rmdir(path)


def install_python(root: Path, modules: Path) -> None:
    """Install the router's dependencies as wheels, and the router, below `modules`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-compile",
    )
    target = ("--target", modules, "--python-version", PYTHON.removeprefix("python"), "--only-binary=:all:")
    run(*pip, *target, "--constraint", ROOT / "constraints.txt", *project["dependencies"])
    shutil.rmtree(modules / "bin", ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        run(*pip, *target, "--no-deps", build_wheel(Path(made)))
    shutil.rmtree(modules / "bin", ignore_errors=True)
    shutil.rmtree(modules / "sluice" / "pipeline")
    (modules / "pyspark_amqp.py").unlink()
    for source in (*modules.rglob("*.pyx"), *modules.rglob("*.pxd"), *modules.rglob("*.pyi"), *modules.rglob("*.h")):
        source.unlink()
    for package in ("*/tests", "*/test"):
        for folder in modules.glob(package):
            shutil.rmtree(folder)
    libraries = [str(path) for path in modules.rglob("*.so*") if path.is_file()]
    run("strip", "--strip-unneeded", *libraries)
    write_commands(root, project["scripts"])


def write_commands(root: Path, scripts: dict[str, str]) -> None:
    """Write the router's commands. Their interpreter is that of the image."""
    for name, entry in scripts.items():
        module, function = entry.split(":")
        file = root / "usr/bin" / name
        file.write_text(
            f"#!/usr/bin/{PYTHON} -P\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        file.chmod(0o755)


def check_libraries(root: Path) -> None:
    """End this program if a library or an extension module of the image needs a library that is not in the image."""
    (loader,) = (root / "lib64").glob("ld-linux-*") if (root / "lib64").is_dir() else (root / "lib").glob("ld-linux-*")
    files = [file for file in root.rglob("*.so*") if file.is_file() and not file.is_symlink()]
    for file in (root / "usr/bin" / PYTHON, *files):
        if file.read_bytes()[:4] != b"\x7fELF":
            continue
        words = ["chroot", str(root), f"/{loader.relative_to(root)}", "--list", f"/{file.relative_to(root)}"]
        listed = subprocess.run(words, capture_output=True, text=True)
        lost = [line.split()[0] for line in listed.stdout.splitlines() if "not found" in line]
        if lost:
            sys.exit(f"build_image: {file.relative_to(root)} needs {', '.join(lost)}")


def compile_modules(root: Path, modules: Path) -> None:
    """Compile all modules with the interpreter of the image. A read-only router cannot do so when it starts."""
    inside = [f"/usr/lib/{PYTHON}", f"/{modules.relative_to(root)}"]
    words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", *inside]
    run("chroot", root, f"/usr/bin/{PYTHON}", *words)


def pack(root: Path, layout: Path) -> None:
    """Pack the root file system as the OCI image `sluice` in folder `layout`."""
    shutil.rmtree(layout, ignore_errors=True)
    image = f"{layout}:{IMAGE}"
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", image)
    run("umoci", "insert", "--image", image, root, "/")
    settings = [
        f"--config.user={USER}:{USER}",
        "--config.entrypoint=/usr/bin/sluice",
        "--config.cmd=run",
        "--config.cmd=-c",
        "--config.cmd=/etc/sluice/qdrouterd.conf",
        "--config.exposedports=5672",
        "--config.exposedports=8888",
        "--config.stopsignal=SIGTERM",
        "--config.env=SLUICE_SHUTDOWN_GRACE_SECONDS=6",
        "--config.workingdir=/",
    ]
    run("umoci", "config", "--image", image, *settings)
    run("umoci", "gc", "--layout", layout)


def missing(needed: Iterable[str]) -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in needed if shutil.which(name) is None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the image. Returns the exit status: 2 if a program or a right is missing."""
    parser = argparse.ArgumentParser(description="Build the container image of the router.")
    parser.add_argument("--root", type=Path, help="build only the root file system, in this folder")
    parser.add_argument("--suite", default=SUITE, help="release of Debian, or the path of a sources.list")
    given = parser.parse_args(arguments)
    needed = ("mmdebstrap", "dpkg-deb", "chroot", "strip", *(() if given.root else ("umoci",)))
    if lacking := missing(needed):
        print(f"build_image: install {', '.join(lacking)} (Debian: mmdebstrap umoci binutils)", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("build_image: only root can build the root file system", file=sys.stderr)
        return 2
    root: Path = (given.root or ROOT / "build/image/root").resolve()
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    debian = unpack_debian(root, given.suite)
    tidy(root)
    modules = root / "usr/lib/python3/dist-packages"
    modules.mkdir(parents=True, exist_ok=True)
    install_python(root, modules)
    compile_modules(root, modules)
    check_libraries(root)
    content = root / "usr/share/sluice/sbom.cdx.json"
    content.parent.mkdir(parents=True)
    write_content(content, debian, list_python_packages(modules))
    show_sizes(root, modules)
    if not given.root:
        layout = root.parent / "oci"
        pack(root, layout)
        print(f"image {layout}:{IMAGE}: {folder_octets(layout) / 1e6:.1f} MB compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
