"""Content of the container image: its packages as a bill of materials in the form of CycloneDX, and its sizes."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from sluice.router.version import VERSION

#: Version of the CycloneDX specification; https://cyclonedx.org/docs/1.5/json
SPECIFICATION: Final = "1.5"
LARGEST: Final = 12  # number of Python packages and Debian files listed by size


class DebianPackage(Struct, frozen=True, order=True):
    """Package of Debian in the image."""

    name: str
    version: str
    architecture: str
    source: str


class PythonPackage(Struct, frozen=True, order=True):
    """Distribution of the Python package index in the image."""

    name: str
    version: str
    licence: str


def list_debian_packages(status: Path) -> list[DebianPackage]:
    """Return the packages that are described in folder `status`, one control file each."""
    found = []
    for file in status.iterdir():
        if file.suffix != ".files":
            fields = HeaderParser().parsestr(file.read_text())
            source = (fields["Source"] or fields["Package"]).split()[0]
            found.append(DebianPackage(fields["Package"], fields["Version"], fields["Architecture"], source))
    return sorted(found)


def list_python_packages(modules: Path) -> list[PythonPackage]:
    """Return the distributions that are installed in folder `modules`."""
    found = distributions(path=[str(modules)])
    return sorted(PythonPackage(each.metadata["Name"], each.version, _licence(each)) for each in found)


def _licence(distribution: Distribution) -> str:
    """Return the licence of a distribution as an SPDX expression or, if it gives none, as it names it."""
    metadata = distribution.metadata
    for field in ("License-Expression", "License"):
        if given := metadata.get_all(field):
            return str(given[0]).split("\n")[0]
    classifiers = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if "License" in each]
    return "; ".join(classifiers) or "unknown"


def write_content(file: Path, debian: Iterable[DebianPackage], python: Iterable[PythonPackage]) -> None:
    """Write the bill of materials of an image. The same packages make the same file."""
    components = [*map(_debian_component, debian)]
    components += [_python_component(each) for each in python if each.name != "sluice-router"]
    router = {"type": "application", "bom-ref": "sluice", "name": "sluice-router", "version": VERSION}
    router_licence = {"licenses": [{"license": {"id": "Apache-2.0"}}], "purl": f"pkg:pypi/sluice-router@{VERSION}"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {"component": router | router_licence},
        "components": components,
        "dependencies": [{"ref": "sluice", "dependsOn": [each["bom-ref"] for each in components]}],
    }
    file.write_text(json.dumps(document, indent=1) + "\n")


def _debian_component(package: DebianPackage) -> dict[str, Any]:
    url = f"pkg:deb/debian/{_quote(package.name)}@{_quote(package.version)}"
    url += f"?arch={package.architecture}&upstream={_quote(package.source)}"
    return {"type": "library", "bom-ref": url, "name": package.name, "version": package.version, "purl": url}


def _python_component(package: PythonPackage) -> dict[str, Any]:
    # Package URLs name distributions of PyPI in lower case, with hyphens.
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    url = f"pkg:pypi/{name}@{_quote(package.version)}"
    component = {"type": "library", "bom-ref": url, "name": package.name, "version": package.version, "purl": url}
    return component | {"licenses": [{"license": {"name": package.licence}}]}


def _quote(text: str) -> str:
    """Return `text` with the characters escaped that have a meaning in a package URL."""
    return "".join(each if each.isalnum() or each in ".-_~" else f"%{ord(each):02X}" for each in text)


def folder_octets(folder: Path) -> int:
    """Return the sum of the sizes of all files below `folder`. A file with several links counts once."""
    seen: dict[int, int] = {}
    for file in _files(folder):
        status = file.lstat()
        seen[status.st_ino] = status.st_size
    return sum(seen.values())


def _files(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        for name in names:
            yield Path(path, name)


def show_sizes(root: Path, modules: Path) -> None:
    """Print the size of the root file system, of its parts, and of the largest packages of Python."""
    total, python = folder_octets(root), folder_octets(modules)
    router = folder_octets(modules / "sluice")
    standard = folder_octets(next((root / "usr/lib").glob("python3.*")))
    parts = {
        "router": router,
        "its Python dependencies": python - router,
        "Python's standard library": standard,
        "Debian, with the interpreter": total - python - standard,
    }
    print(f"root file system {root}: {total / 1e6:.1f} MB")
    for name, octets in parts.items():
        print(f"  {octets / 1e6:6.1f} MB  {name}")
    folders = ((folder_octets(path), path.name) for path in modules.iterdir() if path.is_dir())
    for octets, name in sorted(folders, reverse=True)[:LARGEST]:
        print(f"      {octets / 1e6:6.1f} MB  {name}")
