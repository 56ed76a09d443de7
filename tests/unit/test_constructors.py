"""Number of parameters of constructors: a class that needs many of them needs a noun between it and them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.unit.source_files import ROOT, source_files

FOLDERS: Final = ("router", "workers", "supervisor", "pipeline")
MOST_PARAMETERS: Final = 8  # without `self`
_DEFINITION: Final = re.compile(
    r"^(?P<indent>[ ]*)(?:(?:cdef |cpdef )?class (?P<name>\w+)|def __c?init__\(\s*self\b)", re.MULTILINE
)
_COMMENT: Final = re.compile(r"#[^\n]*")


def constructors(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield class and parameters, without `self`, of each constructor in the text of a module."""
    classes: dict[int, str] = {}  # latest class by its indentation
    for found in _DEFINITION.finditer(text):
        indent = len(found["indent"])
        if found["name"] is not None:
            classes[indent] = found["name"]
        else:
            owner = classes[max(each for each in classes if each < indent)]
            yield owner, parameters(_COMMENT.sub("", text[found.end() :]))


def parameters(text: str) -> list[str]:
    """Return the parameters between the one before `text` and the closing parenthesis."""
    found = [""]
    depth = 0
    for each in text:
        if each == ")" and depth == 0:
            break
        depth += (each in "([{") - (each in ")]}")
        if each == "," and depth == 0:
            found.append("")
        else:
            found[-1] += each
    return [each.strip() for each in found if each.strip() not in ("", "*", "/")]


def test_constructors_have_few_parameters() -> None:
    lines = [
        f"{path.relative_to(ROOT)} {owner}: {len(found)}"
        for path in source_files(*FOLDERS)
        if path.suffix in (".py", ".pyx")
        for owner, found in constructors(path.read_text())
        if len(found) > MOST_PARAMETERS
    ]
    assert not lines, f"constructors with more than {MOST_PARAMETERS} parameters:\n" + "\n".join(lines)


def test_constructor_parameters_are_counted_in_each_notation() -> None:
    text = """
class Outer:
    def __init__(
        self,
        a: dict[int, str],  # by number (of a link), in order
        *,
        b: tuple[int, int] = (1, 2),
        **more: object,
    ) -> None:
        class Nested:
            def __init__(self): ...

cdef class Compiled:
    def __cinit__(self, int a, object b=None, *): ...
    def __init__(self, int a, /, object b=None): ...
"""
    counts = [(owner, len(found)) for owner, found in constructors(text)]
    assert counts == [("Outer", 3), ("Nested", 0), ("Compiled", 2), ("Compiled", 2)]
