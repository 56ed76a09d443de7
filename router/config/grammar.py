"""Parser for the two syntaxes of the configuration file. It returns sections with line numbers for all parts.

Specification: management.md 2.2 to 2.4.

A file whose name ends in `.json` has one JSON array of `["section", {attributes}]` pairs. Any other file has lines:

    listener {
        host: localhost        # the first '#' starts a comment
        openProperties: {
            "key": "value"
        }
    }

Names are folded: `sasl-mechanisms` and `sasl_mechanisms` become `saslMechanisms`. Types and defaults are handled by
`schema` and `load`.
"""

import re
from collections.abc import Mapping

from msgspec import Struct, field

from sluice.router import json_codec
from sluice.router.config.errors import Problems
from sluice.router.config.jsontext import NO_KEY, JsonNode, JsonReader, JsonSyntaxError, JsonValue

# Attributes whose values may contain '#' as wildcard. Their values end at the first blank.
HASH_VALUES = frozenset({"pattern", "bindingKey", "hostname", "addresses"})

_SECTION = re.compile(r"([\w-]+)[ \t]*\{")
_MAP = re.compile(r"\$?([\w-]+)[ \t]*:[ \t]*\{")
_ATTRIBUTE = re.compile(r"([\w-]+)[ \t]*:[ \t]*([^\s{].*)")
# In the unquoted form of a nested map, keys are arbitrary names such as `$default` or `x.y`.
_INNER_MAP = re.compile(r"([\w$.-]+)[ \t]*:?[ \t]*\{")
_INNER_ATTRIBUTE = re.compile(r"([\w$.-]+)[ \t]*:[ \t]*([^\s{].*)")
# A JSON value in place of a name is an error; quoted members may follow it.
_OTHER_KEY = re.compile(r"(null|true|false|-?[0-9]+(?:\.[0-9]+)?)[ \t]*[:{]")
# In a nested map, values of these keys are lists of patterns. Only a '#' after a blank starts a comment.
_INNER_PATTERNS = re.compile(r"((?:source|target)Pattern[ \t]*:.*?)(?:[ \t]+#.*)?")


class Item(Struct, frozen=True):
    """Attribute as written. `value` is not converted yet; `line` is that of its name.

    `inner` has the lines of a map's members, by the path of keys.
    """

    value: JsonValue
    line: int
    inner: Mapping[tuple[str, ...], int] = field(default_factory=dict)


class Section(Struct, frozen=True):
    """Section: folded `name`, `line` of its header, attributes by folded name. Of equal names the last one counts."""

    name: str
    line: int
    attributes: Mapping[str, Item]


class _OpenSection(Struct):
    """Section of the line syntax that is not closed yet."""

    name: str
    line: int
    attributes: dict[str, Item] = field(default_factory=dict)


def fold(name: str) -> str:
    """Return the camel-case form of a section or attribute name written with blanks, `_`, `-` or `.`."""
    first, *words = re.split(r"[ _.-]", name)
    return first + "".join(word.capitalize() for word in words)


def parse(text: str, problems: Problems) -> list[Section]:
    """Return the sections of `text`, in the syntax selected by the path in `problems`.

    Syntax errors are recorded in `problems`. Sections without syntax errors are returned nevertheless, so that the
    caller can find further errors.
    """
    text = text.removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n").replace("\r", "\n")
    if problems.path.endswith(".json"):
        return _parse_json(text, problems)
    return _LineParser(text, problems).sections()


def _parse_json(text: str, problems: Problems) -> list[Section]:
    try:
        document = JsonReader(text, spare_commas=False).document()
    except JsonSyntaxError as error:
        problems.error(error.line, error.message)
        return []
    if not isinstance(document.value, list):
        problems.error(document.line, 'the file must hold one JSON array of ["section", {attributes}] pairs')
        return []
    sections = (_json_section(node, problems) for node in document.value)
    return [section for section in sections if section is not None]


