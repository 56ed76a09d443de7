"""Telemetry in the supervisor: facts and events for the telemetry process, and rows for receivers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.config.entities import Configuration, TelemetryConfig
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.handover import InitiateData
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.child_process import ChildOwner, ChildProgram
from sluice.supervisor.children.framing import MessageError
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.policy.denials import DenialKind
from sluice.supervisor.telemetry import telemetry
from sluice.supervisor.telemetry.telemetry import ADDRESS, Telemetry
from tests.unit.supervisor.edge.edge_router import SilentInitiator
from tests.unit.supervisor.harness import configuration_text
from tests.unit.supervisor.telemetry.metrics_router import MetricsRouter

CONNECTOR = "connector {\nname: up\nhost: 127.0.0.1\nport: 1\nrole: inter-router\ncost: 7\n}\n"


def configuration(*attributes: str) -> Configuration:
    """Return a configuration whose telemetry section has these attributes; without attributes there is none."""
    section = "telemetry {\n" + "\n".join(attributes) + "\n}\n" if attributes else ""
    interior = configuration_text().replace("standalone", "interior")
    return load_text("router.conf", interior + CONNECTOR + section)


ON = configuration("path: /data")
OFF = configuration()


class RecordedProcess:
    """Child process as its owner sees it, which keeps the messages sent to it."""

    def __init__(self, owner: ChildOwner) -> None:
        self.owner = owner
        self.sent: list[Message] = []
        self.stopped = self.finished = False

    def start(self) -> None:
        self.owner.child_started()

    def replace(self) -> None:
        """Lose the process and start the next one."""
        self.sent.clear()
        self.owner.child_lost("it died")
        self.owner.child_started()

    def send(self, content: bytes) -> None:
        self.sent.append(decode(content))

    def stop(self) -> None:
        self.stopped = True

    async def finish(self, seconds: float) -> None:
        self.finished = True

    def report(self, **message: Any) -> None:
        """Report on behalf of the process."""
        self.owner.child_reported(encode(message))

    def describe(self, number: int) -> list[Message]:
        """Send `describe`, and return the messages that come before the answer."""
        self.sent.clear()
        self.report(describe=number)
        answer = self.sent.pop()
        assert answer["described"] == number
        self._receivers = bool(answer["receivers"])
        return self.sent

    def knows_receivers(self) -> bool:
        """Return whether the last answer to `describe` reported receivers."""
        return self._receivers

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table among the messages sent last."""
        return [row for message in self.sent if message.get("table") == table for row in message["rows"]]


class TelemetryRouter(MetricsRouter):
    """Router with telemetry, which is off until `start`."""

    def __init__(self) -> None:
        super().__init__()
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")}))
        self.loop = asyncio.new_event_loop()
        self.processes: list[RecordedProcess] = []
        self.telemetry = Telemetry(self.loop, self.core, self.region, "1.0", self.log, "sluice")
        self.core.events.add(self.telemetry)

    def make_process(self, loop: object, program: ChildProgram, owner: ChildOwner, log: object) -> RecordedProcess:
        """Create a process in place of ChildProcess."""
        self.processes.append(RecordedProcess(owner))
        return self.processes[-1]

    def start(self) -> RecordedProcess:
        """Start the subsystem with telemetry, and return its process."""
        self.telemetry.start(ON)
        return self.processes[-1]

    def change(self, old: Configuration, new: Configuration) -> None:
        self.telemetry.commit(ConfigurationChange(old, new, whole=True))

    def opened(self, container: str = "c") -> RegisteredConnection:
        """Open the connection of a client."""
        made = self.client()
        self._open(made, container)
        return made

    def router_connection(self) -> RegisteredConnection:
        """Open an inter-router connection."""
        profile, _ = self.core.profiles.add(ON.connectors[0])
        number, worker = self.core.connections.take_number(), self.core.workers[0]
        initiate = InitiateData("", None)
        made = self.core.connections.initiate(number, ON.connectors[0], profile, SilentInitiator(), initiate)
        self.core.connections.move(made, worker)
        self._open(made, "B")
        return made

    def _open(self, made: RegisteredConnection, container: str) -> None:
        fields: dict[str, Any] = {"hostname": None, "user": "u", "properties": {}, "tls": None}
        opened = messages.Opened(conn=made.number, container=container, **fields)
        self.core.receive(self.core.workers[0], opened)
        self.settle()

    def finish(self) -> None:
        self.loop.run_until_complete(self.telemetry.finish())

    def close(self) -> None:
        self.loop.close()
        super().close()


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Iterator[TelemetryRouter]:
    made = TelemetryRouter()
    monkeypatch.setattr(telemetry, "ChildProcess", made.make_process)
    yield made
    made.close()


