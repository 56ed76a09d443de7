"""Log of a running router, as configured and after changes: levels, formats, frames, messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from tests.interop.dispatch.node import ManagementNode
from tests.system.router import RouterProcess, Section, listener, poll

Start = Callable[..., RouterProcess]


def connection(router: RouterProcess, port: int | None = None) -> BlockingConnection:
    """Connect a client."""
    return BlockingConnection(f"127.0.0.1:{port or router.port}", sasl_enabled=False, timeout=10)


@pytest.fixture(params=[1, 3], ids=["1-worker", "3-workers"])
def traced_router(request: pytest.FixtureRequest, start: Start) -> RouterProcess:
    """Router that logs everything."""
    return start([listener(), ("log", {"module": "DEFAULT", "enable": "trace+"})], request.param)


def frame_lines(router: RouterProcess, after: int, number: str, performative: str) -> list[str]:
    """Return the log lines of a connection's frames with a performative, from line `after` on."""
    wanted = re.compile(rf"PROTOCOL \(trace\) \[C{number}\]:FRAME: .*@{performative}\(")
    return [line for line in router.lines[after:] if wanted.search(line)]


def connection_number(node: ManagementNode, container: str) -> str:
    """Return the n of [Cn] for the connection of a container."""
    return str(node.one("connection", container=container)["identity"])


def test_frame_lines_follow_log_levels(traced_router: RouterProcess) -> None:
    """Attaching a receiver and a sender logs four attach frames at level trace, and none at other levels."""
    node = ManagementNode.connect(traced_router.port)

    def seen() -> tuple[int, int]:
        client = connection(traced_router)
        number = connection_number(node, client.container.container_id)
        before = len(traced_router.lines)
        receiver = client.create_receiver("log/a")
        sender = client.create_sender("log/a", options=AtMostOnce())
        sender.send(Message(body="x"))
        assert receiver.receive(timeout=10).body == "x"
        client.close()
        poll(lambda: not node.rows("connection", identity=number), "the connection is gone")
        return len(frame_lines(traced_router, before, number, "attach")), len(
            frame_lines(traced_router, before, number, "transfer")
        )

    poll(lambda: seen() == (4, 2), "four attach frames and two transfers")
    assert node.update({"enable": "info+"}, "log", name="log/DEFAULT").enable == "info+"
    poll(lambda: seen() == (0, 0), "no frames any more")
    node.update({"enable": "trace+"}, "log", name="log/PROTOCOL")
    poll(lambda: seen() == (4, 2), "frames of module PROTOCOL alone")
    node.update({"enable": "none"}, "log", name="log/PROTOCOL")
    poll(lambda: seen() == (0, 0), "no frames of a module that is off")
    node.close()


def test_module_settings_inherit_from_default(start: Start) -> None:
    """A module inherits from DEFAULT only the attributes that it does not set itself."""
    router = start(
        [
            listener(),
            ("log", {"module": "DEFAULT", "enable": "info+", "includeSource": True}),
            ("log", {"module": "AGENT", "enable": "debug"}),
            ("log", {"module": "SERVER", "includeSource": False, "includeTimestamp": False}),
        ]
    )
    node = ManagementNode.connect(router.port)
    assert node.read(identity="log/AGENT").attributes == {
        "module": "AGENT", "enable": "debug", "name": "log/AGENT", "identity": "log/AGENT",
        "type": "org.apache.qpid.dispatch.log",
    }  # fmt: skip
    router.wait_log(r"^\d{4}-.* AGENT \(debug\) Agent request .* \(\S+:\d+\)$")
    router.wait_log(r"^SERVER \(notice\) Listening on 127.0.0.1:\d+$")
    node.close()


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"timestampFormat": "%T %%d"}, r"^\d\d:\d\d:\d\d \d+ SERVER \(notice\) Operational"),
        ({"timestampFormat": "%Y/%m/%d.%%06lu"}, r"^\d{4}/\d\d/\d\d\.\d{6} SERVER \(notice\) Operational"),
    ],
)
def test_timestamp_format_is_applied(settings: dict[str, Any], pattern: str, start: Start) -> None:
    start([listener(), ("router", settings)]).wait_log(pattern)


def test_utc_timestamps_have_zero_offset(start: Start) -> None:
    router = start([listener(), ("router", {"timestampsInUTC": True})])
    match = router.wait_log(r"^(\S+ \S+) \+0000 SERVER \(notice\) Operational")
    written = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - written).total_seconds()) < 60


