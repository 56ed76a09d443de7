"""Stored cases that once failed, and some of each kind: tests/vectors/TARGET/NAME.json, as written by the fuzz
harness.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.component.engine import parsers
from tests.component.engine.deliveries import conversation
from tests.component.engine.path_comparison import compare
from tests.component.engine.replay import play
from tests.fuzz import logins, rules

FOLDER: Final = Path(__file__).resolve().parents[2] / "vectors"
RUN: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "engine": play,
    "paths": compare,
    "codec": parsers.codec,
    "performatives": parsers.performatives,
    "message": parsers.message,
    "sasl": parsers.sasl,
    "config": parsers.config,
    "address": parsers.address,
    "login": logins.run_login,
    "token": logins.run_token,
    "service": logins.run_service_open,
    "users": logins.run_users_file,
    "policy": parsers.policy,
    "rules": rules.run_rules,
    "states": conversation.run,
}


def names() -> list[str]:
    """Return all vectors, as TARGET/NAME."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.json"))


def replay(name: str) -> None:
    """Run a vector again. Raises the error for which it was stored if that has come back."""
    target = name.split("/", 1)[0]
    RUN[target](json.loads((FOLDER / f"{name}.json").read_text()))
