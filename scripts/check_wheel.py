"""Check a wheel of the router: `python -m scripts.check_wheel WHEEL...`. Print its sizes and the libraries it needs.

A wheel for this interpreter is installed into an environment of its own, with the libraries of the present one. There
each compiled module is imported, and each command prints its version.

Exit status 1: a wheel has files that only tests or the build need, symbols or a search path of libraries that belong to
the build machine, a module that cannot be imported, or is larger than its bound, alone or installed with the libraries
that it requires.
"""

from __future__ import annotations

import compileall
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_string
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from scripts.dependency_report import runtime_closure, size

MOST_MEGABYTES: Final = 12.0
#: Bound of a clean installation without extras, with the bytecode that pip writes, without pip itself.
MOST_INSTALLED_MEGABYTES: Final = 60.0
#: Addition for a wheel that brings its own OpenSSL, which has 9 MB in version 3.5.
MOST_OPENSSL_MEGABYTES: Final = 10.0
NAMES: Final = ("sluice", "pyspark_amqp.py")
#: Suffixes of files that a wheel has.
SUFFIXES: Final = frozenset((".conf", ".css", ".gz", ".html", ".js", ".json", ".py", ".pyi", ".so", ".svg", ".typed"))
_NEEDED: Final = re.compile(r"\(NEEDED\).*\[(.+)\]")
_GLIBC: Final = re.compile(r"GLIBC_(\d+)\.(\d+)")
#: Program that imports modules and prints a line for each fault. Arguments: folder that must have them, their names.
_IMPORT: Final = """
import faulthandler, importlib, sys
faulthandler.enable()
for name in sys.argv[2:]:
    try:
        found = importlib.import_module(name).__file__
    except Exception as error:
        print(f"{name} cannot be imported: {type(error).__name__}: {error}", flush=True)
    else:
        if not found.startswith(sys.argv[1]):
            print(f"{name} was imported from {found}", flush=True)
"""


def wrong_names(names: list[str]) -> Iterator[str]:
    """Yield a text for each file that does not belong into a wheel, and for each that is missing."""
    for name in names:
        parts = Path(name).parts
        if parts[0].endswith((".dist-info", ".libs")):
            continue
        if parts[0] not in NAMES or Path(name).suffix not in SUFFIXES:
            yield f"{name} does not belong into a wheel"
        if "testing" in Path(name.partition(".")[0]).parts:
            yield f"{name} is for tests only"
    for wanted in ("sluice/router/version.py", "sluice/py.typed"):
        if wanted not in names:
            yield f"{wanted} is missing"
    if not any(re.match(r"sluice/workers/loop\..*\.so$", name) for name in names):
        yield "the compiled module of the event loop is missing"


def wrong_metadata(text: str) -> Iterator[str]:
    """Yield a text for each fault in the metadata of a wheel. text: of its METADATA."""
    metadata = message_from_string(text)
    for field in ("License-Expression", "Author", "Description-Content-Type", "Requires-Python", "Summary"):
        if not metadata[field]:
            yield f"METADATA has no {field}"
    urls = {str(each).split(",")[0] for each in metadata.get_all("Project-URL", [])}
    if not {"Documentation", "Source", "Changelog"} <= urls:
        yield f"METADATA has only these URLs: {', '.join(sorted(urls)) or 'none'}"
    description = metadata.get_payload()
    assert isinstance(description, str)
    for link in re.findall(r"\]\(([^)]+)\)", description):
        if not link.startswith(("https://", "#")):
            yield f"the description has a link that no index can follow: {link}"


def wrong_modules(folder: Path, *, libraries: bool) -> Iterator[str]:
    """Yield a text for each fault of the compiled modules of an unpacked wheel. libraries: it brings its own."""
    needed: set[str] = set()
    newest = (0, 0)
    for module in sorted(folder.rglob("*.so")):
        dynamic = subprocess.run(["readelf", "-dW", module], capture_output=True, text=True, check=True).stdout
        needed |= set(_NEEDED.findall(dynamic))
        if not libraries and ("(RUNPATH)" in dynamic or "(RPATH)" in dynamic):
            yield f"{module.relative_to(folder)} has a search path of libraries"
        sections = subprocess.run(["readelf", "-SW", module], capture_output=True, text=True, check=True).stdout
        if ".symtab" in sections or ".debug_info" in sections:
            yield f"{module.relative_to(folder)} is not stripped"
        versions = subprocess.run(["readelf", "-VW", module], capture_output=True, text=True, check=True).stdout
        newest = max([newest, *((int(major), int(minor)) for major, minor in _GLIBC.findall(versions))])
    print(f"    needs glibc {newest[0]}.{newest[1]} and {', '.join(sorted(needed))}")


