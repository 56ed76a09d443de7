"""`sluice config`: the saved configuration of a changed router starts the same router."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sluice.router.config.schema import SCHEMA
from tests.system.fixtures import Start
from tests.system.router import Section, listener
from tests.system.tools import TIMEOUT, ToolResult, command, environment, run

SECTIONS: list[Section] = [
    listener(),
    ("address", {"prefix": "news", "distribution": "multicast"}),
    ("address", {"pattern": "a/#/b", "distribution": "closest"}),
    ("exchange", {"name": "e", "address": "in"}),
    ("binding", {"exchangeName": "e", "bindingKey": "a.#", "nextHopAddress": "out"}),
    ("connector", {"name": "c", "host": "127.0.0.1", "port": "1", "role": "route-container", "saslPassword": "secret"}),
    ("autoLink", {"address": "q", "direction": "in", "connection": "c"}),
    ("log", {"module": "SERVER", "enable": "info+"}),
]
TYPES = {"listener", "connector", "address", "exchange", "binding", "autoLink", "log"}


def config(port: int, *words: str) -> ToolResult:
    """Run `sluice config` against the listener on `port`."""
    line = [*command("config"), *words, "-b", f"127.0.0.1:{port}", "-t", "30"]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=TIMEOUT)
    return ToolResult(done.returncode, done.stdout, done.stderr)


def entities(port: int) -> list[dict[str, Any]]:
    """Return the configured entities with the attributes of the schema that can be set."""
    rows = json.loads(run("manage", port, "query").out)
    found = []
    for row in rows:
        kind = SCHEMA.find(row["type"])
        if kind is not None and kind.dump_key in TYPES:
            settable = [attribute.name for attribute in kind.settable]
            found.append({"type": kind.name, **{name: row.get(name) for name in settable}})
    return sorted(found, key=str)


def test_saved_configuration_starts_same_router(start: Start, tmp_path: Path) -> None:
    router = start(SECTIONS, 1)
    assert config(router.port, "diff").code == 0
    created = run(
        "manage", router.port, "create", "--type=address", "--name=made", "prefix=made", "distribution=closest"
    )
    assert created.code == 0, created.out
    assert run("manage", router.port, "update", "--type=log", "--name=log/SERVER", "enable=debug+").code == 0
    different = config(router.port, "diff")
    assert different.code == 3
    assert different.out.splitlines()[0] == "~ log SERVER"
    assert "+ address 'made'" in different.out
    saved = tmp_path / "saved.conf"
    assert config(router.port, "save", str(saved)).code == 0
    assert "secret" not in saved.read_text()
    assert config(router.port, "diff", str(saved)).out == "No difference.\n"
    before = entities(router.port)
    router.stop()
    # The listener gets another port at each start.
    router.config.write_text(saved.read_text())
    router.start()
    after = entities(router.port)
    assert {"router.config.address", "router.config.binding", "connector"} <= {each["type"] for each in after}
    # As in 1.19, a query without type shows an address made by management only after it is in the file.
    assert [each for each in after if each["name"] != "made"] == before
    assert any(each["name"] == "made" and each["distribution"] == "closest" for each in after)
    assert config(router.port, "diff").out == "No difference.\n"
    router.stop()
