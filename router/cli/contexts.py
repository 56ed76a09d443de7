"""Contexts: named routers with the options of their connection, in a file of the user.

The file has no passwords, only references to them: `file:PATH` or `env:NAME`. It is readable by its owner only.
"""

import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from sluice.router import json_codec

URL_VARIABLE: Final = "SLUICE_URL"
CONTEXT_VARIABLE: Final = "SLUICE_CONTEXT"
# Options of a connection that a context may have, by their names in the file.
OPTIONS: Final = (
    "url", "timeout", "ssl-certificate", "ssl-key", "ssl-trustfile", "ssl-password", "sasl-mechanisms",
    "sasl-username", "sasl-password", "ssl-disable-peer-name-verify",
)  # fmt: skip
SECRETS: Final = ("ssl-password", "sasl-password")
_REFERENCES: Final = ("file:", "env:")
_MODE: Final = 0o600

Options = Mapping[str, str | float | bool]


class ContextError(ValueError):
    """Raised for a context that does not exist or cannot be used."""


class Contexts(Struct):
    """Contexts of a user. `current` is the name of the one in use; empty: none."""

    current: str = ""
    named: dict[str, Options] = field(default_factory=dict)

    def find(self, name: str) -> Options:
        """Return the options of a context. Raises ContextError."""
        found = self.named.get(name)
        if found is None:
            known = ", ".join(sorted(self.named)) or "none"
            raise ContextError(f"there is no context '{name}' (known: {known}); see `sluice context list`")
        return found


def contexts_file() -> Path:
    """Return the path of the file."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder) / "sluice" / "contexts.toml"


def read_contexts() -> Contexts:
    """Read the file; without one, there are no contexts. Raises ContextError and OSError."""
    path = contexts_file()
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Contexts()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContextError(f"{path}: {error}") from error
    named = table.get("contexts", {})
    if not isinstance(named, dict) or not all(isinstance(each, dict) for each in named.values()):
        raise ContextError(f"{path}: [contexts] must have a table for each context")
    for name, options in named.items():
        _check(path, name, options)
    return Contexts(str(table.get("current", "")), named)


def _check(path: Path, name: str, options: Mapping[str, Any]) -> None:
    """Raise ContextError for options that `write_contexts` would not have written."""
    for option, value in options.items():
        if option not in OPTIONS or not isinstance(value, str | int | float | bool):
            raise ContextError(f"{path}: context '{name}': '{option}' is no option of a connection")
        if option in SECRETS:
            check_reference(option, str(value))


def check_reference(option: str, value: str) -> None:
    """Raise ContextError for a password that is written out."""
    if not value.startswith(_REFERENCES):
        raise ContextError(f"{option} must be file:PATH or env:NAME: contexts contain no passwords")


def write_contexts(contexts: Contexts) -> None:
    """Write the file, completely or not at all. Raises OSError."""
    path = contexts_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = ["# Written by `sluice context`.", f"current = {_toml(contexts.current)}"]
    for name, options in sorted(contexts.named.items()):
        lines += ["", f"[contexts.{_toml(name)}]", *(f"{option} = {_toml(value)}" for option, value in options.items())]
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=".contexts.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), _MODE)
            file.write("\n".join(lines) + "\n")
        os.replace(made, path)
    except OSError:
        os.unlink(made)
        raise


def _toml(value: str | float | bool) -> str:
    """Return a value as TOML writes it: its basic strings have the escapes of JSON."""
    if isinstance(value, str):
        return json_codec.dispatch_text(value.encode("utf-8", "replace").decode()).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


def secret(reference: str) -> str:
    """Return the password that a reference leads to. Raises ContextError and OSError."""
    kind, _, rest = reference.partition(":")
    if kind == "file":
        with open(rest, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    value = os.environ.get(rest)
    if value is None:
        raise ContextError(f"the environment variable {rest}, which the context names, is not set")
    return value


def active_options(name: str | None) -> Options:
    """Return the options for a command without a URL.

    name: value of --context. Next come SLUICE_URL, SLUICE_CONTEXT and the current context. Raises ContextError and
    OSError.
    """
    if name is None and (url := os.environ.get(URL_VARIABLE)):
        return {"url": url}
    wanted = name or os.environ.get(CONTEXT_VARIABLE)
    contexts = read_contexts()
    wanted = wanted or contexts.current
    return contexts.find(wanted) if wanted else {}
