"""JSON parser (RFC 8259) that keeps the line of every value, which orjson does not report.

It has two extensions for configuration files: a line whose first non-blank character is `#` is white space, and,
optionally, a comma may precede `}` or `]`.
"""

import re
from bisect import bisect_right

from msgspec import Struct

from sluice.router import json_codec

JsonValue = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None

MAX_DEPTH = 32  # levels of nested arrays and objects; configurations use four
MAX_NUMBER = 64  # characters of a number; 64-bit integers and doubles are shorter

NO_KEY = "Expecting property name enclosed in double quotes"  # text of Dispatch
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BLANKS = re.compile(r"[ \t\r\n]*")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class JsonSyntaxError(Exception):
    """Error for a text that is not JSON. `line` counts from 1; `message` is the reason."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message


class JsonNode(Struct, frozen=True):
    """JSON value with its first line. Arrays contain nodes; objects contain nodes by key, of equal keys the last."""

    line: int
    value: "bool | int | float | str | list[JsonNode] | dict[str, JsonNode] | None"

    def plain(self) -> JsonValue:
        """Return the value without lines."""
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value

    def lines(self) -> "dict[tuple[str, ...], int]":
        """Return the lines of all members of objects, by the path of keys."""
        found: dict[tuple[str, ...], int] = {}
        if isinstance(self.value, dict):
            for key, node in self.value.items():
                found[(key,)] = node.line
                found |= {(key, *keys): line for keys, line in node.lines().items()}
        return found


class JsonReader:
    """Reader of JSON values in `text`, from any position. Lines are counted from the start of the text."""

    def __init__(self, text: str, *, spare_commas: bool) -> None:
        self._text = text
        self._spare_commas = spare_commas
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def line_at(self, position: int) -> int:
        """Return the line, counted from 1, that contains `position`."""
        return bisect_right(self._line_starts, position)

    def document(self) -> JsonNode:
        """Parse the whole text as one value. Raises JsonSyntaxError."""
        node, position = self._value(self.skip(0), 0)
        position = self.skip(position)
        if position < len(self._text):
            raise self._error(position, "text after the end of the JSON value")
        return node

    def members(self, position: int) -> tuple[JsonNode, int]:
        """Parse an object whose `{` precedes `position`. Return it and the position after its `}`."""
        return self._object(self.line_at(position), position, 1)

    def skip(self, position: int) -> int:
        """Return the position of the next character that is neither white space nor part of a comment line."""
        while True:
            position = _BLANKS.match(self._text, position).end()  # type: ignore[union-attr]  # always matches
            if not self._text.startswith("#", position) or not self._begins_line(position):
                return position
            end = self._text.find("\n", position)
            position = len(self._text) if end < 0 else end

    def _begins_line(self, position: int) -> bool:
        start = self._line_starts[self.line_at(position) - 1]
        return not self._text[start:position].strip()

    def _error(self, position: int, message: str) -> JsonSyntaxError:
        return JsonSyntaxError(self.line_at(min(position, max(len(self._text) - 1, 0))), message)

    def _found(self, position: int) -> str:
        if position >= len(self._text):
            return "the end of the file"
        rest = self._text[position : position + 20].split("\n")[0].strip()
        return f"'{rest}'"

    def _value(self, position: int, depth: int) -> tuple[JsonNode, int]:
        if depth > MAX_DEPTH:
            raise self._error(position, f"more than {MAX_DEPTH} levels of nested values")
        line = self.line_at(position)
        first = self._text[position : position + 1]
        if first == "{":
            return self._object(line, position + 1, depth + 1)
        if first == "[":
            return self._array(line, position + 1, depth + 1)
        if first == '"':
            text, end = self._string(position)
            return JsonNode(line, text), end
        for word, meaning in _WORDS.items():
            if self._text.startswith(word, position):
                return JsonNode(line, meaning), position + len(word)
        number = _NUMBER.match(self._text, position)
        if number is None:
            raise self._error(position, f"expected a JSON value, found {self._found(position)}")
        return JsonNode(line, self._number(number)), number.end()

    def _number(self, match: re.Match[str]) -> int | float:
        digits = match.group()
        if len(digits) > MAX_NUMBER:
            raise self._error(match.start(), f"number longer than {MAX_NUMBER} characters")
        if match.group(1) is None and match.group(2) is None:
            return int(digits)
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise self._error(match.start(), f"number out of range: {digits}")
        return number

    def _string(self, position: int) -> tuple[str, int]:
        match = _STRING.match(self._text, position)
        if match is None:
            raise self._error(position, "bad JSON string: no closing quote")
        try:
            return json_codec.decode(match.group()), match.end()
        except json_codec.JsonError as error:
            raise self._error(position, f"bad JSON string: {error.msg}") from error

    def _array(self, line: int, position: int, depth: int) -> tuple[JsonNode, int]:
        items: list[JsonNode] = []
        position = self.skip(position)
        while not self._text.startswith("]", position):
            node, position = self._value(position, depth)
            items.append(node)
            position = self._separator(position, "]")
        return JsonNode(line, items), position + 1

    def _object(self, line: int, position: int, depth: int) -> tuple[JsonNode, int]:
        items: dict[str, JsonNode] = {}
        position = self.skip(position)
        while not self._text.startswith("}", position):
            if not self._text.startswith('"', position):
                raise self._error(position, f"{NO_KEY} or '}}', found {self._found(position)}")
            key, end = self._string(position)
            colon = self.skip(end)
            if not self._text.startswith(":", colon):
                raise self._error(colon, f"expected ':' after key '{key}', found {self._found(colon)}")
            items[key], position = self._value(self.skip(colon + 1), depth)
            position = self._separator(position, "}")
        return JsonNode(line, items), position + 1

    def _separator(self, position: int, closing: str) -> int:
        position = self.skip(position)
        if self._text.startswith(closing, position):
            return position
        if not self._text.startswith(",", position):
            raise self._error(position, f"expected ',' or '{closing}', found {self._found(position)}")
        comma, position = position, self.skip(position + 1)
        if self._text.startswith(closing, position) and not self._spare_commas:
            raise self._error(comma, f"spare ',' before '{closing}'")
        return position