def is_for_this_interpreter(wheel: Path) -> bool:
    """Return True if the tags in the name of a wheel fit this interpreter, machine and C library."""
    return not parse_wheel_filename(wheel.name)[3].isdisjoint(sys_tags())


def wrong_use(wheel: Path, modules: list[str], folder: Path) -> Iterator[str]:
    """Install a wheel for this interpreter into an environment in `folder`. Yield a text for each fault in its use.

    modules: names of its compiled modules.
    """
    venv.create(folder, with_pip=False)
    programs = set(folder.joinpath("bin").iterdir())
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python)]
    if subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel]).returncode:
        yield "pip cannot install it"
        return
    # The libraries, but not a checkout that is installed beside them: Python reads no .pth files in such a folder.
    packages = Path(sysconfig.get_path("platlib", vars={"base": str(folder), "platbase": str(folder)}))
    packages.joinpath("libraries.pth").write_text(sysconfig.get_path("platlib"))
    imported = subprocess.run([python, "-I", "-c", _IMPORT, packages, *modules], text=True, stdout=subprocess.PIPE)
    yield from imported.stdout.splitlines()
    if imported.returncode:
        yield f"importing its modules ended Python with status {imported.returncode}"
    for command in sorted(set(folder.joinpath("bin").iterdir()) - programs):
        version = subprocess.run([command, "--version"], capture_output=True, text=True)
        if version.returncode:
            yield f"{command.name} --version failed: {version.stderr.strip()}"


def installed_size(folder: Path, metadata: str) -> int:
    """Return the octets of an unpacked wheel and of the libraries it requires, with bytecode; compile it in `folder`.

    The sizes of the libraries are those of this environment. metadata: text of METADATA.
    """
    compileall.compile_dir(folder, quiet=1)
    own = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    required = message_from_string(metadata).get_all("Requires-Dist", [])
    libraries = runtime_closure([str(each) for each in required if "extra ==" not in str(each)])
    return own + sum(size(distribution(name), bytecode=True) for name in libraries)


def check(wheel: Path) -> list[str]:
    """Return the faults of a wheel; print its size and needs."""
    megabytes = wheel.stat().st_size / 1e6
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        unpacked = sum(each.file_size for each in archive.infolist()) / 1e6
        modules = sum(name.endswith(".so") for name in names)
        print(f"{wheel}: {megabytes:.1f} MB, {unpacked:.1f} MB unpacked, {modules} compiled modules")
        archive.extractall(folder)
        [file] = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(file).decode()
        libraries = any(Path(name).parts[0].endswith(".libs") for name in names)
        found = [
            *wrong_names(names),
            *wrong_metadata(metadata),
            *wrong_modules(Path(folder), libraries=libraries),
        ]
        if is_for_this_interpreter(wheel):
            compiled = [name.partition(".")[0].replace("/", ".") for name in names if name.endswith(".so")]
            with tempfile.TemporaryDirectory() as environment:
                found += wrong_use(wheel, compiled, Path(environment))
            print(f"    installed, and {len(compiled)} modules imported, with Python {sys.version.split()[0]}")
        else:
            print(f"    not imported: the wheel is not for Python {sys.version.split()[0]} on this machine")
        installed = installed_size(Path(folder), metadata) / 1e6
    print(f"    {installed:.1f} MB installed, with libraries and bytecode")
    most = MOST_INSTALLED_MEGABYTES + libraries * MOST_OPENSSL_MEGABYTES
    if installed > most:
        found.append(f"{installed:.1f} MB installed are more than {most:.0f} MB")
    if megabytes > MOST_MEGABYTES:
        found.append(f"{megabytes:.1f} MB are more than {MOST_MEGABYTES:.0f} MB")
    return found


def main(words: list[str]) -> int:
    """Check the wheels. Return the exit status."""
    status = 0
    for word in words:
        for text in check(Path(word)):
            print(f"{word}: {text}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
