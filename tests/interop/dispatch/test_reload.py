"""Reload of a running router by SIGHUP and `sluice reload`: all or nothing, with undo, under traffic."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest

from tests.interop.dispatch.load import ProtonLoad
from tests.interop.dispatch.node import ManagementNode
from tests.interop.dispatch.programs import ProgramResult, run
from tests.system.router import RouterProcess, Section, free_port, listener, poll

Start = Callable[..., RouterProcess]

#: Sizes of the test under load: pairs of clients, addresses whose distribution changes, reloads.
SIZES = [pytest.param((5, 100, 4), id="few"), pytest.param((15, 100, 10), id="many", marks=pytest.mark.long)]


def reload(router: RouterProcess, *options: str) -> ProgramResult:
    """Run `sluice reload`."""
    return run("sluice", "reload", "-b", f"127.0.0.1:{next(iter(router.ports.values()))}", *options)


def prefixes(node: ManagementNode) -> set[str]:
    """Return the prefixes of all configured addresses."""
    return {row["prefix"] for row in node.rows("router.config.address")}


def base(*more: Section) -> list[Section]:
    """Return a configuration with one address and the given sections."""
    return [listener(idleTimeoutSeconds=120), ("address", {"prefix": "kept", "name": "kept"}), *more]


@pytest.mark.parametrize("workers", [1, 3])
def test_hangup_applies_changed_file(workers: int, start: Start) -> None:
    """SIGHUP applies changes of addresses, listeners and log levels; connections stay open."""
    router = start(base(), workers)
    node = ManagementNode.connect(router.port)
    port = free_port()
    new: list[Section] = [
        ("address", {"prefix": "added", "distribution": "multicast"}),
        ("listener", {"host": "127.0.0.1", "port": port, "name": "second"}),
        ("log", {"module": "AGENT", "enable": "debug+"}),
    ]
    kept = node.one("router.config.address", prefix="kept")
    router.configure(base(*new))
    os.kill(router.pid, signal.SIGHUP)
    poll(lambda: prefixes(node) == {"kept", "added"}, "the new address is there")
    poll(lambda: len(node.rows("listener")) == 2, "the new listener is there")
    other = ManagementNode.connect(port)
    assert other.one("router.config.address", prefix="added")["distribution"] == "multicast"
    assert node.one("router.config.address", prefix="kept") == kept
    assert node.read(identity="log/AGENT").enable == "debug+"
    router.configure(base())
    os.kill(router.pid, signal.SIGHUP)
    poll(lambda: prefixes(node) == {"kept"}, "the address is gone again")
    assert other.one("router")["id"] == "QDR"
    assert "enable" not in node.read(identity="log/AGENT")
    other.close()
    node.close()


BAD_FILES: dict[str, tuple[Section, str]] = {
    "unknown attribute": (("address", {"prefix": "x", "bogus": 1}), "Unknown attribute 'bogus'"),
    "wrong value": (("address", {"prefix": "x", "distribution": "nowhere"}), "Invalid value for enum"),
    "unknown section": (("nosuch", {}), "No such entity type"),
    "same name": (("address", {"prefix": "x", "name": "kept"}), "duplicates unique attribute 'name'"),
    "bad level": (("log", {"module": "AGENT", "enable": "loud"}), "'loud' is not a valid log level"),
    "log file": (("log", {"module": "AGENT", "outputFile": "/nonexistent/x/log"}), "Failed to open log file"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_changes_nothing(name: str, start: Start) -> None:
    """The message has file, line and reason; no change of the file is applied, not even the valid ones."""
    section, said = BAD_FILES[name]
    router = start(base())
    node = ManagementNode.connect(router.port)
    before = node.query().results
    router.configure(base(("address", {"prefix": "right"}), section))
    done = reload(router)
    assert done.code == 1
    text = done.out + done.err
    assert said in text
    if name != "log file":
        assert str(router.config) in text
        assert re.search(r"\bline \d+\b|:\d+\b", text)
    mark = len(router.lines)
    os.kill(router.pid, signal.SIGHUP)
    router.wait_log(r"\((error|critical|warning)\) ", after=mark)
    assert prefixes(node) == {"kept"}
    assert len(node.query().results) == len(before)
    node.close()


def test_plan_changes_nothing_and_undo_restores(start: Start) -> None:
    """The plan shows the changes and applies none; undo restores the configuration before the reload."""
    router = start(base())
    node = ManagementNode.connect(router.port)
    router.configure(base(("address", {"prefix": "planned"})))
    planned = reload(router, "--plan")
    assert planned.code == 0
    assert "planned" in planned.out
    assert prefixes(node) == {"kept"}
    assert reload(router).code == 0
    assert prefixes(node) == {"kept", "planned"}
    assert reload(router, "--undo").code == 0
    assert prefixes(node) == {"kept"}
    node.close()


def test_reload_without_changes_succeeds(start: Start) -> None:
    router = start(base())
    assert reload(router).code == 0
    assert reload(router, "--plan").code == 0


def test_change_that_needs_restart_is_refused(start: Start) -> None:
    """A change that needs a restart is reported, and the router keeps its id."""
    router = start(base())
    node = ManagementNode.connect(router.port)
    router.configure([("router", {"id": "OTHER"}), *base(("address", {"prefix": "more"}))])
    done = reload(router, "--plan")
    assert "restart" in done.out + done.err
    done = reload(router)
    assert "restart" in done.out + done.err
    row = node.one("router")
    assert row["id"] == "QDR"
    node.close()


def test_reload_with_managed_entity_follows_plan(start: Start) -> None:
    """A reload treats an entity created by management as its plan has announced."""
    router = start(base())
    node = ManagementNode.connect(router.port)
    node.create("router.config.address", "made", prefix="made")
    assert prefixes(node) == {"kept", "made"}
    planned = reload(router, "--plan")
    assert planned.code == 0
    done = reload(router)
    assert done.code == 0
    left = prefixes(node)
    assert "kept" in left
    assert ("made" in left) == ("made" not in planned.out)
    node.close()


def wait_for_treatment(node: ManagementNode, kind: str) -> None:
    """Wait until the address under load has a distribution."""
    poll(lambda: node.one("router.config.address", prefix="load")["distribution"] == kind, "the file is in force")


def wait_for_messages(load: ProtonLoad, count: int) -> None:
    """Wait until more than `count` messages have arrived."""
    poll(lambda: load.delivered > count, "messages keep arriving")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("workers", [1, 3])
def test_reload_under_load_loses_no_messages(workers: int, size: tuple[int, int, int], start: Start) -> None:
    """No connection is closed, and no message is lost, duplicated, refused or out of order."""
    pairs, addresses, times = size
    extra = free_port()

    def sections(turn: int) -> list[Section]:
        kind = ("closest", "balanced")[turn % 2]
        found = base(*(("address", {"prefix": f"a{number}", "distribution": kind}) for number in range(addresses)))
        found.append(("address", {"prefix": "load", "distribution": kind}))
        if turn % 2:
            found.append(("listener", {"host": "127.0.0.1", "port": extra, "name": "extra"}))
            found.append(("log", {"module": "ROUTER_CORE", "enable": "debug+"}))
        return found

    router = start(sections(0), workers)
    load = ProtonLoad(router.port, pairs)
    load.start()
    node = ManagementNode.connect(router.port)
    for turn in range(1, times + 1):
        before = load.delivered
        router.configure(sections(turn))
        if turn % 3:
            done = reload(router)
            assert done.code == 0, done.out + done.err
        else:
            os.kill(router.pid, signal.SIGHUP)
        kind = ("closest", "balanced")[turn % 2]
        wait_for_treatment(node, kind)
        wait_for_messages(load, before + pairs)
    rows = node.rows("router.config.address")
    assert len(rows) == addresses + 2
    assert {row["distribution"] for row in rows if row["prefix"] != "kept"} == {("closest", "balanced")[times % 2]}
    assert len([row for row in node.rows("connection") if row["container"] == load.container.container_id]) == 2 * pairs
    node.close()
    assert load.finish() == []
    assert load.delivered > pairs * times