def events(process: RecordedProcess) -> list[tuple[str, str]]:
    return [(row["kind"], row["subject"]) for row in process.rows("event")]


def test_process_gets_setup_first(router: TelemetryRouter) -> None:
    process = router.start()
    setup = process.sent[0]["setup"]
    assert (setup["path"], setup["router"], setup["interval"], setup["period"]) == ("/data", "QDR", 10, 60)
    process.describe(1)
    (facts,) = process.rows("dim_router")
    assert (facts["workers"], facts["version"], facts["mode"]) == (2, "1.0", "interior")
    assert facts["boot_id"] == setup["boot"]


def test_present_connections_and_links_are_described_to_process(router: TelemetryRouter) -> None:
    client = router.opened()
    router.link(client, "in", "a")
    router.link(client, "out", "a")
    process = router.start()
    process.describe(1)
    assert [row["connection_id"] for row in process.rows("dim_connection")] == [client.number]
    assert [(row["dir"], row["address"]) for row in process.rows("dim_link")] == [("in", "a"), ("out", "a")]
    assert [row["address"] for row in process.rows("dim_address")] == ["a"], "an address is described once"
    assert len([message for message in process.sent if "link" in message]) == 2
    assert process.describe(2) == [], "nothing is new"
    process.report(saved=2)
    process.replace()
    process.describe(3)
    assert len(process.rows("dim_link")) == 2
    assert [row["address"] for row in process.rows("dim_address")] == ["a"], "the next process knows no address"


