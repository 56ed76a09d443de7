"""Binding keys of an exchange: selection of bindings by the subject of a message.

Specification: routing-semantics.md X-3.
"""

from typing import Final, NamedTuple

INVALID_KEY: Final = "The binding key pattern is invalid"


class _Syntax(NamedTuple):
    """Key syntax of one match method: separator, wildcards, and whether `any` may only be the last token."""

    separator: str
    one: str
    any: str
    any_only_last: bool


SYNTAX: Final = {
    "amqp": _Syntax(".", "*", "#", False),
    "mqtt": _Syntax("/", "+", "#", True),
}


class _KeyNode:
    """Node of the key tree: its children, and the bindings whose key ends at this node."""

    __slots__ = ("any", "bindings", "literals", "one")

    def __init__(self) -> None:
        self.literals: dict[str, _KeyNode] = {}
        self.one: _KeyNode | None = None
        self.any: _KeyNode | None = None
        self.bindings: list[int] = []

    def empty(self) -> bool:
        return not self.bindings and not self.literals and self.one is None and self.any is None


class KeyMatcher:
    """Bindings of one exchange by key. Owner: the table that holds the exchange."""

    __slots__ = ("_keys", "_root", "_syntax")

    def __init__(self, method: str) -> None:
        """Create an empty matcher. Raises ValueError unless `method` is `amqp` or `mqtt`."""
        if method not in SYNTAX:
            raise ValueError("Exchange matchMethod must be either 'amqp' or 'mqtt'")
        self._syntax = SYNTAX[method]
        self._root = _KeyNode()
        self._keys: dict[int, list[str]] = {}  # tokens by binding, in the order in which bindings were added

    def __len__(self) -> int:
        return len(self._keys)

    def bind(self, key: str | None, binding: int) -> None:
        """Add a binding. Without a key, it matches every subject. Raises ValueError for an invalid key."""
        if binding in self._keys:
            raise ValueError(f"binding {binding} is bound already")
        tokens = self._key_tokens(self._syntax.any if key is None else key)
        node = self._root
        for token in tokens:
            if token == self._syntax.one:
                node.one = node = node.one or _KeyNode()
            elif token == self._syntax.any:
                node.any = node = node.any or _KeyNode()
            else:
                node = node.literals.setdefault(token, _KeyNode())
        node.bindings.append(binding)
        self._keys[binding] = tokens

    def unbind(self, binding: int) -> None:
        """Remove a binding. Raises KeyError for an unknown binding."""
        self._remove(self._root, self._keys.pop(binding), 0, binding)

    def match(self, subject: str | None) -> list[int]:
        """Return the bindings that match a subject, in the order in which they were added; none without a subject."""
        if subject is None or not self._keys:
            return []
        found: set[int] = set()
        self._collect(self._root, self._tokens(subject), 0, found, set())
        return list(found) if len(found) < 2 else [binding for binding in self._keys if binding in found]

    def _tokens(self, text: str) -> list[str]:
        """Split a subject or key into tokens. All leading separators and one trailing separator are ignored."""
        separator = self._syntax.separator
        text = text.lstrip(separator).removesuffix(separator)
        return text.split(separator) if text else []

    def _key_tokens(self, key: str) -> list[str]:
        """Return the tokens of a key in canonical form: consecutive wildcards end with at most one `any`.

        Raises ValueError for an invalid key.
        """
        syntax = self._syntax
        tokens = self._tokens(key)
        if not tokens or (syntax.any_only_last and syntax.any in tokens[:-1]):
            raise ValueError(INVALID_KEY)
        result: list[str] = []
        any_waits = False
        for token in tokens:
            if token == syntax.any:
                any_waits = True
                continue
            if any_waits and token != syntax.one:
                result.append(syntax.any)
                any_waits = False
            result.append(token)
        return [*result, syntax.any] if any_waits else result

    def _collect(self, node: _KeyNode, tokens: list[str], at: int, found: set[int], seen: set[tuple[int, int]]) -> None:
        """Add the bindings below `node` that match the tokens from `at` on to `found`.

        `seen` holds the pairs of `any` node and position that are done, which bounds the work for any number of
        wildcards.
        """
        if at == len(tokens):
            found.update(node.bindings)
        else:
            literal = node.literals.get(tokens[at])
            if literal is not None:
                self._collect(literal, tokens, at + 1, found, seen)
            if node.one is not None:
                self._collect(node.one, tokens, at + 1, found, seen)
        below = node.any
        if below is None:
            return
        found.update(below.bindings)
        if below.literals:
            for position in range(at, len(tokens)):
                if (id(below), position) in seen:
                    break
                seen.add((id(below), position))
                literal = below.literals.get(tokens[position])
                if literal is not None:
                    self._collect(literal, tokens, position + 1, found, seen)

    def _remove(self, node: _KeyNode, tokens: list[str], at: int, binding: int) -> None:
        """Remove a binding below `node`, and the nodes that become empty."""
        if at == len(tokens):
            node.bindings.remove(binding)
            return
        token = tokens[at]
        if token == self._syntax.one and node.one is not None:
            self._remove(node.one, tokens, at + 1, binding)
            node.one = None if node.one.empty() else node.one
        elif token == self._syntax.any and node.any is not None:
            self._remove(node.any, tokens, at + 1, binding)
            node.any = None if node.any.empty() else node.any
        else:
            self._remove(node.literals[token], tokens, at + 1, binding)
            if node.literals[token].empty():
                del node.literals[token]
