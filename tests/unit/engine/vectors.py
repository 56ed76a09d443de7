"""Cases that once failed, and some of each kind: tests/vectors/TARGET/NAME.json, as the fuzz harness writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fuzz import logins, rules
from tests.unit.engine import parsers
from tests.unit.engine.deliveries import conversation
from tests.unit.engine.replay import play

FOLDER: Final = Path(__file__).resolve().parents[2] / "vectors"
RUN: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "engine": play,
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
    """All vectors, as TARGET/NAME."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.json"))


def replay(name: str) -> None:
    """Run one again. Raises what it raised when it was found, if that is back."""
    target = name.split("/", 1)[0]
    RUN[target](json.loads((FOLDER / f"{name}.json").read_text()))