def test_rows_in_no_file_are_sent_to_next_process_in_order(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    one = router.opened()
    process.describe(2)
    router.core.receive(router.core.workers[0], messages.Closed(conn=one.number, error=None))
    process.describe(3)
    process.report(saved=1)
    process.replace()
    process.describe(4)
    number = str(one.number)
    assert events(process) == [("connection open", number), ("connection close", number)]
    assert len(process.rows("dim_router")) == 1, "the first one is in a file"
    process.report(saved=4)
    process.replace()
    process.describe(5)
    assert events(process) == []


def test_link_is_described_when_it_has_an_address(router: TelemetryRouter) -> None:
    client = router.opened()
    process = router.start()
    process.describe(1)
    router.link(client, "in", "a")
    ((identity, link),) = router.core.links.by_identity.items()
    link.up = False  # as if its attach were unanswered
    process.describe(2)
    assert [(row["link_id"], row["address"]) for row in process.rows("dim_link")] == [(identity, "a")]
    assert process.sent[0]["link"][3:] == [identity, client.number, "a"]


def test_link_without_address_is_described_the_second_time(router: TelemetryRouter) -> None:
    client = router.opened()
    process = router.start()
    process.describe(1)
    router.link(client, "in", None)
    (link,) = router.core.links.by_identity.values()
    link.up = False  # as if its attach were unanswered
    process.describe(2)
    assert process.rows("dim_link") == []
    process.describe(3)
    assert [row["address"] for row in process.rows("dim_link")] == [None]


def test_link_that_ends_at_once_is_described(router: TelemetryRouter) -> None:
    client = router.opened()
    process = router.start()
    process.describe(1)
    number = router.link(client, "in", None)
    client.links[number].up = False  # as if its attach were unanswered
    router.detach(client, number)
    process.describe(2)
    assert len(process.rows("dim_link")) == 1
    process.describe(3)
    assert process.rows("dim_link") == []


def test_denials_are_reported_as_increments(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    kind = DenialKind("v", "g", "source")
    router.core.policy.denials.add(kind, count=3)
    process.describe(2)
    router.core.policy.denials.add(kind, count=2)
    process.describe(3)
    (row,) = process.rows("event")
    assert (row["kind"], row["subject"]) == ("policy denial", "v")
    assert row["detail"] == {"group": "g", "reason": "source", "count": "2"}
    assert process.describe(4) == []


def test_connection_without_open_is_no_event(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    client = router.client()
    router.core.receive(router.core.workers[0], messages.Closed(conn=client.number, error=None))
    assert process.describe(2) == []


def test_peer_router_is_reported_until_its_connection_ends(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    connection = router.router_connection()
    assert {"peer": [connection.number, "B", 7]} in process.describe(2)
    router.core.receive(router.core.workers[0], messages.Closed(conn=connection.number, error=None))
    assert {"gone": connection.number} in process.describe(3)


# -- Configuration


def test_unchanged_section_keeps_process(router: TelemetryRouter) -> None:
    process = router.start()
    router.change(ON, configuration("path: /data"))
    assert router.processes == [process]
    assert not process.stopped
    process.describe(1)
    assert events(process) == [("reload", "router.conf")]


def test_changed_section_replaces_process(router: TelemetryRouter) -> None:
    process = router.start()
    router.change(ON, configuration("path: /other", "interval: 5"))
    assert process.stopped
    setup = router.processes[1].sent[0]["setup"]
    assert (setup["path"], setup["interval"]) == ("/other", 5)
    assert setup["boot"] == process.sent[0]["setup"]["boot"]


def test_router_without_section_collects_nothing(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    router.change(ON, OFF)
    assert process.stopped
    client = router.opened()
    router.link(client, "in", "a")
    router.telemetry.worker_lost(router.core.workers[1])
    router.change(OFF, ON)
    last = router.processes[-1]
    last.describe(1)
    assert [row["kind"] for row in last.rows("event")] == ["reload"]
    assert len(last.rows("dim_link")) == 1, "present links are described to the new process"
    router.finish()
    assert last.finished


def test_last_events_are_sent_before_process_finishes(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    process.sent.clear()
    router.telemetry.stop()
    router.finish()
    assert events(process) == [("router", "stop")]
    assert process.finished


# -- Reports of the process


def test_rows_are_sent_to_receivers_of_telemetry_address(router: TelemetryRouter) -> None:
    process = router.start()
    process.describe(1)
    assert not process.knows_receivers()
    router.link(router.opened(), "out", ADDRESS)
    process.describe(2)
    assert process.knows_receivers()
    process.report(live="fact_link", rows=[{"deliveries": 1}, {"deliveries": 2}])
    ((_, octets),) = router.core.workers[0].sends
    assert b"fact_link" in octets
    lines = b'{"router":"QDR","deliveries":1}\n{"router":"QDR","deliveries":2}\n'
    assert octets.endswith(lines)


def test_receivers_get_no_rows_if_switched_off(router: TelemetryRouter) -> None:
    process = router.start()
    router.change(ON, configuration("path: /data", "live: no"))
    process = router.processes[-1]
    router.link(router.opened(), "out", ADDRESS)
    process.describe(1)
    assert not process.knows_receivers()


def test_lost_rows_are_counted_over_all_processes(router: TelemetryRouter) -> None:
    process = router.start()
    process.report(lost=3)
    process.replace()
    process.report(lost=2)
    assert router.telemetry.rows_lost() == 5
    (config,) = [each for each in ON.others if isinstance(each, TelemetryConfig)]
    assert router.telemetry.live_attributes()["telemetry"](config) == {"rowsLost": 5}


def test_process_writes_to_log_of_router(router: TelemetryRouter) -> None:
    process = router.start()
    process.report(log="error", text="the disk is full")
    process.report(log="no level", text="ignored")
    assert [(entry.module, entry.level, entry.text) for entry in router.log.recent()] == [
        ("SERVER", "error", "the disk is full")
    ]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"describe": "x"}', b'{"live": "t"}', b'{"saved": "x"}'])
def test_invalid_report_is_refused(router: TelemetryRouter, content: bytes) -> None:
    process = router.start()
    process.describe(1)  # its rows wait for `saved`
    with pytest.raises(MessageError):
        process.owner.child_reported(content)
