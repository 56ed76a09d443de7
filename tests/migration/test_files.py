"""Files that outlive an update: configuration, users, telemetry and landing folders of the previous release.

Both releases use the same files in turn, since an operator may update and go back (docs/user/compatibility.md). The
configuration that `sluice reload --undo` returns to is in no file: each release ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from sluice.pipeline.errors import MissingError
from sluice.pipeline.prerequisites import find_java
from tests.pipeline.java import environment
from tests.pipeline.landers import COMMAND, LanderProcess, message, numbers, send_all
from tests.system.router import ROOT, SETTINGS, RouterProcess, Section, command, listener

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PATIENCE: Final = 300  # seconds for a command, which may start Spark
COUNT: Final = 20  # messages in each step
#: Attributes of files for the previous release that the present one refuses, or gives another default. 0.1.0 was
#: published nowhere, so CHANGELOG.md need not announce them.
REMOVED: Final = {("router", "rememberedContainers"), ("sslProfile", "oldConnectionsPerSecond")}
OTHER_DEFAULTS: Final = {("router", "maxBufferedMegabytes")}
ORDERS: Final = [("previous", "present"), ("present", "previous")]

Commands = dict[str, list[str]]


@pytest.fixture
def commands(previous: list[str]) -> Commands:
    """Return the command of each release."""
    return {"previous": previous, "present": command()}


@pytest.fixture
def java_runs() -> None:
    """Skip a test if Java is missing."""
    try:
        find_java()
    except MissingError as error:
        pytest.skip(str(error))


def run(words: Sequence[object], status: int = 0, text: str | None = None, folder: Path = ROOT) -> str:
    """Run a command that ends with this status. Return what it prints."""
    done = subprocess.run(
        [str(word) for word in words], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False,
        cwd=folder, env=environment(PYTHONPATH=os.environ.get("PYTHONPATH", "")),
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert done.returncode == status, printed
    return printed


@contextmanager
def running(directory: Path, program: Sequence[str], *sections: Section) -> Iterator[RouterProcess]:
    """Run a router until the end of the block, which stops it in order."""
    directory.mkdir(exist_ok=True)
    router = RouterProcess(directory, sections, 2, program=program)
    router.start()
    try:
        yield router
        router.stop()
    finally:
        router.kill()


def schema_types(root: Path) -> dict[str, Any]:
    types: dict[str, Any] = json.loads((root / "router" / "config" / "schema.json").read_text())["types"]
    return types


def test_configuration_files_of_previous_release_are_valid(commands: Commands, tmp_path: Path) -> None:
    shutil.copytree(Path(commands["previous"][0]).parent / "conf", tmp_path / "conf")
    run(
        ["conf/secure/make-certificates", "conf/secure/keys", "A=localhost", "B=localhost", "C=localhost"],
        folder=tmp_path,
    )
    run([*commands["previous"], "passwd", "conf/secure/keys/users", "alice"], text="secret\n", folder=tmp_path)
    found = sorted(tmp_path.glob("conf/**/*.conf"))
    for release in ("previous", "present"):
        run([*commands[release], "check", *found], folder=tmp_path)


def test_configuration_attributes_of_previous_release_keep_values_and_defaults(previous: list[str]) -> None:
    before, after = schema_types(Path(previous[0]).parent), schema_types(ROOT)
    removed, changed, defaults = set(), set(), set()
    for name, kind in before.items():
        if "section" not in kind:
            continue
        assert after[name]["section"] == kind["section"]
        for attribute, old in kind["attributes"].items():
            new = after[name]["attributes"].get(attribute)
            if not old.get("create"):
                continue
            if new is None:
                removed.add((name, attribute))
            elif new["type"] != old["type"] or not set(old.get("values", ())) <= set(new.get("values", ())):
                changed.add((name, attribute))
            elif new.get("default") != old.get("default"):
                defaults.add((name, attribute))
    assert (removed, changed, defaults) == (REMOVED, set(), OTHER_DEFAULTS)


@pytest.mark.parametrize(("router", "tool"), ORDERS)
def test_undo_of_other_release_reverts_reload_until_restart(
    commands: Commands, tmp_path: Path, router: str, tool: str
) -> None:
    sections = [listener(), *SETTINGS]
    added = ("address", {"prefix": "added", "distribution": "multicast"})

    def addresses(port: int) -> str:
        words = ["manage", "-b", f"127.0.0.1:{port}", "query", "--type=address", "prefix"]
        return run([*commands[tool], *words])

    with running(tmp_path / "router", commands[router], *sections) as process:
        reload = [*commands[tool], "reload", "-b", f"127.0.0.1:{process.port}"]
        process.configure([*sections, added])
        run(reload)
        assert '"added"' in addresses(process.port)
        run([*reload, "--undo"])
        assert '"added"' not in addresses(process.port)
    with running(tmp_path / "router", commands[tool], *sections, added) as process:
        assert '"added"' in addresses(process.port)
        run([*commands[router], "reload", "-b", f"127.0.0.1:{process.port}", "--undo"], status=1)
        assert '"added"' in addresses(process.port)


@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_users_written_by_both_releases_log_in_at_both(
    commands: Commands, tmp_path: Path, first: str, second: str
) -> None:
    users = tmp_path / "users"
    for release, user in ((first, "alice"), (second, "bob")):
        run([*commands[release], "passwd", users, user, "--iterations", "4096"], text=f"secret of {user}\n")
    sections = [
        ("saslUsers", {"name": "people", "file": users}),
        listener(saslUsers="people", saslMechanisms="PLAIN SCRAM-SHA-256", authenticatePeer=True),
    ]
    for release in (first, second):
        with running(tmp_path / release, commands[release], *sections) as process:
            for user in ("alice", "bob"):
                for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                    _log_in(process.port, user, f"secret of {user}", mechanism)
                with pytest.raises(ConnectionException):
                    _log_in(process.port, user, "wrong", "PLAIN")


def _log_in(port: int, user: str, password: str, mechanism: str) -> None:
    BlockingConnection(
        f"127.0.0.1:{port}", user=user, password=password, allowed_mechs=mechanism, allow_insecure_mechs=True,
        timeout=30, reconnect=False,
    ).close()  # fmt: skip


def exchange_messages(port: int, address: str) -> None:
    """Send COUNT messages and receive them."""
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=30, reconnect=False)
    try:
        receiver = connection.create_receiver(address, credit=COUNT)
        sender = connection.create_sender(address)
        sending: list[Any] = [sender.link.send(Message(body=number)) for number in range(COUNT)]
        for _ in range(COUNT):
            receiver.receive(timeout=30)
            receiver.accept()
        connection.wait(lambda: all(delivery.settled for delivery in sending), timeout=30)
    finally:
        connection.close()


def telemetry_schemas(folder: Path, router: str) -> dict[str, pa.Schema]:
    """Return the union of the columns of each table that a router wrote. Raises ArrowTypeError for different types."""
    found: dict[str, list[pa.Schema]] = defaultdict(list)
    for file in (folder / "v1").glob(f"*/router={router}/**/*.parquet"):
        found[file.relative_to(folder).parts[1]].append(pq.read_schema(file).remove_metadata())
    return {table: pa.unify_schemas(schemas) for table, schemas in found.items()}


def test_telemetry_of_both_releases_is_one_set_of_tables(java_runs: None, commands: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    telemetry: Section = ("telemetry", {"path": folder, "interval": 1, "fileSeconds": 1})
    steps = ["previous", "present", "previous", "present"]
    for number, release in enumerate(steps):
        own: Section = ("router", {"id": release})
        with running(tmp_path / "router", commands[release], own, listener(), *SETTINGS, telemetry) as process:
            exchange_messages(process.port, "balanced.orders")
        page = tmp_path / f"report-{number}.html"
    before, after = telemetry_schemas(folder, "previous"), telemetry_schemas(folder, "present")
    assert {"fact_flow", "fact_link", "fact_worker", "dim_address"} <= before.keys() <= after.keys()
    for table, old in before.items():
        missing = [field for field in old if table in after and field not in list(after[table])]
        assert missing == [], table
    run([*command(), "pipeline", "report", "--telemetry", folder, "--out", page])
    cells = f'<td data-head="Address">balanced.orders</td><td class=n data-head="Deliveries">{len(steps) * COUNT}</td>'
    assert cells in page.read_text()


def test_landing_folder_of_previous_release_is_continued(java_runs: None, commands: Commands, tmp_path: Path) -> None:
    """The lander and a query of the present release continue those of the previous one. Each message lands once."""
    folder, table = tmp_path / "landing", tmp_path / "table"
    pipelines = {"previous": [*commands["previous"], "pipeline"], "present": list(COMMAND)}
    with running(tmp_path / "router", command(), listener(), *SETTINGS) as process:
        url = f"amqp://127.0.0.1:{process.port}"
        for release, first in (("previous", 0), ("present", COUNT)):
            with LanderProcess(url, folder, "--id", "a", command=pipelines[release]) as lander:
                lander.ready()
                send_all(url, map(message, range(first, first + COUNT)))
                lander.stop()
            words = ["--path", folder, "--out", table, "--checkpoint", tmp_path / "checkpoint", "--once"]
            run([*pipelines[release], "query", *words, "--decode", "raw"])
        run([*pipelines["present"], "doctor", "--path", folder])
        assert numbers(folder) == list(range(2 * COUNT))
        written = pq.read_table(table).column("message").to_pylist()
        assert sorted(int.from_bytes(each[-4:], "big") for each in written) == list(range(2 * COUNT))
        with LanderProcess(url, folder, "--id", "a", command=pipelines["previous"]) as lander:
            assert lander.wait() == 1
            assert "has format 2" in "\n".join(lander.lines)
