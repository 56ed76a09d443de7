"""Patterns of address settings and link routes: tokens, canonical form, and a tree that finds the best match.

routing-semantics.md 14, brokers-and-edge.md LR-3.

A pattern is a list of tokens separated by `.` or `/` (equivalent). `*` stands for exactly one token, `#` for any
number of them, none included. Only whole tokens are wildcards. At each token a literal beats `*`, which beats
`#`, from left to right with backtracking: the first complete match wins.
"""

import re
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

SEPARATORS: Final = "./"
ONE: Final = "*"
ANY: Final = "#"
MAX_TOKENS: Final = 100  # of a pattern, the depth of matching

_SPLIT: Final = re.compile(r"[./]")

T = TypeVar("T")


class PatternError(ValueError):
    """An invalid pattern; the text is the reason as management reports it."""


class DuplicatePatternError(PatternError):
    """The pattern, in canonical form, is in the tree already."""


def duplicate_pattern(pattern: str) -> DuplicatePatternError:
    """The error for a canonical pattern that exists already."""
    return DuplicatePatternError(f"Already exists: Duplicate pattern '{pattern}' not added to parse tree")


def address_tokens(text: str) -> list[str]:
    """Tokens of an address: leading separators are skipped, one trailing separator ends the last token."""
    text = text.lstrip(SEPARATORS)
    if text[-1:] in (".", "/"):
        text = text[:-1]
        if not text:
            return []
    return _SPLIT.split(text) if text else []


def canonical(pattern: str) -> list[str]:
    """Tokens of a pattern in canonical form: in a run of wildcards any `*` come before one `#`.

    Raises PatternError when there is no token in it.
    """
    stripped = pattern.strip(SEPARATORS)
    if not stripped:
        raise PatternError("Pattern invalid - no tokens")
    tokens: list[str] = []
    hash_waits = False  # a `#` was read; it is put after the `*` that follow it
    for token in _SPLIT.split(stripped):
        if token == ANY:
            hash_waits = True
            continue
        if hash_waits and token != ONE:
            tokens.append(ANY)
            hash_waits = False
        tokens.append(token)
    if hash_waits:
        tokens.append(ANY)
    return tokens


def from_prefix(prefix: str) -> str:
    """The pattern of a prefix: the prefix itself and anything below it, by tokens.

    Raises PatternError when there is no token in it.
    """
    stripped = prefix.strip(SEPARATORS)
    if not stripped:
        raise PatternError("Prefix invalid - no tokens")
    return f"{stripped}/{ANY}"


class _Node(Generic[T]):
    """A node of the pattern tree: its children, and the value of the pattern that ends here."""

    __slots__ = ("any", "literals", "one", "value")

    def __init__(self) -> None:
        self.literals: dict[str, _Node[T]] = {}
        self.one: _Node[T] | None = None
        self.any: _Node[T] | None = None
        self.value: tuple[T] | None = None  # in a tuple: None is a value too

    def child(self, token: str) -> "_Node[T] | None":
        if token == ONE:
            return self.one
        if token == ANY:
            return self.any
        return self.literals.get(token)

    def make_child(self, token: str) -> "_Node[T]":
        node = self.child(token)
        if node is not None:
            return node
        node = _Node()
        if token == ONE:
            self.one = node
        elif token == ANY:
            self.any = node
        else:
            self.literals[token] = node
        return node

    def drop_child(self, token: str) -> None:
        if token == ONE:
            self.one = None
        elif token == ANY:
            self.any = None
        else:
            del self.literals[token]

    def empty(self) -> bool:
        return self.value is None and not self.literals and self.one is None and self.any is None


class PatternTree(Generic[T]):
    """Values by pattern. Owner: the object that holds it; nothing here is shared between processes."""

    __slots__ = ("_count", "_root")

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def insert(self, pattern: str, value: T) -> None:
        """Add a value. Raises DuplicatePatternError when an equal pattern is here, PatternError for an empty one."""
        tokens = canonical(pattern)
        node = self._node(tokens)
        if node.value is not None:
            raise duplicate_pattern("/".join(tokens))
        node.value = (value,)
        self._count += 1

    def put(self, pattern: str, value: T) -> None:
        """Add a value, or replace that of an equal pattern. Raises PatternError for an empty one."""
        node = self._node(canonical(pattern))
        self._count += node.value is None
        node.value = (value,)

    def _node(self, tokens: list[str]) -> _Node[T]:
        """The node of a pattern, made if it is not there."""
        node = self._root
        for token in tokens:
            node = node.make_child(token)
        return node

    def get(self, pattern: str) -> T | None:
        """The value stored for exactly this pattern (in canonical form), or None."""
        node: _Node[T] | None = self._root
        for token in canonical(pattern):
            if node is None:
                break
            node = node.child(token)
        return node.value[0] if node is not None and node.value is not None else None

    def remove(self, pattern: str) -> T:
        """Remove a pattern and return its value. Raises KeyError if it does not exist."""
        tokens = canonical(pattern)
        path = [self._root]
        for token in tokens:
            node = path[-1].child(token)
            if node is None:
                raise KeyError(pattern)
            path.append(node)
        value = path[-1].value
        if value is None:
            raise KeyError(pattern)
        path[-1].value = None
        self._count -= 1
        for token, parent, node in zip(reversed(tokens), reversed(path[:-1]), reversed(path[1:]), strict=True):
            if not node.empty():
                break
            parent.drop_child(token)
        return value[0]

    def discard(self, pattern: str) -> None:
        """Remove a pattern if it exists."""
        if self.get(pattern) is not None:
            self.remove(pattern)

    def items(self) -> Iterator[tuple[str, T]]:
        """All patterns in canonical form, joined by `/`, with their values."""
        stack: list[tuple[list[str], _Node[T]]] = [([], self._root)]
        while stack:
            tokens, node = stack.pop()
            if node.value is not None:
                yield "/".join(tokens), node.value[0]
            for token, child in ((ONE, node.one), (ANY, node.any), *node.literals.items()):
                if child is not None:
                    stack.append(([*tokens, token], child))

    def match(self, address: str) -> T | None:
        """The value of the pattern that matches best, or None."""
        if not self._count:
            return None
        found = _match(self._root, address_tokens(address), 0, set())
        return None if found is None else found[0]


def _match(node: _Node[T], tokens: list[str], at: int, failed: set[tuple[int, int]]) -> tuple[T] | None:
    """Value of the first complete match below `node` for the tokens from `at` on.

    `failed` has the failed attempts below a `#`: it bounds the work to nodes * tokens, even for hostile addresses. The
    depth of the recursion is that of the longest pattern.
    """
    if at == len(tokens):
        if node.value is not None:
            return node.value
    else:
        child = node.literals.get(tokens[at])
        if child is not None:
            found = _match(child, tokens, at + 1, failed)
            if found is not None:
                return found
        if node.one is not None:
            found = _match(node.one, tokens, at + 1, failed)
            if found is not None:
                return found
    return None if node.any is None else _match_any(node.any, tokens, at, failed)


def _match_any(node: _Node[T], tokens: list[str], at: int, failed: set[tuple[int, int]]) -> tuple[T] | None:
    """The same for the node of a `#`, which consumes more and more tokens; a literal or the end follows it."""
    identity = id(node)
    if node.literals:
        for position in range(at, len(tokens)):
            if (identity, position) in failed:
                break
            failed.add((identity, position))
            child = node.literals.get(tokens[position])
            if child is not None:
                found = _match(child, tokens, position + 1, failed)
                if found is not None:
                    return found
    return node.value
