"""Check one file in seconds: `check_file.py PATH [ARGUMENT of pytest]...` (`make check F=PATH`).

Build the compiled modules that the file is part of, run the tests that concern it, and lint it. Tests that start
processes are left out if there are others. Exit status: 0 if all steps succeed.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMPILED: Final = ("router", "workers", "supervisor", "pipeline")
PRODUCT: Final = COMPILED
CYTHON: Final = frozenset((".pyx", ".pxd", ".pxi"))
#: Folders whose tests mirror the tree.
TESTS: Final = (Path("tests", "component"), Path("tests", "unit"))
#: Tests of the fuzz targets, by the name of their table in tests/fuzz/targets.py.
FUZZ_TESTS: Final = {
    "PARSERS": "tests/fuzz/test_parsers.py::test_parser_survives_damaged_input",
    "ENGINE": "tests/fuzz/test_engine.py::test_conversations_with_router_keep_invariants",
    "NETWORK": "tests/fuzz/test_engine.py::test_conversations_with_router_keep_invariants",
    "PATHS": "tests/fuzz/test_engine.py::test_conversations_with_router_keep_invariants",
    "DELIVERIES": "tests/fuzz/test_deliveries.py::test_delivery_conversations_match_model",
}
NO_TESTS: Final = 5  # exit status of pytest if no test is selected
_CIMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?cimport[ \t]+(\([^)]*\)|[^\n#]+)", re.MULTILINE)
_FILE = re.compile(r"^[ \t]*(?:include|cdef extern from)[ \t]+\"([^\"]+)\"", re.MULTILINE)


# -- Build


def read_directly(path: Path) -> set[Path]:
    """Return the .pxd, .pxi and .h files that a Cython file names, as far as they are in the repository."""
    text = (ROOT / path).read_text("utf-8")
    found = {path.with_suffix(".pxd")}
    for module, names in _CIMPORT.findall(text):
        words = [word.split()[0] for word in names.strip("() \t\n").split(",") if word.strip()]
        modules = [module, *(f"{module}.{word}" for word in words)] if module else words
        found |= {_path(each).with_suffix(".pxd") for each in modules}
    for name in _FILE.findall(text):
        found |= {Path(os.path.normpath(path.parent / name)), Path(name)}
    return {each for each in found if each != path and (ROOT / each).is_file()}


class CythonSources:
    """Cython sources of the repository, with the files that each module is compiled from."""

    def __init__(self) -> None:
        paths = [
            path.relative_to(ROOT) for package in COMPILED for path in sorted((ROOT / package).rglob("*.p[xy][xdi]"))
        ]
        self._read = {path: read_directly(path) for path in paths if path.suffix in CYTHON}
        self.modules = [path for path in self._read if path.suffix == ".pyx"]

    def files(self, module: Path) -> set[Path]:
        """Return all files that a .pyx file is compiled from."""
        found = {module}
        waiting = [module]
        while waiting:
            new = self._read.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    def dependents(self, path: Path) -> list[Path]:
        """Return the .pyx files that are compiled from `path`, or from the .pxd file of the same module."""
        changed = {path, path.with_suffix(".pxd")}
        return [module for module in self.modules if changed & self.files(module)]

    def outdated(self) -> list[Path]:
        """Return the .pyx files whose compiled module is missing or older than its sources."""
        return [module for module in self.modules if not self._is_built(module)]

    def _is_built(self, module: Path) -> bool:
        built = list((ROOT / module.parent).glob(f"{module.stem}.cpython-*.so"))
        newest = max((ROOT / path).stat().st_mtime for path in self.files(module))
        return bool(built) and max(path.stat().st_mtime for path in built) >= newest


def build(modules: list[Path]) -> int:
    """Compile modules in place, in the release flavour and as setup.py does. Return the exit status."""
    os.environ.update(SLUICE_FLAVOUR="release", SLUICE_MODULES="all")
    # Imported here: a Python file needs no compiler.
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError

    from setup import BuildExtensions, extensions

    names = {_name(module) for module in modules}
    wanted = [extension for extension in extensions() if extension.name in names]
    distribution = Distribution({"ext_modules": wanted, "cmdclass": {"build_ext": BuildExtensions}})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    command.run = partial(build_ext.run, command)  # run of BuildExtensions removes all other modules
    try:
        distribution.run_command("build_ext")
    except (BaseError, SystemExit) as error:
        print(f"check: not built: {error}")
        return 1
    return 0


def _name(path: Path) -> str:
    """Return the name of the module of a file."""
    parts = path.with_suffix("").parts
    return ".".join(["sluice", *parts] if parts[0] in PRODUCT else parts).removesuffix(".__init__")


def _path(module: str) -> Path:
    """Return the path of a module's files, without suffix."""
    return Path(*module.removeprefix("sluice.").split("."))


# -- Tests


