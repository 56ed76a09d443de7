"""The repository's own source files, for tests that read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("router", "workers", "supervisor", "pipeline", "loadtests", "scripts", "tests")
SUFFIXES: Final = frozenset((".py", ".pyx", ".pxd", ".pxi", ".pyi"))
_BUILT: Final = frozenset(("node_modules", "target", "__pycache__"))


def source_files(*folders: str) -> Iterator[Path]:
    """Yield the Python and Cython files of these top-level folders, of all FOLDERS by default, in order."""
    for folder in folders or FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and not _BUILT.intersection(path.parts):
                yield path