def test_log_modules_write_to_own_files(start: Start, tmp_path: Path) -> None:
    """A file name is relative to the router's working directory; other modules log to the output of DEFAULT."""
    router = start(
        [
            listener(),
            ("log", {"module": "DEFAULT", "outputFile": "stderr"}),
            ("log", {"module": "ROUTER_CORE", "outputFile": "core.log", "enable": "info+"}),
            ("log", {"module": "PROTOCOL", "outputFile": str(tmp_path / "frames.log"), "enable": "trace+"}),
        ],
        3,
    )
    connection(router).close()
    core, protocol = router.directory / "core.log", tmp_path / "frames.log"
    poll(lambda: core.exists() and "Connection Opened" in core.read_text(), "ROUTER_CORE writes to its file")
    poll(lambda: protocol.exists() and "@open(16)" in protocol.read_text(), "PROTOCOL writes to its file")
    assert all(" PROTOCOL (trace) [C" in line for line in protocol.read_text().splitlines())
    assert "ROUTER_CORE" not in router.log
    assert "PROTOCOL" not in router.log


@pytest.fixture(params=[1, 3], ids=["1-worker", "3-workers"])
def message_logging_router(request: pytest.FixtureRequest, start: Start) -> RouterProcess:
    """Router whose listeners log all components of messages, some, and none."""
    sections: list[Section] = [
        listener("all", messageLoggingComponents="all"),
        listener("some", messageLoggingComponents="to,subject"),
        listener("none"),
        ("log", {"module": "MESSAGE", "enable": "trace+"}),
    ]
    return start(sections, request.param)


def test_message_lines_show_configured_components(message_logging_router: RouterProcess) -> None:
    """The log has `Received` and `Sent` lines with the components that the listener of the connection selects."""
    receiver = connection(message_logging_router, message_logging_router.ports["some"]).create_receiver(
        "shown/a", name="out-link"
    )
    for name in ("all", "some", "none"):
        client = connection(message_logging_router, message_logging_router.ports[name])
        sender = client.create_sender("shown/a", name=f"in-{name}", options=AtMostOnce())
        properties = {"key": "value"}
        sender.send(Message(body="x", address="shown/a", subject=f"from-{name}", reply_to="r", properties=properties))
        client.create_sender(None)  # round trip: afterwards proton has written the message
        assert receiver.receive(timeout=10).subject == f"from-{name}"
        client.close()
    head = r"MESSAGE \(trace\) \[C\d+\]: "
    line = message_logging_router.wait_log(head + r"Received Message\{(.*)\} on link 'in-all' \(.* -> .*\)")
    assert 'to="shown/a"' in line[1]
    assert 'reply-to="r"' in line[1]
    assert "key" in line[1]
    line = message_logging_router.wait_log(head + r"Received Message\{(.*)\} on link 'in-some' \(.* -> .*\)")
    assert line[1] == 'to="shown/a", subject="from-some"'
    for name in ("all", "some", "none"):
        message_logging_router.wait_log(
            head + rf"Sent Message\{{to=\"shown/a\", subject=\"from-{name}\"\}} on link 'out-link' \("
        )
    assert "on link 'in-none'" not in message_logging_router.log
    receiver.connection.close()


def test_connection_life_cycle_is_logged(traced_router: RouterProcess) -> None:
    """The log has lines for accept, open, attach, detach and close of a connection."""
    client = connection(traced_router)
    client.create_receiver("lines/a")
    number = traced_router.wait_log(
        r"SERVER \(info\) \[C(\d+)\] Accepted connection to 127.0.0.1:\d+ from 127.0.0.1:\d+"
    )[1]
    opened = traced_router.wait_log(
        rf"ROUTER_CORE \(info\) \[C{number}\] Connection Opened: dir=in host=127.0.0.1:\d+ vhost= encrypted=no auth=no "
        rf"user=anonymous container_id={re.escape(client.container.container_id)} props="
    )
    assert opened
    link = traced_router.wait_log(
        rf"ROUTER_CORE \(info\) \[C{number}\]\[L(\d+)\] Link attached: dir=out source=\{{lines/a expire:sess\}} "
        r"target=\{<none> expire:sess\}"
    )[1]
    client.close()
    traced_router.wait_log(
        rf"ROUTER_CORE \(info\) \[C{number}\]\[L{link}\] Link (lost|closed|detached): del=0 presett=0 psdrop=0 acc=0 "
        r"rej=0 rel=0 mod=0 delay1=0 delay10=0 blocked=no"
    )
    traced_router.wait_log(rf"ROUTER_CORE \(info\) \[C{number}\] Connection Closed")
