"""Build script: compiles every .pyx of the packages below sluice/. All other metadata is in pyproject.toml.

Environment:
    SLUICE_FLAVOUR  release (default); debug: bounds checks, invariants, sanitizers (docs/decisions/0002-build.md);
                    fuzz: debug, compiled by clang with coverage for libFuzzer (docs/decisions/0048-libfuzzer.md)
    SLUICE_MODULES  product (default); router: without the pipeline; all: with the modules and packages named `testing`,
                    which only tests need; none: no compiled modules (an editable install, whose modules `make` builds)
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import PriorityQueue
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

#: Folder of links to the packages, whose names in the repository are shorter (docs/decisions/0070-namespace.md).
NAMESPACE = Path("sluice")
COMPILED_PACKAGES = ("router", "workers", "supervisor", "pipeline")
#: C files in a source distribution, which needs no Cython.
GENERATED = Path("generated")
SELECTIONS = ("all", "product", "router", "none")

# Directives that change the meaning of code are equal in all flavours. Flavours differ in checks only.
DIRECTIVES = {
    "language_level": 3,
    "cdivision": True,
    "wraparound": False,
    # Half of the generated C would be for pickling, function objects and copies of the source
    # (docs/decisions/0084-build-time.md).
    "auto_pickle": False,
    "binding": False,
    "emit_code_comments": False,
    # `inspect.signature` reads the signatures of functions that are no function objects from this text.
    "embedsignature": True,
    "embedsignature.format": "clinic",
}
RELEASE_DIRECTIVES = {**DIRECTIVES, "boundscheck": False, "initializedcheck": False}
DEBUG_DIRECTIVES = {**DIRECTIVES, "boundscheck": True, "initializedcheck": True, "nonecheck": True}

# C17: C23, which GCC 15 assumes, has keywords and macros such as `unreachable`, also the name of a method here. Cython
# compares constants, which are unsigned, with signed integers.
DIALECT = ["-std=gnu17", "-Wno-sign-compare", "-fno-strict-aliasing"]
# The engine reads C structures out of byte buffers, so the compiler must not assume type-based aliasing. -g1 keeps
# line numbers for perf at little cost. No -march: a wheel must run on every machine of its architecture.
RELEASE_CFLAGS = ["-O3", *DIALECT, "-g1"]
# Modules, by the beginning of their path, in which a delivery with a remembered plan spends next to no instructions:
# -O1 halves the time to compile them. All others have -O3. After a change of this list, compare
# `make bench-instructions`.
COLD = (
    "router/addressing/paths",
    "router/amqp/codec",
    "router/amqp/connection_channels",
    "router/amqp/link",
    "router/amqp/performatives",
    "router/amqp/scheduler",
    "router/amqp/session_links",
    "router/client/",
    "router/delivery/control_handler",
    "router/delivery/internal_producer",
    "router/links/control_link",
    "router/links/data_link",
    "router/links/granting_link",
    "router/links/pause",
    "router/links/source_link",
    "router/log/",
    "router/pacing/",
    "router/policy/names",
    "router/policy/quota",
    "router/ring/link_table",
    "router/ring/region",
    "router/routed/remote_end",
    "router/stalls/",
    "router/stats/",
    "router/table/address_cache",
    "router/table/consumer",
    "router/table/network",
    "router/table/size_limits",
    "router/table/table",
    "router/tls/",
    "supervisor/",
    "workers/links/",
    "workers/slots",
    "workers/transport/websocket",
)
# Each C file begins like this. Reading it precompiled saves a seventh of the time of a small module. A few modules do
# not pay for the precompiling.
PYTHON_HEADER = "#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n"
FEW = 20
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
DEBUG_CFLAGS = ["-O1", "-g", *DIALECT, "-fno-omit-frame-pointer", "-UNDEBUG", "-DSLUICE_DEBUG=1"]
# Edge and comparison counters for libFuzzer. The libFuzzer runtime is loaded before the interpreter.
COVERAGE = ["-fsanitize=fuzzer-no-link"]


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def flavour() -> str:
    """Return the flavour to build, from the environment."""
    name = os.environ.get("SLUICE_FLAVOUR", "release")
    if name not in ("release", "debug", "fuzz"):
        sys.exit(f"setup.py: SLUICE_FLAVOUR is {name!r}; it must be 'release', 'debug' or 'fuzz'")
    if name == "fuzz":
        os.environ.setdefault("CC", "clang")  # only clang supports libFuzzer
    return name


def selection() -> str:
    """Return the modules to build, from the environment."""
    name = os.environ.get("SLUICE_MODULES", "product")
    if name not in SELECTIONS:
        sys.exit(f"setup.py: SLUICE_MODULES is {name!r}; it must be one of {', '.join(SELECTIONS)}")
    return name


def is_built(source: Path) -> bool:
    """Return True if `source` is to be built. source: path of a file or package below sluice/, without `sluice`."""
    chosen = selection()
    return (chosen == "all" or "testing" not in source.with_suffix("").parts) and (
        chosen != "router" or source.parts[0] != "pipeline"
    )


def sources(kind: str) -> list[Path]:
    """Return the files of the compiled packages with the suffix `.kind`, without `sluice`."""
    folders = (NAMESPACE / package for package in COMPILED_PACKAGES)
    return sorted(path.relative_to(NAMESPACE) for folder in folders for path in folder.rglob(f"*.{kind}"))


def needs_openssl(source: Path) -> bool:
    """Return True if `source` calls OpenSSL, that is, cimports `openssl`."""
    return "openssl cimport" in source.read_text()


def largest_first(files: Iterable[Path]) -> list[Path]:
    """Return the files in the order that keeps all cores busy until the end. files: without `sluice`."""
    return sorted(files, key=lambda each: (-(NAMESPACE / each).stat().st_size, each))


def extensions() -> list[Extension]:
    """Return one extension for each .pyx to build, named by its path."""
    if selection() == "none":
        return []
    name = flavour()
    checked = [] if name == "release" else SANITIZERS + (COVERAGE if name == "fuzz" else [])
    options = RELEASE_CFLAGS if name == "release" else DEBUG_CFLAGS + checked
    cold = ["-O1"] if name == "release" else []
    headers = [str(NAMESPACE / path) for path in sources("h")]
    return [
        Extension(
            ".".join((NAMESPACE / source).with_suffix("").parts),
            [str(GENERATED / source.with_suffix(".c") if GENERATED.is_dir() else NAMESPACE / source)],
            include_dirs=[".", str(NAMESPACE / source.parent)],
            depends=["setup.py", *headers],
            extra_compile_args=[*options, *(cold if str(source).startswith(COLD) else [])],
            extra_link_args=checked,
            libraries=["ssl", "crypto"] if needs_openssl(NAMESPACE / source) else [],
        )
        for source in largest_first(filter(is_built, sources("pyx")))
    ]


class BuildPython(build_py):
    """build_py that omits packages and stubs only tests need, and builds the console if `make` has not."""

    def run(self) -> None:
        if not self.editable_mode and not Path("supervisor", "web", "console", "index.html").exists():
            subprocess.run(["scripts/build-console", "--optional"], check=True)
        super().run()

    def finalize_options(self) -> None:
        super().finalize_options()
        self.packages = [name for name in self.packages or () if is_built(Path(*name.split(".")[1:], "__init__"))]

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        return [name for name in super().find_data_files(package, src_dir) if is_built(Path(*Path(name).parts[1:]))]


def start_translation(extensions: list[Extension]) -> Any:
    """Return a `Translator` of the modules, whose processes have started. Call it before the first thread."""
    # Imported here: commands that build nothing need no Cython. Some programs that run this file leave its folder out.
    sys.path.insert(0, str(Path(__file__).parent))
    from scripts.translation import Translator

    # The flavours debug and fuzz compile the same C files.
    kind = "release" if flavour() == "release" else "debug"
    return Translator(
        {source_of(each): each.name for each in extensions},
        Path("build", "cython", kind),
        DEBUG_DIRECTIVES if kind == "debug" else RELEASE_DIRECTIVES,
        [Path(__file__)],
        cores(),
    )


def translated(translator: Iterable[Path]) -> Iterator[Path]:
    """Yield the modules of a `Translator`. Raises SystemExit if one has an error."""
    from scripts.translation import TranslationError

    try:
        yield from translator
    except TranslationError as error:  # Cython has printed the error and its place
        sys.exit(f"setup.py: Cython cannot translate {error}")


def source_of(extension: Extension) -> Path:
    """Return the .pyx file of a module, without `sluice`."""
    return Path(*extension.name.split(".")[1:]).with_suffix(".pyx")


class BuildExtensions(build_ext):
    """build_ext that runs Cython and the C compiler on all cores, and removes modules without a source."""

    compiled = 0

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or cores()

    def run(self) -> None:
        super().run()
        root = Path("." if self.inplace else self.build_lib)
        existing = {".".join((NAMESPACE / source).with_suffix("").parts) for source in sources("pyx")}
        wanted = {root / self.get_ext_filename(name) for name in existing}
        for package in COMPILED_PACKAGES:
            for module in root.joinpath(NAMESPACE, package).rglob("*.so"):
                if module not in wanted:
                    module.unlink()

    def build_extensions(self) -> None:
        # A Python that was not built by a distribution can name its own folder as a search path for libraries.
        self.compiler.linker_so = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        if GENERATED.is_dir():
            super().build_extensions()
        else:
            self.check_extensions_list(self.extensions)
            translator = start_translation(self.extensions)
            if flavour() == "release" and translator.outdated > FEW:
                self._precompile_python()
            self._build_translated(translator)

    def _precompile_python(self) -> None:
        """Make all modules begin with a precompiled Python.h, one for each set of the compiler's options."""
        for number, options in enumerate(sorted({tuple(each.extra_compile_args) for each in self.extensions})):
            header = Path(self.build_temp, f"options-{number}", "python_header.h")
            self.mkpath(str(header.parent))
            header.write_text(PYTHON_HEADER)
            include = [f"-I{folder}" for folder in self.include_dirs]
            make = [*self.compiler.compiler_so, *include, *options, "-x", "c-header", str(header)]
            self.spawn([*make, "-o", f"{header}.gch"])
            for each in self.extensions:
                if tuple(each.extra_compile_args) == options:
                    each.extra_compile_args = [*options, "-include", str(header)]

    def _build_translated(self, translator: Any) -> None:
        """Build each module as soon as it is translated; the largest C file that is ready comes first."""
        extensions = {source_of(each): each for each in self.extensions}
        ready: PriorityQueue[tuple[int, Path]] = PriorityQueue()

        def build_largest() -> None:
            _, module = ready.get()
            self.build_extension(extensions[module])

        with ThreadPoolExecutor(self.parallel) as pool:
            builds = []
            try:
                for module in translated(translator):
                    c_file = translator.c_file(module)
                    extensions[module].sources = [str(c_file)]
                    ready.put((-c_file.stat().st_size, module))
                    builds.append(pool.submit(build_largest))
                for build in as_completed(builds):
                    build.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def build_extension(self, extension: Extension) -> None:
        """Compile a module. Outside the checkout, copy the module that `make` has built in place if it is current."""
        target = Path(self.get_ext_fullpath(extension.name))
        built = Path(self.get_ext_filename(extension.name))
        inputs = [*extension.sources, *extension.depends]
        if not self.inplace and flavour() == "release" and is_newer(built, inputs):
            self.mkpath(str(target.parent))
            self.copy_file(str(built), str(target))
        else:
            if not is_newer(target, inputs):
                self.compiled += 1
                print(f"[{self.compiled}/{len(self.extensions)}] {extension.name}", flush=True)
            super().build_extension(extension)
        if not self.inplace and flavour() == "release" and shutil.which("strip"):
            self.spawn(["strip", "--strip-unneeded", str(target)])