def imported(path: Path) -> set[str]:
    """Return the names of all modules, and of names in modules, that a Python file imports."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def tests_of(path: Path) -> list[Path]:
    """Return the unit and component tests of a file: the mirrored test files, and the files that import its module.

    Without such tests, return the mirrored folders.
    """
    if path.parts[0] == "tests":
        return [path] if path.name.startswith("test_") else _importers(_name(path))
    folders = [tests / path.parent for tests in TESTS]
    mirrored = [folder / f"test_{path.stem}.py" for folder in folders]
    found = {*(each for each in mirrored if (ROOT / each).is_file()), *_importers(_name(path))}
    return sorted(found) or [folder for folder in folders if (ROOT / folder).is_dir()]


def _importers(module: str) -> list[Path]:
    paths = (path.relative_to(ROOT) for tests in TESTS for path in sorted((ROOT / tests).rglob("test_*.py")))
    return [path for path in paths if module in imported(path)]


def fuzz_tests(path: Path) -> list[str]:
    """Return the tests of the fuzz targets that are named after the module or run its functions."""
    from tests.fuzz import targets  # imported here: needs all compiled modules

    found = []
    modules = {_name(path), f"sluice.router.testing.{path.stem}"}  # the latter gives tests access to the functions
    for table, test in FUZZ_TESTS.items():
        for name, target in getattr(targets, table).items():
            if name == path.stem or modules & _modules_used(target.run):
                found.append(f"{test}[{name}]")
    return found


def _modules_used(function: Any) -> set[str]:
    """Return the modules whose functions and classes a function of tests names, itself or by other functions."""
    found: set[str] = set()
    waiting = [function.func if isinstance(function, partial) else function]
    seen = set(waiting)
    while waiting:
        code, names = waiting[0].__code__, waiting.pop(0).__globals__
        for each in (names[name] for name in code.co_names if name in names):
            module = each.__name__ if isinstance(each, ModuleType) else getattr(each, "__module__", None)
            if isinstance(module, str):
                found.add(module)
            if hasattr(each, "__code__") and str(module).startswith("tests.") and each not in seen:
                seen.add(each)
                waiting.append(each)
    return found


# -- Steps


def _installed(path: Path) -> str:
    """Return the path of a file by which mypy derives the name of its module."""
    return str(Path("sluice", path) if path.parts[0] in PRODUCT else path)


def lint(path: Path) -> Iterator[list[str]]:
    """Yield the commands that lint a file."""
    if path.suffix in (".py", ".pyi"):
        yield ["ruff", "check", str(path)]
        yield ["mypy", _installed(path)]
    elif path.suffix in (".pyx", ".pxd"):
        yield ["cython-lint", str(path)]
        stub = path.with_suffix(".pyi")
        if (ROOT / stub).exists():
            yield ["mypy", _installed(stub)]


def run(command: list[str]) -> int:
    """Run a command of the environment in the repository. Return its exit status."""
    tools = Path(sys.executable).parent
    # cython-lint looks for pycodestyle on the path.
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run([tools / command[0], *command[1:]], cwd=ROOT, env=environment, check=False).returncode


def test(tests: list[str], arguments: list[str]) -> int:
    """Run tests with few examples that start no processes; if all of them start some, run these.

    Return pytest's exit status.
    """
    # A fuzz target forks, so it must be the only thread.
    options = ["-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", "--hypothesis-profile=quick"]
    command = ["pytest", *options, *tests, *arguments]
    status = run([*command, "-m", "not starts"])
    return run(command) if status == NO_TESTS else status


def timed(title: str, step: Callable[[], int]) -> bool:
    """Run a step, print its result and duration, and return True if its exit status is 0."""
    begun = time.monotonic()
    succeeded = step() == 0
    print(f"check: {title}: {'ok' if succeeded else 'FAILED'}, {time.monotonic() - begun:.1f} s", flush=True)
    return succeeded


def shown(paths: Iterable[object]) -> str:
    """Return paths as text, one a line."""
    return "".join(f"\n    {path}" for path in paths)


def build_for(path: Path, sources: CythonSources) -> bool:
    """Build the modules that a Cython file is part of. Return False if other modules are out of date, too, or fail."""
    translated = ROOT / "build" / "cython" / "release" / "translated"  # touched by setup.py
    if not translated.exists() or translated.stat().st_mtime < (ROOT / "setup.py").stat().st_mtime:
        print("check: all compiled modules are older than setup.py, run `make build`")
        return False
    modules = sources.dependents(path)
    print(f"check: {len(modules)} modules depend on {path}:{shown(modules)}")
    if not timed("build", partial(build, modules)):
        return False
    others = sources.outdated()
    if others:
        print(f"check: other compiled modules are out of date, run `make build`:{shown(others)}")
    return not others


def check(path: Path, arguments: list[str]) -> bool:
    """Build, test and lint one file. Return True if everything succeeds."""
    if path.suffix in CYTHON and not build_for(path, CythonSources()):
        return False
    tests: list[object] = [*tests_of(path)]
    if path.parts[0] in PRODUCT:
        tests += fuzz_tests(path)
    print(f"check: {len(tests)} test files, folders and fuzz targets:{shown(tests) or ' none'}", flush=True)
    steps: list[tuple[str, Callable[[], int]]] = [(" ".join(command), partial(run, command)) for command in lint(path)]
    if tests:
        steps.append(("tests", partial(test, [str(each) for each in tests], arguments)))
    results = [timed(title, step) for title, step in steps]
    return all(results)


def main(arguments: list[str]) -> int:
    """Check the file that the first argument names. Return the exit status."""
    path = Path(os.path.abspath(arguments[0])) if arguments else ROOT
    if not path.is_file() or not path.is_relative_to(ROOT) or path.suffix not in {".py", ".pyi", *CYTHON}:
        print("check: name a Python or Cython file of the repository: make check F=router/links/settlement.pyx")
        return 2
    return 0 if check(path.relative_to(ROOT), arguments[1:]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
