"""First words of docstrings and comments (CONTRIBUTING.md, "Style")."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from tests.unit.source_files import ROOT, source_files

#: First words that name no subject: the reader has to work out which noun they stand for.
BANNED = re.compile(r"(what|who|whose|where|it|one|those|these|that|this|the same)\b", re.IGNORECASE)
_BESIDES = frozenset((tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT))


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring and comment; consecutive lines of a block comment are one comment."""
    begins = True  # a statement begins at the next token
    block = (-1, -1)  # line and column of the last comment that has its line for itself
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            alone = token.line[:column].isspace() or column == 0
            if not alone or block != (row - 1, column):
                yield row, token.string.lstrip("#:! ")
            block = (row, column) if alone else (-1, -1)
        elif token.type == tokenize.STRING and begins:
            yield row, token.string.lstrip("rRbBuUfF").strip("\"'").lstrip()
            begins = False
        elif token.type == tokenize.NEWLINE:
            begins = True
        elif token.type not in _BESIDES:
            begins = False


def test_docstrings_and_comments_begin_with_their_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in source_files()
        for line, text in texts(path.read_text())
        if BANNED.match(text)
    ]
    assert not found, f"{len(found)} first words that name no subject:\n" + "\n".join(found)


def test_first_word_is_found_in_each_place() -> None:
    source = '''"""What a module."""
# One block
# those lines
x = 1  # where


class A:
    """The same as B."""

    y = "what"

    def f(self):
        """Return what it holds."""
        return """it"""  # where
'''
    assert [line for line, text in texts(source) if BANNED.match(text)] == [1, 2, 4, 8, 14]
