"""Build script: compiles every .pyx of the packages below sluice/. All other metadata is in pyproject.toml.

Environment:
    SLUICE_FLAVOUR     release (default); debug: bounds checks, invariants, sanitizers (docs/decisions/0002-build.md);
                       fuzz: debug, compiled by clang with coverage for libFuzzer (docs/decisions/0048-libfuzzer.md)
    SLUICE_EXTENSIONS  0: no extension modules (an editable install whose modules `make` builds in place)
    SLUICE_TESTING     1: also modules and packages named `testing`, which only tests need
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

COMPILED_PACKAGES = ("sluice/router", "sluice/workers", "sluice/pipeline")

# Directives that change the meaning of code are equal in all flavours. Flavours differ in checks only.
DIRECTIVES = {
    "language_level": 3,
    "cdivision": True,
    "wraparound": False,
    "embedsignature": True,
}
RELEASE_DIRECTIVES = {**DIRECTIVES, "boundscheck": False, "initializedcheck": False}
DEBUG_DIRECTIVES = {**DIRECTIVES, "boundscheck": True, "initializedcheck": True, "nonecheck": True}

# The engine reads C structures out of byte buffers, so the compiler must not assume type-based aliasing. -g1 keeps
# line numbers for perf at little cost. No -march: a wheel must run on every machine of its architecture.
RELEASE_CFLAGS = ["-O3", "-fno-strict-aliasing", "-g1"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
DEBUG_CFLAGS = ["-O1", "-g", "-fno-strict-aliasing", "-fno-omit-frame-pointer", "-UNDEBUG", "-DSLUICE_DEBUG=1"]
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


def is_built(source: Path) -> bool:
    """Return True if `source` is to be built. An installed router has no modules that only tests need."""
    return os.environ.get("SLUICE_TESTING") == "1" or "testing" not in source.with_suffix("").parts


def needs_openssl(source: Path) -> bool:
    """Return True if `source` calls OpenSSL, that is, cimports `openssl`."""
    return "openssl cimport" in source.read_text()


def extensions() -> list[Extension]:
    """Return one extension for each .pyx, named by its path."""
    name = flavour()
    checked = SANITIZERS + (COVERAGE if name == "fuzz" else [])
    sources = sorted(path for package in COMPILED_PACKAGES for path in Path(package).rglob("*.pyx") if is_built(path))
    headers = sorted(str(path) for package in COMPILED_PACKAGES for path in Path(package).rglob("*.h"))
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            include_dirs=[".", str(source.parent)],
            depends=["setup.py", *headers],
            extra_compile_args=RELEASE_CFLAGS if name == "release" else DEBUG_CFLAGS + checked,
            extra_link_args=[] if name == "release" else checked,
            libraries=["ssl", "crypto"] if needs_openssl(source) else [],
        )
        for source in sources
    ]


class BuildPython(build_py):
    """build_py that omits packages and stubs only tests need, and builds the console if `make` has not."""

    def run(self) -> None:
        if not self.editable_mode and not Path("supervisor", "web", "console", "index.html").exists():
            subprocess.run(["scripts/build-console", "--optional"], check=True)
        super().run()

    def finalize_options(self) -> None:
        super().finalize_options()
        self.packages = [name for name in self.packages or () if is_built(Path(*name.split(".")))]

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        return [name for name in super().find_data_files(package, src_dir) if is_built(Path(name))]


class BuildExtensions(build_ext):
    """build_ext that runs Cython and the C compiler on all cores, and removes modules without a source."""

    def finalize_options(self) -> None:
        # Imported here: commands that build nothing need no Cython.
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError

        # The flavours debug and fuzz compile the same C files.
        name = "release" if flavour() == "release" else "debug"
        c_folder = Path("build", "cython", name)
        # Cython compares the modification times of sources only. Changed directives in this file must count as well.
        stamp = c_folder / "translated"
        stale = not stamp.exists() or stamp.stat().st_mtime < Path(__file__).stat().st_mtime
        try:
            self.distribution.ext_modules = cythonize(
                self.distribution.ext_modules,
                nthreads=cores(),
                build_dir=str(c_folder),
                compiler_directives=DEBUG_DIRECTIVES if name == "debug" else RELEASE_DIRECTIVES,
                force=stale,
            )
        except CompileError as error:  # Cython has printed the error and its place
            sys.exit(f"setup.py: Cython cannot translate {error}")
        c_folder.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        super().finalize_options()
        self.parallel = self.parallel or cores()

    def run(self) -> None:
        super().run()
        root = Path("." if self.inplace else self.build_lib)
        wanted = {root / self.get_ext_filename(extension.name) for extension in self.extensions}
        for package in COMPILED_PACKAGES:
            for module in root.joinpath(package).rglob("*.so"):
                if module not in wanted:
                    module.unlink()


if __name__ == "__main__":
    setup(
        ext_modules=[] if os.environ.get("SLUICE_EXTENSIONS") == "0" else extensions(),
        cmdclass={"build_ext": BuildExtensions, "build_py": BuildPython},
    )