def _json_section(node: JsonNode, problems: Problems) -> Section | None:
    match node.value:
        case [JsonNode(value=str(name)), JsonNode(value=dict(attributes))]:
            items = {fold(key): Item(item.plain(), item.line, item.lines()) for key, item in attributes.items()}
            return Section(fold(name), node.line, items)
    problems.error(node.line, 'expected a pair ["section", {attributes}]')
    return None


class _LineParser:
    """Parser of the line syntax. Its state is the open section; it has one method for each kind of line."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._lines = text.split("\n")
        self._json = JsonReader(text, spare_commas=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._problems = problems
        self._next = 0  # index of the next line; also the number, from 1, of the line being parsed
        self._open: _OpenSection | None = None
        self._lost = False  # an error occurred outside a section; skip to the next section header
        self._sections: list[Section] = []

    def sections(self) -> list[Section]:
        """Parse all lines and return the sections."""
        while self._next < len(self._lines):
            line = self._lines[self._next].strip()
            self._next += 1
            if line and not line.startswith("#"):
                self._line(line)
        if self._open is not None:
            self._problems.error(self._open.line, f"section '{self._open.name}' is not closed: no '}}' follows")
            self._close()
        return self._sections

    def _line(self, line: str) -> None:
        """Parse a line that is neither empty nor a comment."""
        number = self._next
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute is not None and fold(attribute.group(1)) in HASH_VALUES:
            self._attribute(attribute.group(1), attribute.group(2).split()[0])
            return
        line = line.split("#")[0].strip()
        if (section := _SECTION.fullmatch(line)) is not None:
            self._begin(fold(section.group(1)))
        elif (header := _MAP.fullmatch(line)) is not None:
            self._map(fold(header.group(1)))
        elif (attribute := _ATTRIBUTE.fullmatch(line)) is not None:
            self._attribute(attribute.group(1), attribute.group(2))
        elif line == "}":
            self._end()
        else:
            self._problems.error(number, f"Invalid config file syntax: {_advice(line)}: {line}")
            self._recover(line)

    def _recover(self, line: str) -> None:
        """Adjust the state after an invalid line to avoid consequential errors."""
        broken = re.match(r"([\w-]+)[ \t]*\{", line)
        if broken is not None and self._open is None:
            self._open = _OpenSection(fold(broken.group(1)), self._next)
            if line.endswith("}"):
                self._close()
        elif self._open is None:
            self._lost = True

    def _begin(self, name: str) -> None:
        if self._open is not None:
            message = f"section '{self._open.name}' of line {self._open.line} is not closed before section '{name}'"
            self._problems.error(self._next, message)
            self._close()
        self._open = _OpenSection(name, self._next)
        self._lost = False

    def _end(self) -> None:
        if self._open is not None:
            self._close()
        elif not self._lost:
            self._problems.error(self._next, "'}' without an open section")

    def _close(self) -> None:
        if self._open is not None:
            self._sections.append(Section(self._open.name, self._open.line, self._open.attributes))
            self._open = None

    def _attribute(self, name: str, raw: str) -> None:
        number = self._next
        if self._open is None:
            if not self._lost:
                self._problems.error(number, f"attribute '{name}' outside a section")
            return
        value = self._unescape(raw, number)
        if value is not None:
            self._open.attributes[fold(name)] = Item(value, number)

    def _unescape(self, raw: str, number: int) -> str | None:
        """Decode `raw` as the inside of a JSON string; return None after an error."""
        try:
            value = json_codec.decode(f'"{raw}"')
        except json_codec.JsonError:
            value = None
        if isinstance(value, str):
            return value
        if '"' in raw:
            hint = "values are written without quotes"
        elif "\\" in raw:
            hint = "a backslash starts an escape, as in JSON"
        else:
            hint = "tabs and other control characters are written as escapes, such as \\t"
        self._problems.error(number, f"bad value ({hint}): {raw}")
        return None

    def _map(self, name: str) -> None:
        """Parse a nested map whose header is the present line (management.md 2.3)."""
        number = self._next
        if self._open is None:
            if not self._lost:
                self._problems.error(number, f"attribute '{name}' outside a section")
                self._lost = True
            return
        following = self._lines[self._next :]
        first = next((text.strip() for text in following if text.strip() and not text.strip().startswith("#")), "")
        item = self._json_map(number) if first.startswith('"') else self._plain_map(name, number)
        if item is not None:
            self._open.attributes[name] = item

    def _json_map(self, number: int) -> Item | None:
        """Parse a map in JSON. Its members begin in the line after the header."""
        try:
            node, end = self._json.members(self._starts[self._next])
        except JsonSyntaxError as error:
            self._problems.error(error.line, error.message)
            self._skip_to_section()
            return None
        last = self._json.line_at(end - 1)
        rest = self._lines[last - 1][end - self._starts[last - 1] :].split("#")[0].strip()
        if rest not in ("", ","):
            self._problems.error(last, f"text after the '}}' of the map opened in line {number}: {rest}")
        self._next = last
        return Item(node.plain(), number, node.lines())

    def _skip_to_section(self) -> None:
        """Close the open section and skip to the next one."""
        self._close()
        while self._next < len(self._lines) and _SECTION.fullmatch(self._lines[self._next].strip()) is None:
            self._next += 1

    def _plain_map(self, name: str, number: int) -> Item | None:
        """Parse a map in the older form: unquoted keys and values, one member per line, closed by `}` or `},`."""
        top: dict[str, JsonValue] = {}
        levels = [top]
        keys: list[str] = []  # path of keys to the innermost level
        lines: dict[tuple[str, ...], int] = {}
        while self._next < len(self._lines):
            line = self._lines[self._next].strip()
            if (patterns := _INNER_PATTERNS.fullmatch(line)) is not None:
                line = patterns.group(1)
            elif not line.startswith("#"):
                line = line.split("#")[0].strip()
            if len(levels) == 1 and _SECTION.fullmatch(line) is not None:
                break
            self._next += 1
            if not line or line.startswith("#"):
                continue
            if line in ("}", "},"):
                levels.pop()
                if not levels:
                    return Item(top, number, lines)
                keys.pop()
            elif (other := _OTHER_KEY.match(line)) is not None:
                self._problems.error(self._next, f"{NO_KEY}: {other.group(1)} is a value")
                if line.endswith("{"):
                    levels.append({})
                    keys.append(other.group(1))
            elif (inner := _INNER_MAP.fullmatch(line)) is not None:
                child: dict[str, JsonValue] = {}
                levels[-1][inner.group(1)] = child
                levels.append(child)
                keys.append(inner.group(1))
                lines[tuple(keys)] = self._next
            elif (member := _INNER_ATTRIBUTE.fullmatch(line)) is not None:
                value = self._unescape(member.group(2), self._next)
                if value is not None:
                    levels[-1][member.group(1)] = value
                    lines[*keys, member.group(1)] = self._next
            else:
                self._problems.error(self._next, f"Invalid config file syntax: {_advice(line)}: {line}")
        self._problems.error(number, f"map '{name}' is not closed: no '}}' follows")
        return None


def _advice(line: str) -> str:
    """Return the probable error in an invalid line."""
    if re.fullmatch(r"\$?[\w-]+[ \t]*:", line):
        return "the attribute has no value"
    if line == "{":
        return "'{' must be in the same line as the name"
    if "{" in line and not line.endswith("{"):
        return "'{' must be the last thing in its line"
    if line.endswith(("}", "},")):
        return "'}' must be alone in its line"
    if line.endswith("{"):
        return "a section name consists of letters, digits, '_' and '-'"
    return "expected 'section {', 'attribute: value' or '}'"
