"""Print a table of the runtime dependencies in this environment: version, licence, size, import time.

    .venv/bin/python scripts/dependency_report.py

Direct dependencies are those in pyproject.toml; the others are required by these. Sizes are those of the installed
files, without bytecode. Import times are processor times of a new interpreter, best of five, without those of a bare
interpreter.
"""

import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ATTEMPTS: Final = 5  # new interpreters per import time
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRAS: Final = re.compile(r"\[([^\]]*)\]")
_PUNCTUATION: Final = re.compile(r"[-_.]+")
#: Licences as SPDX identifiers, of packages whose metadata has other words.
_LICENCES: Final = {"Apache Software License": "Apache-2.0", "Apache 2.0": "Apache-2.0", "MIT License": "MIT"}


def normalised(name: str) -> str:
    """Return the name of a distribution as PEP 503 writes it."""
    return _PUNCTUATION.sub("-", name).lower()


def split_requirement(requirement: str) -> tuple[str, frozenset[str]]:
    """Return the name and the extras in a requirement such as `PyJWT[crypto]>=2.10`."""
    name = _NAME.match(requirement)
    if name is None:
        raise ValueError(f"{requirement!r} is not a requirement")
    extras = _EXTRAS.match(requirement, name.end())
    return normalised(name.group()), frozenset(extras.group(1).split(",") if extras else ())


def installed_requirements(found: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the requirements that apply with these extras. Those for other platforms or versions are left out."""
    for line in found.requires or []:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"""extra == ["']([^"']+)["']""", marker)
        if extra and extra.group(1) not in extras:
            continue
        name, wanted = split_requirement(requirement.strip())
        try:
            distribution(name)
        except ModuleNotFoundError:  # its marker excludes it here
            continue
        yield name, wanted


def runtime_closure(direct: list[str]) -> dict[str, str]:
    """Return direct dependencies and what they require: for each name the one that requires it, "" if direct."""
    parents: dict[str, str] = {}
    waiting = [(*split_requirement(each), "") for each in direct]
    while waiting:
        name, extras, parent = waiting.pop(0)
        if name in parents:
            continue
        parents[name] = parent
        waiting += [(*each, name) for each in installed_requirements(distribution(name), extras)]
    return parents


def size(found: Distribution, *, bytecode: bool = False) -> int:
    """Return the octets of the installed files. bytecode: include that which pip has written."""
    paths = [Path(str(found.locate_file(each))) for each in found.files or [] if bytecode or each.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())


def licence(found: Distribution) -> str:
    """Return the licence as its metadata states it."""
    stated = found.metadata.get_all("License-Expression") or found.metadata.get_all("License") or [""]
    text = str(stated[0]).partition("\n")[0]
    if not text or len(text) > 40:
        names = [each for each in found.metadata.get_all("Classifier") or [] if each.startswith("License ::")]
        text = names[0].rpartition(" :: ")[2] if names else "?"
    return _LICENCES.get(text, text)


def modules(found: Distribution) -> list[str]:
    """Return the top-level modules that users of a distribution import."""
    tops = {str(each).split("/")[0] for each in found.files or [] if str(each).endswith((".py", ".so"))}
    names = {top.split(".")[0] for top in tops if "dist-info" not in top}
    return sorted(name for name in names if name.isidentifier() and not name.startswith("_"))


def processor_ms(code: str) -> float:
    """Return the least processor time of an interpreter that runs `code`, in ms."""
    times = []
    for _ in range(ATTEMPTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1000


def main() -> None:
    """Print the table, the direct dependencies first."""
    direct = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    parents = runtime_closure(direct)
    idle = processor_ms("pass")
    print("| package | version | licence | MB | import, ms | needed by |\n| --- | --- | --- | ---: | ---: | --- |")
    total = 0
    for name in sorted(parents, key=lambda each: (bool(parents[each]), each)):
        found = distribution(name)
        octets = size(found)
        total += octets
        code = "import " + ", ".join(modules(found))
        spent = max(0.0, processor_ms(code) - idle)
        needed = parents[name] or "Sluice"
        print(f"| {name} | {found.version} | {licence(found)} | {octets / 1e6:.1f} | {spent:.0f} | {needed} |")
    print(f"| in all | | | {total / 1e6:.1f} | | |")


if __name__ == "__main__":
    main()
