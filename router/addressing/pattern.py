"""Patterns of address settings and link routes: tokens, canonical form, and a tree that finds the best match.

Specification: routing-semantics.md 14, brokers-and-edge.md LR-3.

A pattern is a list of tokens, separated by `.` or `/` (both mean the same). `*` matches exactly one token, `#` any
number of tokens, including none. Only whole tokens are wildcards. At each token a literal takes precedence over `*`,
and `*` over `#`. Matching goes from left to right with backtracking; the first complete match wins.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

SEPARATORS: Final = "./"
ONE: Final = "*"
ANY: Final = "#"
MAX_TOKENS: Final = 100  # tokens of a pattern; bounds the depth of recursion in matching

_SPLIT: Final = re.compile(r"[./]")

T = TypeVar("T")


class PatternError(ValueError):
    """Invalid pattern. Its text is the reason that management reports."""


class DuplicatePatternError(PatternError):
    """Pattern whose canonical form is in the tree already."""


def duplicate_pattern(pattern: str) -> DuplicatePatternError:
    """Return the error for a canonical pattern that is in the tree already."""
    return DuplicatePatternError(f"Already exists: Duplicate pattern '{pattern}' not added to parse tree")


def address_tokens(text: str) -> list[str]:
    """Split an address into tokens. All leading separators and one trailing separator are ignored."""
    text = text.lstrip(SEPARATORS)
    if text[-1:] in (".", "/"):
        text = text[:-1]
        if not text:
            return []
    return _SPLIT.split(text) if text else []


def canonical(pattern: str) -> list[str]:
    """Return the tokens of a pattern in canonical form: among consecutive wildcards, all `*` precede a single `#`.

    Raises PatternError for a pattern without tokens.
    """
    stripped = pattern.strip(SEPARATORS)
    if not stripped:
        raise PatternError("Pattern invalid - no tokens")
    tokens: list[str] = []
    hash_waits = False  # a `#` was read; it is appended after the `*` that follow it
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
    """Return the pattern that matches a prefix and all addresses below it.

    Raises PatternError for a prefix without tokens.
    """
    stripped = prefix.strip(SEPARATORS)
    if not stripped:
        raise PatternError("Prefix invalid - no tokens")
    return f"{stripped}/{ANY}"


class _PatternNode(Generic[T]):
    """Node of the pattern tree: its children, and the value of the pattern that ends at this node."""

    __slots__ = ("any", "literals", "one", "value")

    def __init__(self) -> None:
        self.literals: dict[str, _PatternNode[T]] = {}
        self.one: _PatternNode[T] | None = None
        self.any: _PatternNode[T] | None = None
        self.value: tuple[T] | None = None  # in a tuple, because None is a valid value

    def child(self, token: str) -> "_PatternNode[T] | None":
        if token == ONE:
            return self.one
        if token == ANY:
            return self.any
        return self.literals.get(token)

    def make_child(self, token: str) -> "_PatternNode[T]":
        node = self.child(token)
        if node is not None:
            return node
        node = _PatternNode()
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
    """Values by pattern. Owner: the object that holds the tree. Not shared between processes."""

    __slots__ = ("_changed", "_count", "_root")

    def __init__(self) -> None:
        self._root: _PatternNode[T] = _PatternNode()
        self._count = 0
        self._changed: list[Callable[[], object]] = []

    def watch(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever a pattern is added or removed, or its value is replaced."""
        self._changed.append(changed)

    def _notify_watchers(self) -> None:
        for changed in self._changed:
            changed()

    def __len__(self) -> int:
        return self._count

    def insert(self, pattern: str, value: T) -> None:
        """Add a value. Raises DuplicatePatternError for an existing pattern, PatternError for one without tokens."""
        tokens = canonical(pattern)
        node = self._node(tokens)
        if node.value is not None:
            raise duplicate_pattern("/".join(tokens))
        node.value = (value,)
        self._count += 1
        self._notify_watchers()

    def put(self, pattern: str, value: T) -> None:
        """Add a value, or replace that of an equal pattern. Raises PatternError for a pattern without tokens."""
        node = self._node(canonical(pattern))
        self._count += node.value is None
        node.value = (value,)
        self._notify_watchers()

    def _node(self, tokens: list[str]) -> _PatternNode[T]:
        """Return the node of a pattern; create missing nodes."""
        node = self._root
        for token in tokens:
            node = node.make_child(token)
        return node

    def get(self, pattern: str) -> T | None:
        """Return the value stored under this pattern, compared in canonical form, or None."""
        node: _PatternNode[T] | None = self._root
        for token in canonical(pattern):
            if node is None:
                break
            node = node.child(token)
        return node.value[0] if node is not None and node.value is not None else None

    def remove(self, pattern: str) -> T:
        """Remove a pattern and return its value. Raises KeyError for an unknown pattern."""
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
        self._notify_watchers()
        return value[0]

    def discard(self, pattern: str) -> None:
        """Remove a pattern if it exists."""
        if self.get(pattern) is not None:
            self.remove(pattern)

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield all patterns in canonical form, joined by `/`, with their values."""
        stack: list[tuple[list[str], _PatternNode[T]]] = [([], self._root)]
        while stack:
            tokens, node = stack.pop()
            if node.value is not None:
                yield "/".join(tokens), node.value[0]
            for token, child in ((ONE, node.one), (ANY, node.any), *node.literals.items()):
                if child is not None:
                    stack.append(([*tokens, token], child))

    def match(self, address: str) -> T | None:
        """Return the value of the pattern that matches an address best, or None."""
        if not self._count:
            return None
        found = _match(self._root, address_tokens(address), 0, set())
        return None if found is None else found[0]


def _match(node: _PatternNode[T], tokens: list[str], at: int, failed: set[tuple[int, int]]) -> tuple[T] | None:
    """Return the value of the first complete match below `node` for the tokens from `at` on, in a tuple, or None.

    `failed` holds the failed attempts below a `#`. It bounds the work to nodes * tokens, even for hostile addresses.
    The depth of recursion is bounded by the longest pattern.
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


def _match_any(node: _PatternNode[T], tokens: list[str], at: int, failed: set[tuple[int, int]]) -> tuple[T] | None:
    """Return the first complete match below `node`, the node of a `#`, or None.

    The `#` consumes more and more tokens. In a canonical pattern, only a literal or the end follows a `#`.
    """
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
