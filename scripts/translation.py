"""Translation of Cython modules to C, in processes that share what they have read.

Most of the time that Cython takes for a module goes into the .pxd files that the module cimports, directly or not: 30
of them on average, of 110 in all. A process reads .pxd files that several modules cimport, then forks a process for
each of these modules, or for a group of them that has further .pxd files in common. So each process has read .pxd
files that its module cimports and no others: a name used in any other would count as used in the module, and the C
file would define it as well.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from scripts.check_file import ROOT, CythonSources

#: Objects that Cython allocates between two collections of garbage (Python's default: 700). Its trees are large and
#: live long: rare collections save a tenth of its time.
GARBAGE: Final = 50_000


_PROCESSES: Final = multiprocessing.get_context("fork")


class TranslationError(Exception):
    """Raised if a file has an error, which Cython has printed with its place. The text names the file."""


@dataclass(frozen=True)
class HeaderGroup:
    """Modules that begin with the same headers, with the groups among them that go on with the same header.

    headers: .pxd files of the repository, in the order in which to read them. modules: .pyx files without other
    headers.
    """

    headers: list[Path]
    modules: list[Path]
    parts: list[HeaderGroup]

    def all_modules(self) -> Iterator[Path]:
        """Yield the modules of the group and of its parts, in the order of their translation."""
        yield from self.modules
        for part in self.parts:
            yield from part.all_modules()


def headers_of(sources: CythonSources) -> dict[Path, list[Path]]:
    """Return the headers of each module, those of most modules first.

    The order depends on all modules of the repository, not on those to translate, so that a C file always is the same.
    """
    headers = {module: [each for each in sources.files(module) if each.suffix == ".pxd"] for module in sources.modules}
    counts = Counter(header for found in headers.values() for header in found)
    return {module: sorted(found, key=lambda each: (-counts[each], each)) for module, found in headers.items()}


def group_by_headers(modules: Mapping[Path, list[Path]]) -> HeaderGroup:
    """Return modules as groups that begin with the same headers. modules: headers of each."""
    positions = zip(*modules.values(), strict=False)
    common = [each[0] for each in takewhile(lambda position: len(set(position)) == 1, positions)]
    complete = []
    parts: dict[Path, dict[Path, list[Path]]] = {}
    for module, headers in modules.items():
        left = headers[len(common) :]
        if left:
            parts.setdefault(left[0], {})[module] = left
        else:
            complete.append(module)
    return HeaderGroup(common, complete, [group_by_headers(part) for part in parts.values()])


def divide(modules: Mapping[Path, list[Path]], count: int) -> list[HeaderGroup]:
    """Return modules as at most `count` groups, of about the same size of source, that share nothing."""
    ordered = list(group_by_headers(modules).all_modules())
    sizes = {module: (ROOT / module).stat().st_size for module in ordered}
    shares: list[dict[Path, list[Path]]] = [{} for _ in range(count)]
    before, total = 0, sum(sizes.values())
    for module in ordered:
        shares[before * count // max(total, 1)][module] = modules[module]
        before += sizes[module]
    return [group_by_headers(share) for share in shares if share]


class Translator:
    """Cython in processes of its own, which start with this object. Iterate over it for the modules that are ready.

    Create it before the first thread, because it forks.

    modules: name by .pyx file, relative to the root of the repository. folder: of the C files, which are kept there.
    directives: of the compiler. inputs: further files that the C files are made from. count: of processes that compute
    at a time.
    """

    def __init__(
        self, modules: Mapping[Path, str], folder: Path, directives: dict[str, Any], inputs: list[Path], count: int
    ) -> None:
        self._modules = modules
        self._folder = folder
        self._directives = directives
        self._discard_outdated([*inputs, Path(__file__)])
        sources = CythonSources()
        headers = headers_of(sources)
        self._outdated = {
            module: headers[module] for module in modules if not self._is_current(module, sources.files(module))
        }
        self._reports, report = os.pipe()
        groups = divide(self._outdated, count)
        self._processes = [_PROCESSES.Process(target=self._run, args=(group, report)) for group in groups]
        for process in self._processes:
            process.start()
        os.close(report)

    @property
    def outdated(self) -> int:
        """Number of modules that are translated."""
        return len(self._outdated)

    def c_file(self, module: Path) -> Path:
        """Return the path of the C file of a module."""
        return self._folder / module.with_suffix(".c")

    def __iter__(self) -> Iterator[Path]:
        """Yield each module when its C file is ready. Raises TranslationError when a module has an error."""
        yield from (module for module in self._modules if module not in self._outdated)
        missing = set(self._outdated)
        try:
            # A process ends when it cannot report, so closing the file ends all.
            with open(self._reports) as reports:
                for line in reports:
                    path, _, failed = line.rstrip("\n").partition(" ")
                    if failed:
                        raise TranslationError(path)
                    missing.remove(Path(path))
                    yield Path(path)
        finally:
            for process in self._processes:
                process.join()
        if missing:
            raise TranslationError(str(min(missing)))

    def _discard_outdated(self, inputs: list[Path]) -> None:
        """Remove all C files if they were made by another Cython, or before the files that all are made from."""
        version: str = importlib.import_module("Cython").__version__
        stamp = self._folder / "made-by"
        newest = max(path.stat().st_mtime for path in inputs)
        if not stamp.exists() or stamp.read_text() != version or stamp.stat().st_mtime < newest:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            stamp.write_text(version)

    def _is_current(self, module: Path, files: set[Path]) -> bool:
        c_file = self.c_file(module)
        newest = max((ROOT / path).stat().st_mtime for path in files)
        return c_file.exists() and c_file.stat().st_mtime > newest

    def _run(self, group: HeaderGroup, report: int) -> None:
        """Translate the modules of a group, in a process of its own."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of each process
        os.close(self._reports)
        gc.set_threshold(GARBAGE)
        context = _cython("Main").Context.from_options(self._options())
        context.setup_errors(self._options(), None)
        self._translate_group(context, group, report)

    def _options(self, output: Path | None = None) -> Any:
        return _cython("Main").CompilationOptions(
            _cython("Main").default_options,
            compiler_directives=dict(self._directives),
            include_path=[str(ROOT)],
            output_file=str(output) if output else None,
        )

    def _translate_group(self, context: Any, group: HeaderGroup, report: int) -> None:
        """Translate all modules of a group, one after the other, each in a process of its own."""
        for header in group.headers:
            context.find_module(".".join(("sluice", *header.with_suffix("").parts)))
            if _cython("Errors").get_errors_count():
                _report(report, f"{header} failed")
                sys.exit(1)
        # Collections in the forked processes would write to the trees, and so copy them.
        gc.freeze()
        for module in group.modules:
            _run_forked(self._translate, context, module, report)
        for part in group.parts:
            _run_forked(self._translate_group, context, part, report)

    def _translate(self, context: Any, module: Path, report: int) -> None:
        """Translate a module and report it."""
        c_file = self.c_file(module)
        # Only a complete C file gets its name. Cython writes the last part of the name into the file.
        unfinished = self._folder / "unfinished" / module.with_suffix(".c")
        for path in (c_file, unfinished):
            path.parent.mkdir(parents=True, exist_ok=True)
        context.options = self._options(unfinished)
        source = str(ROOT / "sluice" / module)
        name = self._modules[module]
        if _cython("Main").compile_single(source, context.options, name, context=context).num_errors:
            _report(report, f"{module} failed")
            sys.exit(1)
        unfinished.replace(c_file)
        _report(report, str(module))


def _cython(module: str) -> Any:
    """Return a module of Cython's compiler, which has no types. Commands that translate nothing need no Cython."""
    return importlib.import_module(f"Cython.Compiler.{module}")


def _report(report: int, text: str) -> None:
    """Write a line to a pipe. Raises SystemExit if nobody reads it."""
    try:
        os.write(report, f"{text}\n".encode())
    except BrokenPipeError:
        sys.exit(1)


def _run_forked(step: Callable[..., None], *arguments: object) -> None:
    """Run a step in a process of its own. Raises SystemExit if it fails, so that nothing comes after it."""
    process = _PROCESSES.Process(target=step, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(1)
