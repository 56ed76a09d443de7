"""Environment variables in values of configuration files: `${NAME}` and `${NAME:-default}`.

They are replaced only in files that ask for it (`environmentVariables: yes` in section router), because files of 1.19
may contain such texts: `${user}` stands for the user's name in a policy. Names have capitals, digits and `_` only, so
`${user}` stays. `$${NAME}` is the text `${NAME}`.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from sluice.router.config.errors import Problems
from sluice.router.config.grammar import Item, Section
from sluice.router.config.inherited import INHERITED
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.values import InvalidValue, to_boolean

ATTRIBUTE: Final = "environmentVariables"
_REFERENCE: Final = re.compile(r"\$(?P<escape>\$?)\{(?P<name>[A-Z_][A-Z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_DOLLAR: Final = re.compile(r"\$(?=\{[A-Z_][A-Z0-9_]*(?::-[^}]*)?\})")


class _MissingVariable(Exception):
    """Raised for a variable that is not set and has no default. Its text is the name."""


def wants_variables(sections: Iterable[Section]) -> bool:
    """Return whether a file asks for variables. An invalid value does not; it is reported elsewhere."""
    for section in sections:
        item = section.attributes.get(ATTRIBUTE) if section.name == "router" else None
        if item is not None:
            try:
                return to_boolean(item.value)
            except InvalidValue:
                return False
    return False


def expand(sections: Iterable[Section], problems: Problems) -> Iterator[Section]:
    """Yield the sections with variables replaced. A missing variable is an error, and its attribute is left out."""
    for section in sections:
        attributes: dict[str, Item] = {}
        for name, item in section.attributes.items():
            try:
                attributes[name] = Item(_expanded(item.value), item.line, item.inner)
            except _MissingVariable as missing:
                text = f"the environment variable '{missing}' in attribute '{name}' is not set"
                problems.error(item.line, f"{text}; set it, or write a default: ${{{missing}:-default}}")
        yield Section(section.name, section.line, attributes)


def escape(value: JsonValue) -> JsonValue:
    """Return a value as a file with variables must have it."""
    if isinstance(value, str):
        return _DOLLAR.sub("$$", value)
    if isinstance(value, list):
        return [escape(item) for item in value]
    if isinstance(value, dict):
        return {key: escape(item) for key, item in value.items()}
    return value


def _expanded(value: JsonValue) -> JsonValue:
    """Return a value with the variables replaced in all texts in it, but not in keys. Raises _MissingVariable."""
    if isinstance(value, str):
        return _REFERENCE.sub(_replacement, value)
    if isinstance(value, list):
        return [_expanded(item) for item in value]
    if isinstance(value, dict):
        return {key: _expanded(item) for key, item in value.items()}
    return value


def _replacement(match: re.Match[str]) -> str:
    if match["escape"]:
        return match.group()[1:]
    value = os.environ.get(match["name"])
    if value is None:
        value = INHERITED.remembered(match["name"])
    # As in a shell, the default also replaces an empty value.
    if match["default"] is not None:
        return value or match["default"]
    if value is None:
        raise _MissingVariable(match["name"])
    return value
