"""`sluice manage`, also installed as `qdmanage`: call any management operation from a shell (management.md 8.4)."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from sluice.router import json_codec
from sluice.router.cli.client import PREFIX, ManagementClient
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import to_json
from sluice.router.cli.streams import run_command
from sluice.router.cli.tool import run_tool

STANDARD: Final = (
    "QUERY", "CREATE", "READ", "UPDATE", "DELETE", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS",
    "GET-MGMT-NODES",
)  # fmt: skip
_INTROSPECTION: Final = ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS")
# Expansions of short types to which more than the prefix is added.
_SHORT_TYPES: Final = {
    "link": "router.link",
    "node": "router.node",
    "linkRoute": "router.config.linkRoute",
    "address": "router.config.address",
    "autoLink": "router.config.autoLink",
}
_BOOLEANS: Final = {"true": True, "false": False}
_UPDATE_BOOLEANS: Final = {"yes": True, "on": True, "no": False, "off": False, **_BOOLEANS}
_JSON_CHARACTERS: Final = frozenset('"{}[]')

Attributes = dict[str, Any]


class ValidationError(ValueError):
    """Error for an attribute that is not in the schema."""


class _UsageError(Exception):
    """Error for words of the command line that the operation does not accept."""


def main(words: Sequence[str] | None = None, program: str = "qdmanage") -> int:
    """Run the command; return the exit code."""
    return run_command(lambda: _main(words, program))


def _main(words: Sequence[str] | None, program: str) -> int:
    made = parser(program)
    options, arguments = made.parse_known_args(words)
    unknown = [word for word in arguments if word.startswith("-") and word != "-" and "=" not in word.lstrip("-")]
    if not arguments:
        made.error("No operation specified")
    if unknown and not _negative(unknown[0]):
        made.error(f"Unexpected arguments: {' '.join(unknown)}")
    operation, *rest = arguments
    try:
        command = _Command(options, operation, rest)
    except _UsageError as error:
        made.error(str(error))
    return run_tool(command.run, program, options)


def _negative(word: str) -> bool:
    return word[1:2].isdigit()


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the options; other words are the operation and its arguments."""
    made = Parser(
        program,
        f"Standard operations: {', '.join(STANDARD)}. Use GET-OPERATIONS to find additional operations.",
        usage="%(prog)s [options...] OPERATION [arguments...]",
    )
    add = made.add_argument
    add("--type", help="Type of entity to operate on.")
    add("--name", help="Name of entity to operate on.")
    add("--identity", help="Identity of entity to operate on.")
    add("--indent", type=int, default=2, help="Pretty-printing indent. -1 means don't pretty-print")
    add("--stdin", action="store_true", help="Read attributes as JSON map or list of maps from stdin.")
    add("--body", help="JSON value to use as body of a non-standard operation call.")
    add("--properties", help="JSON map to use as properties for a non-standard operation call.")
    add_target_options(made)
    add_connection_options(made)
    return made


def long_type(name: str) -> str:
    """Return the type name to send: a short name expanded, an empty name or one with a dot unchanged."""
    return name if not name or "." in name else PREFIX + _SHORT_TYPES.get(name, name)


def short_type(name: str) -> str:
    """Return the shortest name for which `long_type` returns `name`."""
    stem = name.removeprefix(PREFIX)
    short = next((short for short, stands_for in _SHORT_TYPES.items() if stands_for == stem), stem)
    return short if long_type(short) == name else name


