"""CPU seconds to build each compiled module: `python -m scripts.build_times [PREFIX...]`, as a table.

Cython's seconds are those of each module alone. The release build takes a quarter of them, because its processes share
what they have read (scripts/translation.py).

A prefix selects modules by name, for example `sluice.router.table`. Modules are built one after the other in a
temporary folder, with the flags of the release flavour. Seconds are user and system time, which other load on the
machine changes less than elapsed time. The release build adds linking, about 0.02 s a module.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension

from scripts.translation import GARBAGE
from setup import RELEASE_DIRECTIVES, extensions


class Times(NamedTuple):
    """Costs of one module: seconds of Cython and of the C compiler, and the size of the C file in octets."""

    cython: float
    compiler: float
    size: int


def of_children(step: Callable[[], None]) -> float:
    """Run a step and return the CPU seconds of the processes that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    step()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def translate(extension: Extension, folder: str) -> None:
    """Run Cython in a process of its own. Raises SystemExit if the module has an error."""
    process = multiprocessing.get_context("fork").Process(target=_translate, args=(extension, folder))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"build_times: Cython cannot translate {extension.name}")


def _translate(extension: Extension, folder: str) -> None:
    import gc

    from Cython.Build import cythonize as untyped

    cythonize: Callable[..., object] = untyped
    gc.set_threshold(GARBAGE)
    cythonize([extension], build_dir=folder, compiler_directives=RELEASE_DIRECTIVES, force=True, quiet=True)


def compile_c(extension: Extension, source: Path) -> None:
    """Run the C compiler on the C file of a module. Raises CalledProcessError."""
    command = [word for name in ("CC", "CFLAGS", "CCSHARED") for word in shlex.split(sysconfig.get_config_var(name))]
    folders = [*extension.include_dirs, sysconfig.get_path("include")]
    includes = [f"-I{folder}" for folder in folders]
    target = source.with_suffix(".o")
    subprocess.run([*command, *includes, *extension.extra_compile_args, "-c", source, "-o", target], check=True)


def measure(extension: Extension) -> Times:
    """Build one module and return its costs."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, extension.sources[0]).with_suffix(".c")
        cython = of_children(lambda: translate(extension, folder))
        compiler = of_children(lambda: compile_c(extension, source))
        return Times(cython, compiler, source.stat().st_size)


def main(prefixes: list[str]) -> None:
    """Print a row for each module, the most expensive first, and their sum."""
    os.environ.update(SLUICE_FLAVOUR="release", SLUICE_MODULES="router")
    chosen = [each for each in extensions() if not prefixes or each.name.startswith(tuple(prefixes))]
    times = {each.name: measure(each) for each in chosen}
    print("| module | Cython, s | C compiler, s | C, kB |\n| --- | --- | --- | --- |")
    for name, one in sorted(times.items(), key=lambda item: -item[1].cython - item[1].compiler):
        print(f"| `{name}` | {one.cython:.2f} | {one.compiler:.2f} | {one.size / 1000:,.0f} |")
    cython, compiler, size = (sum(column) for column in zip(*times.values(), strict=True)) if times else (0.0, 0.0, 0)
    print(f"| {len(times)} modules | {cython:.1f} | {compiler:.1f} | {size / 1000:,.0f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
