"""Names of classes and tests (CONTRIBUTING.md, "Style")."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.unit.source_files import ROOT, source_files

_CLASS = re.compile(r"^[ \t]*(?:cdef |cpdef )?(?:enum )?class (\w+)", re.MULTILINE)
_TEST = re.compile(r"^[ \t]*(?:async )?def test_(\w+)", re.MULTILINE)
_DEFINITION = re.compile(r"^[ \t]*(?:class|def) (\w+)", re.MULTILINE)
#: Names of test environments that could be anything.
_VAGUE = re.compile(r"(?:^|_)(?:world|house|scene|rig)(?:_|$)|World|House|Scene|Rig(?![a-z])")
#: Classes whose name exists more than once, with the reason.
SEVERAL: Final = {
    **dict.fromkeys(("Char", "Described", "Symbol", "Timestamp"), "AMQP types, in the engine and in the test peer"),
    "Link": "the engine's link, and the control message whose wire name is derived from the class",
}
#: Words that begin a statement: the name does not say which thing is tested.
NO_SUBJECTS: Final = frozenset(
    [
        *("a", "an", "the", "who", "whose", "what", "which", "where", "when", "while", "if", "as", "it", "its", "one"),
        *("two", "three", "those", "these", "that", "this", "there", "here", "nothing", "everything", "nobody"),
        *("everybody", "somebody", "something", "no", "none", "not", "each", "every", "all", "any", "both", "many"),
        *("much", "more", "most", "few", "only", "some", "other", "others", "another", "same", "after", "before"),
        *("until", "without", "with", "by", "in", "on", "of", "to", "for", "from", "at", "and", "but", "is", "are"),
        *("was", "be", "so", "too", "also", "even"),
    ]
)
LEAST_WORDS: Final = 3
MOST_CHARACTERS: Final = 80


def _definition(path: Path) -> str:
    """Return the path of a file, of the .pyx file for its .pxd or .pyi file."""
    relative = path.relative_to(ROOT)
    implementation = relative.with_suffix(".pyx")
    return str(implementation if (ROOT / implementation).exists() else relative)


def test_class_names_are_unique() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in source_files():
        for name in _CLASS.findall(path.read_text()):
            found[name].add(_definition(path))
    several = {name: sorted(paths) for name, paths in found.items() if len(paths) > 1}
    lines = [f"{name}: {', '.join(paths)}" for name, paths in sorted(several.items()) if name not in SEVERAL]
    assert not lines, f"{len(lines)} class names exist more than once:\n" + "\n".join(lines)
    assert not SEVERAL.keys() - several.keys(), "an exception without a case"


def test_test_names_have_subject_condition_and_result() -> None:
    found = []
    for path in source_files("tests"):
        for name in _TEST.findall(path.read_text()):
            words = name.split("_")
            if words[0] in NO_SUBJECTS or len(words) < LEAST_WORDS or len(name) > MOST_CHARACTERS:
                found.append(f"{path.relative_to(ROOT)}: test_{name}")
    assert not found, f"{len(found)} names without subject, condition and result:\n" + "\n".join(found)


def test_fixture_names_say_what_they_are() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in source_files("tests", "loadtests")
        for name in _DEFINITION.findall(path.read_text())
        if _VAGUE.search(name)
    ]
    assert not found, "names that do not say what they are: " + ", ".join(found)