class _Command:
    """Call of the tool with its arguments. The answer is printed on stdout."""

    def __init__(self, options: argparse.Namespace, operation: str, arguments: list[str]) -> None:
        """Check the arguments. Raises _UsageError for arguments that the operation does not accept."""
        self._options = options
        self._type = long_type(options.type) if options.type else None
        self._operation = operation
        self._arguments = arguments
        name = operation.upper()
        self._name = name if name in STANDARD else ""  # name of a standard operation
        standard: dict[str, Callable[[ManagementClient], None]] = {
            "QUERY": self._query,
            "CREATE": self._create,
            "READ": self._read,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "GET-MGMT-NODES": self._nodes,
            **dict.fromkeys(_INTROSPECTION, self._introspect),
        }
        self._call = standard.get(name, self._other)
        if name in _INTROSPECTION:
            self._refuse(arguments[1:])
        elif name in ("READ", "DELETE"):
            self._refuse([word for word in arguments if word.partition("=")[0] not in ("type", "name", "identity")])
        elif name == "GET-MGMT-NODES" or (options.stdin and name in ("CREATE", "UPDATE")):
            self._refuse(arguments)

    @staticmethod
    def _refuse(words: list[str]) -> None:
        if words:
            raise _UsageError(f"Unexpected arguments: {' '.join(words)}")

    def run(self) -> int:
        """Connect and call the operation. Errors in arguments are raised before anything is sent."""
        self._attributes = self._parse_attributes()
        self._maps = self._read_stdin() if self._options.stdin and self._name in ("CREATE", "UPDATE") else None
        self._properties = _json_map(self._options.properties)
        self._body = _json_body(self._options.body)
        with ManagementClient(target(self._options)) as client:
            self._call(client)
        return 0

    # Operations

    def _query(self, client: ManagementClient) -> None:
        columns, rows = client.query(self._type, self._arguments)
        maps = [dict(zip(columns, row, strict=False)) for row in rows]
        self._print([{name: value for name, value in each.items() if value is not None} for each in maps])

    def _create(self, client: ManagementClient) -> None:
        def create(attributes: Attributes) -> Any:
            selected = self._selection(attributes)
            selected.pop("identity", None)
            return client.call("CREATE", selected, attributes, expect=201)

        self._each(create)

    def _update(self, client: ManagementClient) -> None:
        def update(attributes: Attributes) -> Any:
            body = {
                name: _UPDATE_BOOLEANS.get(value, value) if isinstance(value, str) else value
                for name, value in attributes.items()
            }
            return client.call("UPDATE", self._selection(attributes), body)

        self._each(update)

    def _each(self, call: Callable[[Attributes], Any]) -> None:
        """Call a function with the attributes of the command line, or with each map from stdin."""
        if self._maps is None:
            self._print(call(self._attributes))
        elif isinstance(self._maps, list):
            self._print([call(each) for each in self._maps])
        else:
            self._print(call(self._maps))

    def _read(self, client: ManagementClient) -> None:
        self._print(client.call("READ", self._selection(self._attributes)))

    def _delete(self, client: ManagementClient) -> None:
        client.call("DELETE", self._selection(self._attributes), expect=204)

    def _introspect(self, client: ManagementClient) -> None:
        entity_type = self._arguments[0] if self._arguments else self._type
        properties = {} if entity_type is None else {"entityType": entity_type}
        self._print(client.node_call(self._operation.upper(), properties))

    def _nodes(self, client: ManagementClient) -> None:
        self._print(client.node_call("GET-MGMT-NODES"))

    def _other(self, client: ManagementClient) -> None:
        properties = {**self._selection({}, both=True), **self._attributes, **self._properties}
        answer = client.call(self._operation, properties, self._body, expect=None)
        if isinstance(answer, str):
            print(answer)
        elif answer:
            self._print(answer)

    def _selection(self, attributes: Attributes, *, both: bool = False) -> Attributes:
        """Return the properties that select the entity. Options precede attributes, and identity precedes name."""
        options = self._options
        selected = {
            "type": self._type or attributes.get("type"),
            "name": options.name or attributes.get("name"),
            "identity": options.identity or attributes.get("identity"),
        }
        if selected["identity"] and not both:
            selected["name"] = None
        return {name: value for name, value in selected.items() if value is not None}

    # Arguments

    def _parse_attributes(self) -> Attributes:
        """Parse the ATTR=VALUE arguments of the operation. Raises ValueError."""
        if self._name == "QUERY" or self._name in _INTROSPECTION:
            return {}
        return dict(self._attribute(word) for word in self._arguments)

    def _attribute(self, word: str) -> tuple[str, Any]:
        name, equals, text = word.partition("=")
        value: Any = text if equals else None
        if name == "type" and value:
            return name, long_type(value)
        if self._type is not None and self._is_integer(name) and value is not None:
            return name, int(value)
        return name, _BOOLEANS.get(value, value)

    def _is_integer(self, name: str) -> bool:
        """Return whether an attribute of the type in option --type is an integer. Raises ValidationError."""
        from sluice.router.config.schema import SCHEMA  # 15 ms that queries do not need

        assert self._type is not None
        entity = SCHEMA.find(self._type)
        if entity is None or not self._name:
            return False
        attributes = entity.attributes.values()
        attribute = next((each for each in attributes if name in (each.name, each.old_name, each.alias)), None)
        if attribute is None:
            raise ValidationError(f"Unknown attribute '{name}' for '{entity.long_name}'")
        return attribute.type == "integer"

    @staticmethod
    def _read_stdin() -> Any:
        """Read a map or a list of maps from stdin, and expand type names. Raises ValueError."""
        given = json_codec.decode_exactly(sys.stdin.read())
        maps = given if isinstance(given, list) else [given]
        if not all(isinstance(each, dict) for each in maps):
            raise ValueError("stdin is not a JSON map or list")
        for each in maps:
            if isinstance(each.get("type"), str):
                each["type"] = long_type(each["type"])
        return given

    def _print(self, value: Any) -> None:
        indent = self._options.indent
        print(to_json(value, None if indent < 0 else indent))


def _json_map(text: str | None) -> Attributes:
    """Parse the value of --properties. Raises ValueError."""
    if text is None:
        return {}
    value = _json(text)
    if not isinstance(value, dict):
        raise ValueError(f"Invalid JSON '{text}': not a map")
    return value


def _json_body(text: str | None) -> Any:
    """Parse the value of --body, which is JSON or other text. Raises ValueError."""
    if text is None:
        return None
    try:
        return _json(text)
    except ValueError:
        if _JSON_CHARACTERS.isdisjoint(text):
            return text
        raise


def _json(text: str) -> Any:
    try:
        return json_codec.decode_exactly(text)
    except ValueError as error:
        raise ValueError(f"Invalid JSON '{text}': {error}") from error


if __name__ == "__main__":
    sys.exit(main())