def is_newer(path: Path, inputs: list[str]) -> bool:
    """Return True if the file exists and is newer than all inputs."""
    return path.exists() and path.stat().st_mtime > max(Path(each).stat().st_mtime for each in inputs)


class SourceDistribution(sdist):
    """sdist with the repository's folders and links, and with the C files, so that it can be built without Cython."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        links = {path: path.readlink() for path in NAMESPACE.iterdir() if path.is_symlink()}
        super().make_release_tree(base_dir, sorted({str(in_repository(Path(name), links)) for name in files}))
        for path, to in links.items():
            Path(base_dir, path).symlink_to(to)
        translator = start_translation(extensions())
        for module in translated(translator):
            generated = Path(base_dir, GENERATED, module).with_suffix(".c")
            generated.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(translator.c_file(module), generated)


def in_repository(path: Path, links: dict[Path, Path]) -> Path:
    """Return the path of a file without the links of the namespace."""
    link = next((each for each in links if path.is_relative_to(each)), None)
    return path if link is None else Path(link.name) / path.relative_to(link)


def description() -> str:
    """Return README.md with absolute links, for the page of a package index."""
    source = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"]["Source"]
    return re.sub(r"\]\((?!https?:|#)", f"]({source}", Path("README.md").read_text())


if __name__ == "__main__":
    setup(
        long_description=description(),
        long_description_content_type="text/markdown",
        ext_modules=extensions(),
        cmdclass={"build_ext": BuildExtensions, "build_py": BuildPython, "sdist": SourceDistribution},
    )
