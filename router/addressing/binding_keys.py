"""Binding keys of an exchange: selects bindings by the subject of a message.

routing-semantics.md X-3.
"""

from typing import Final, NamedTuple

INVALID_KEY: Final = "The binding key pattern is invalid"


class _Syntax(NamedTuple):
    """The syntax of keys of one match method."""

    separator: str
    one: str
    any: str
    any_only_last: bool


SYNTAX: Final = {
    "amqp": _Syntax(".", "*", "#", False),
    "mqtt": _Syntax("/", "+", "#", True),
}


class _Node:
    """A node of the key tree: its children, and the bindings whose key ends here."""

    __slots__ = ("any", "bindings", "literals", "one")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.one: _Node | None = None
        self.any: _Node | None = None
        self.bindings: list[int] = []

    def empty(self) -> bool:
        return not self.bindings and not self.literals and self.one is None and self.any is None


class KeyMatcher:
    """The bindings of one exchange by key. Owner: the table that holds the exchange."""

    __slots__ = ("_keys", "_root", "_syntax")

    def __init__(self, method: str) -> None:
        """`method` is `amqp` or `mqtt`; anything else raises ValueError."""
        if method not in SYNTAX:
            raise ValueError("Exchange matchMethod must be either 'amqp' or 'mqtt'")
        self._syntax = SYNTAX[method]
        self._root = _Node()
        self._keys: dict[int, list[str]] = {}  # tokens by binding, in order of binding

    def __len__(self) -> int:
        return len(self._keys)

    def bind(self, key: str | None, binding: int) -> None:
        """Add a binding; a missing key selects every subject. Raises ValueError for a key that cannot be used."""
        if binding in self._keys:
            raise ValueError(f"binding {binding} is bound already")
        tokens = self._key_tokens(self._syntax.any if key is None else key)
        node = self._root
        for token in tokens:
            if token == self._syntax.one:
                node.one = node = node.one or _Node()
            elif token == self._syntax.any:
                node.any = node = node.any or _Node()
            else:
                node = node.literals.setdefault(token, _Node())
        node.bindings.append(binding)
        self._keys[binding] = tokens

    def unbind(self, binding: int) -> None:
        """Remove a binding. Raises KeyError when it is not bound."""
        self._remove(self._root, self._keys.pop(binding), 0, binding)

    def match(self, subject: str | None) -> list[int]:
        """The bindings that a subject selects, in the order in which they were bound. No subject selects none."""
        if subject is None or not self._keys:
            return []
        found: set[int] = set()
        self._collect(self._root, self._tokens(subject), 0, found, set())
        return list(found) if len(found) < 2 else [binding for binding in self._keys if binding in found]

    def _tokens(self, text: str) -> list[str]:
        """Tokens of a subject: leading separators are skipped, one trailing separator ends the last token."""
        separator = self._syntax.separator
        text = text.lstrip(separator).removesuffix(separator)
        return text.split(separator) if text else []

    def _key_tokens(self, key: str) -> list[str]:
        """Tokens of a key, checked; in a run of wildcards the one for many comes last, and once."""
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

    def _collect(self, node: _Node, tokens: list[str], at: int, found: set[int], seen: set[tuple[int, int]]) -> None:
        """Add what matches below `node` from token `at` on. `seen` bounds the work below wildcards for many."""
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

    def _remove(self, node: _Node, tokens: list[str], at: int, binding: int) -> None:
        """Remove a binding below `node`, and unused nodes."""
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
