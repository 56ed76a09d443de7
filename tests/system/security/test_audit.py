"""Audit log of a running router: recorded events of real clients and tools, files, and full disks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from tests.peer.frames import SASL_HEADER
from tests.peer.logins import ISSUER, token, write_users
from tests.peer.management import PREFIX, Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.peer.pki import CLIENT, Pki, pki
from tests.system import tools
from tests.system.fixtures import Start
from tests.system.http import WEB, scrape
from tests.system.networks import RouterView, interior, ports
from tests.system.router import RouterProcess, Section, free_port, listener, poll
from tests.system.security.test_sasl import plain
from tests.system.security.tokens import issuer, open_with

Event = dict[str, Any]
EVERYTHING = {
    "users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True,
    "allowAnonymousSender": True,
}  # fmt: skip
READER = {**EVERYTHING, "management": "read"}


def vhost(hostname: str, group: dict[str, Any], **attributes: Any) -> Section:
    """Return a vhost with one group for all users."""
    return "vhost", {"hostname": hostname, **attributes, "groups": {"all": {"users": "*", "remoteHosts": "*", **group}}}


class AuditedRouter:
    """A router with an audit log in its directory."""

    def __init__(self, folder: Path, start: Start, sections: Callable[[Path], list[Section]], **audit: Any) -> None:
        self.folder = folder
        self.path = folder / "audit.log"
        self.audit: Section = ("audit", {"path": self.path, **audit})
        self.sections = [*sections(folder), self.audit]
        self.router = start(self.sections)

    def lines(self, *paths: Path) -> list[Event]:
        """Return the complete lines of one or several files, in order."""
        texts = [path.read_text() for path in paths or (self.path,) if path.exists()]
        return [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def found(self, event: str, **detail: Any) -> list[Event]:
        """Return the lines of an event whose detail has these members."""
        return [
            line for line in self.lines()
            if line["event"] == event and all(line["detail"].get(name) == value for name, value in detail.items())
        ]  # fmt: skip

    def one(self, event: str, **detail: Any) -> Event:
        """Return the only line of an event with these members, waiting for it."""
        found = poll(lambda: self.found(event, **detail), f"a line {event} {detail} among {self.path}")
        assert len(found) == 1, found
        line: Event = found[0]
        return line


def sections(folder: Path) -> list[Section]:
    write_users(folder / "users", guest="secret")
    return [
        ("saslUsers", {"name": "users", "file": folder / "users"}),
        issuer(folder),
        listener(),
        listener("people", saslUsers="users", authenticatePeer=True),
        listener("tokens", tokenIssuers="id", authenticatePeer=True),
        listener("tight", policyVhost="tight"),
        listener("shut", policyVhost="none"),
        listener("readers", policyVhost="readers"),
        WEB,
        ("policy", {"enableVhostPolicy": True}),
        vhost("$default", EVERYTHING),
        vhost("tight", {"sources": "in", "targets": "in", "maxSessions": 1}),
        vhost("none", {**EVERYTHING, "remoteHosts": "10.0.0.1"}),
        vhost("readers", READER),
    ]


@pytest.fixture
def audited(tmp_path: Path, start: Start) -> AuditedRouter:
    return AuditedRouter(tmp_path, start, sections)


@pytest.fixture
def dial(peers: list[AmqpPeer]) -> Callable[..., AmqpPeer]:
    def connected(audited: AuditedRouter, name: str = "", **fields: Any) -> AmqpPeer:
        peers.append(AmqpPeer.opened(audited.router.ports[name], **fields))
        return peers[-1]

    return connected


Dial = Callable[..., AmqpPeer]


def manage(audited: AuditedRouter, *words: str) -> tools.ToolResult:
    return tools.run("manage", audited.router.ports[""], *words)


# --- logins ----------------------------------------------------------------------------------------------------------


def test_login_line_names_user_and_mechanism(audited: AuditedRouter) -> None:
    client = BlockingConnection(f"amqp://guest:secret@127.0.0.1:{audited.router.ports['people']}", timeout=20)
    line = audited.one("login")
    client.close()
    assert (line["outcome"], line["router"], line["user"], line["listener"]) == ("success", "QDR", "guest", "people")
    assert line["vhost"] == "127.0.0.1"
    assert line["remote"] == "127.0.0.1"
    assert isinstance(line["port"], int)
    assert line["detail"]["mechanism"] == "SCRAM-SHA-512"
    assert isinstance(line["connection"], int)


def test_refused_login_line_names_claimed_user_without_secret(audited: AuditedRouter, peers: list[AmqpPeer]) -> None:
    with pytest.raises(proton.ConnectionException):
        BlockingConnection(f"amqp://guest:wr0ng-secret@127.0.0.1:{audited.router.ports['people']}", timeout=20)
    peers.append(AmqpPeer(audited.router.ports["people"]))
    assert peers[-1].sasl("PLAIN", plain("guest", "wr0ng-secret")).code == 1
    line = audited.one("login.refused", mechanism="PLAIN")
    assert (line["outcome"], line["listener"], line["detail"]["claimed"]) == ("denied", "people", "guest")
    assert "Password verification failed" in line["detail"]["reason"]
    assert "user" not in line
    assert "wr0ng-secret" not in audited.path.read_text()


def test_refused_login_of_departed_client_is_recorded(audited: AuditedRouter) -> None:
    """The reply to a failed login is delayed. A client that disconnects before it is recorded as well."""
    peer = AmqpPeer(audited.router.ports["people"])
    assert peer.header(SASL_HEADER) == SASL_HEADER
    peer.expect("sasl-mechanisms")
    peer.frame("sasl-init", mechanism="PLAIN", initial_response=plain("guest", "wrong"))
    peer.drop()
    assert audited.one("login.refused")["detail"]["claimed"] == "guest"


def test_login_without_open_is_recorded_at_disconnect(audited: AuditedRouter) -> None:
    peer = AmqpPeer(audited.router.ports["people"])
    assert peer.sasl("PLAIN", plain("guest", "secret")).code == 0
    peer.drop()
    line = audited.one("login")
    assert (line["user"], line["detail"]["opened"]) == ("guest", False)


def test_login_by_token_names_issuer(audited: AuditedRouter, peers: list[AmqpPeer]) -> None:
    peers.append(AmqpPeer(audited.router.ports["tokens"]))
    open_with(peers[-1], token(sub="alice"))
    line = audited.one("login", mechanism="OAUTHBEARER")
    assert line["detail"]["token"] == {"issuer": ISSUER, "subject": "alice"}
    assert audited.path.read_text().count("eyJ") == 0  # tokens are not logged


def test_login_by_certificate_names_subject_and_issuer(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, start: Start, peers: list[AmqpPeer]
) -> None:
    made: Pki = pki(tmp_path_factory.getbasetemp())

    def secured(folder: Path) -> list[Section]:
        certificate, key = made.server
        profile = {"name": "p", "certFile": certificate, "privateKeyFile": key, "caCertFile": made.trusted}
        wanted: dict[str, Any] = {
            "sslProfile": "p",
            "requireSsl": True,
            "saslMechanisms": "EXTERNAL",
            "authenticatePeer": True,
        }
        return [("sslProfile", profile), listener(**wanted)]

    audited = AuditedRouter(tmp_path, start, secured)
    plain_socket = socket.create_connection(("127.0.0.1", audited.router.ports[""]), timeout=10)
    peers.append(
        AmqpPeer(made.context(made.issue("client", CLIENT)).wrap_socket(plain_socket, server_hostname="localhost"))
    )
    peers[-1].open(mechanism="EXTERNAL")
    line = audited.one("login")
    tls = line["detail"]["tls"]
    assert tls["subject"] == line["user"]
    assert tls["issuer"]
    assert tls["issuer"] != tls["subject"]
    refused = socket.create_connection(("127.0.0.1", audited.router.ports[""]), timeout=10)
    refused.sendall(b"AMQP\0\1\0\0")
    line = audited.one("connection.refused")
    refused.close()
    assert line["detail"]["reason"]


def test_repeated_refused_logins_are_condensed(audited: AuditedRouter) -> None:
    """Mechanisms that are not offered are refused immediately, so many attempts are possible."""
    attempts = 60
    for _ in range(attempts):
        peer = AmqpPeer(audited.router.ports["people"])
        assert peer.sasl("ANONYMOUS", b"").code == 1
        peer.drop()
    audited.router.stop()
    found = audited.found("login.refused")
    assert sum(line.get("repeated", 1) for line in found) == attempts
    assert len(found) < attempts / 2
    assert "mech=ANONYMOUS" in found[-1]["detail"]["reason"]
    assert not {"connection", "port"} & found[-1].keys()  # they differ between attempts
    assert found[-1]["remote"] == "127.0.0.1"
    audited.router.start()


# --- policy ----------------------------------------------------------------------------------------------------------


def test_denied_open_link_and_session_are_recorded(audited: AuditedRouter, dial: Dial) -> None:
    forged = 'x"}\n{"event":"router.stop"}'
    assert dial(audited, "shut").expect_close() is not None
    line = audited.one("policy.denied", of="connection")
    assert (line["vhost"], line["user"], line["detail"]["reason"]) == ("none", "anonymous", "remote_host")
    assert line["outcome"] == "denied"
    peer = dial(audited, "tight")
    peer.session.sender(forged, wait=False)
    line = audited.one("policy.denied", of="link")
    assert (line["vhost"], line["detail"]["group"], line["detail"]["reason"]) == ("tight", "all", "target")
    assert (line["detail"]["direction"], line["detail"]["address"]) == ("send", forged)
    peer = dial(audited, "tight")
    peer.frame("begin", channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    peer.frame("begin", channel=2, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    assert audited.one("policy.denied", of="session")["connection"] == line["connection"] + 1
    assert not audited.found("router.stop")
    assert not audited.found("open.refused")


# --- management ------------------------------------------------------------------------------------------------------


def test_changes_by_qdmanage_are_recorded(audited: AuditedRouter) -> None:
    assert manage(audited, "create", "--type=address", "--name=mine", "prefix=mine", "distribution=closest").code == 0
    line = audited.one("management.change", operation="CREATE")
    assert (line["outcome"], line["user"], line["detail"]["status"]) == ("success", "anonymous", 201)
    assert manage(audited, "update", "--type=log", "--name=log/DEFAULT", "enable=debug+").code == 0
    line = audited.one("management.change", operation="UPDATE")
    assert line["detail"]["after"] == {"enable": "debug+"}
    assert manage(audited, "delete", "--type=address", "--name=mine").code == 0
    assert audited.one("management.change", operation="DELETE")["detail"]["before"]["distribution"] == "closest"


def test_change_line_has_before_and_after(audited: AuditedRouter, dial: Dial) -> None:
    management = Management(dial(audited))
    management.create("router.config.address", "mine", prefix="mine", distribution="closest")
    line = audited.one("management.change", operation="CREATE")
    assert line["detail"]["after"]["distribution"] == "closest"
    assert "before" not in line["detail"]
    management.update("log", "log/DEFAULT", enable="debug+")
    line = audited.one("management.change", operation="UPDATE")
    assert (line["detail"]["identity"], line["detail"]["status"]) == ("log/DEFAULT", 200)
    assert line["detail"]["after"] == {"enable": "debug+"}
    management.delete("router.config.address", "mine")
    line = audited.one("management.change", operation="DELETE")
    assert line["detail"]["before"]["prefix"] == "mine"
    assert (line["user"], line["outcome"]) == ("anonymous", "success")


def test_secrets_in_refused_requests_are_masked(audited: AuditedRouter, dial: Dial) -> None:
    management = Management(dial(audited))
    connector = {"host": "127.0.0.1", "port": str(free_port()), "saslUsername": "u"}
    management.create("connector", "c", saslPassword="s3cret-1", **connector)
    with pytest.raises(ManagementStatusError):
        management.create("connector", "d", saslPasword="s3cret-2", **connector)  # a misspelt name
    with pytest.raises(ManagementStatusError):
        management.call("CREATE", {"saslPassword": "s3cret-3", "nonsense": 1}, type=PREFIX + "connector", name="e")
    first, second, third = poll(
        lambda: (found := audited.found("management.change")) and len(found) == 3 and found, "three lines"
    )
    assert first["detail"]["after"]["saslPassword"] == "*******"
    assert (second["outcome"], second["detail"]["status"]) == ("failure", 400)
    assert second["detail"]["asked"] == {**connector, "saslPasword": "*******"}
    assert third["detail"]["asked"] == {"saslPassword": "*******", "nonsense": "*******"}
    assert "s3cret" not in audited.path.read_text()


def test_request_without_role_is_recorded_as_denied(audited: AuditedRouter, dial: Dial) -> None:
    peer = dial(audited, "readers")
    with pytest.raises(ManagementStatusError) as caught:
        Management(peer).create("router.config.address", "mine", prefix="mine")
    assert caught.value.code == 403
    line = audited.one("management.change")
    assert (line["outcome"], line["detail"]["status"], line["detail"]["role"]) == ("denied", 403, "read")
    assert line["detail"]["asked"] == {"prefix": "mine"}


def test_connection_closed_by_management_is_recorded_twice(audited: AuditedRouter, dial: Dial) -> None:
    management = Management(dial(audited))
    victim = dial(audited, container_id="victim")
    identity = management.one("connection", container="victim")["identity"]
    management.update("connection", identity, adminStatus="deleted")
    assert victim.expect_close() is not None
    asked = audited.one("management.change")
    assert asked["detail"]["asked"] == {"adminStatus": "deleted"}
    assert asked["detail"]["identity"] == identity
    closed = audited.one("connection.closed")
    assert closed["connection"] == int(identity)
    assert "management" in closed["detail"]["reason"]


def test_trace_and_log_requests_are_recorded_as_operations(audited: AuditedRouter, dial: Dial) -> None:
    management = Management(dial(audited))
    management.call("TRACE", connection="1", seconds=1)
    management.call("GET-LOG", limit=1)
    assert audited.one("management.operation", operation="TRACE")["detail"]["asked"]["connection"] == "1"
    audited.one("management.operation", operation="GET-LOG")
    management.query("connection")
    management.call("CREATE", {"prefix": "last"}, type=PREFIX + "router.config.address", name="last")
    audited.one("management.change")
    assert len(audited.found("management.operation")) == 2


def test_configuration_requests_are_recorded_as_operations(audited: AuditedRouter, dial: Dial) -> None:
    management = Management(dial(audited))
    management.call("GET-CONFIGURATION", json=True)
    shown = audited.one("management.operation", operation="GET-CONFIGURATION")
    assert (shown["outcome"], shown["detail"]["asked"]) == ("success", {"json": True})


def test_audit_log_cannot_be_changed_by_management(audited: AuditedRouter, dial: Dial) -> None:
    management = Management(dial(audited))
    for call in (
        lambda: management.call("CREATE", {"path": "/tmp/x"}, type=PREFIX + "audit", name="other"),
        lambda: management.call("UPDATE", {"onFull": "drop"}, type=PREFIX + "audit", name="audit"),
        lambda: management.call("DELETE", type=PREFIX + "audit", name="audit"),
    ):
        with pytest.raises(ManagementStatusError) as caught:
            call()
        assert caught.value.code in (403, 501)
    assert len(poll(lambda: len(audited.found("management.change")) == 3 and audited.lines(), "three lines")) > 3
    row = management.one("audit")
    assert (row["name"], row["linesDropped"], row["fault"]) == ("audit", 0, None)
    assert row["linesWritten"] >= 3


def test_request_via_router_connection_names_its_origin(tmp_path: Path, start: Start, peers: list[AmqpPeer]) -> None:
    (port,) = ports(1)
    audited = AuditedRouter(tmp_path, start, lambda folder: interior("A", port))
    other = start(interior("B", to=[port]))
    RouterView(other).wait_nodes(A=1)
    peers.append(AmqpPeer.opened(other.port))
    Management(peers[-1], "_topo/0/A/$management").create("router.config.address", "mine", prefix="mine")
    line = audited.one("management.change")
    assert (line["listener"], line["detail"]["origin"]) == ("net", "router")
    assert audited.one("login", role="inter-router")["connection"] == line["connection"]


# --- files -----------------------------------------------------------------------------------------------------------


def test_lines_of_router_run_have_consecutive_numbers(audited: AuditedRouter) -> None:
    audited.router.stop()
    lines = audited.lines()
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["event"] for line in lines[:2] + lines[-2:]] == [
        "audit.start", "router.start", "router.stop", "audit.stop",
    ]  # fmt: skip
    assert lines[-2]["detail"]["reason"] == "SIGTERM"
    assert len({line["boot"] for line in lines}) == 1
    audited.router.start()
    assert audited.lines()[len(lines)]["sequence"] == 1
    assert audited.lines()[len(lines)]["boot"] != lines[0]["boot"]


def test_reload_line_names_requester_and_changes(audited: AuditedRouter, dial: Dial) -> None:
    audited.router.configure([*audited.sections, ("address", {"prefix": "new", "distribution": "multicast"})])
    os.kill(audited.router.pid, signal.SIGHUP)
    line = audited.one("configuration.reload", source="SIGHUP")
    assert (line["outcome"], line["detail"]["created"]) == ("success", 1)
    assert line["detail"]["changes"] == ["create address (prefix new)"]
    audited.router.configure([*audited.sections, ("address", {"prefix": "new", "distribution": "nonsense"})])
    with pytest.raises(ManagementStatusError):
        Management(dial(audited)).call("RELOAD")
    line = poll(lambda: [each for each in audited.found("configuration.reload") if each["outcome"] == "failure"], "it")[
        0
    ]
    assert line["detail"]["source"].startswith("management [C")
    assert "nonsense" in line["detail"]["reason"]
    assert audited.one("management.operation", operation="RELOAD")["detail"]["status"] == 400


def test_renamed_file_is_replaced_after_sighup(audited: AuditedRouter, dial: Dial) -> None:
    moved = audited.folder / "moved.log"
    audited.path.rename(moved)
    os.kill(audited.router.pid, signal.SIGHUP)
    poll(audited.path.exists, "there is a new file")
    dial(audited, container_id="later")
    audited.one("login", container="later")
    both = audited.lines(moved, audited.path)
    assert [line["sequence"] for line in both] == list(range(1, len(both) + 1))


def test_full_file_is_rotated(tmp_path: Path, start: Start, dial: Dial) -> None:
    audited = AuditedRouter(tmp_path, start, sections, maxSize=65536, keep=20)
    management = Management(dial(audited))
    for number in range(200):
        management.create("router.config.address", f"n{number}", prefix=f"n{number}-{'x' * 500}")
    audited.router.stop()
    older = sorted(tmp_path.glob("audit.log.*"), key=lambda path: -int(path.suffix[1:]))
    assert len(older) >= 2
    assert all(path.stat().st_size <= 65536 for path in [*older, audited.path])
    lines = audited.lines(*older, audited.path)
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert len([line for line in lines if line["event"] == "management.change"]) == 200
    audited.router.start()


def test_audit_logs_follow_the_configuration(audited: AuditedRouter, dial: Dial) -> None:
    other = audited.folder / "other.log"
    management = Management(dial(audited))
    audited.router.configure([*audited.sections, ("audit", {"name": "second", "path": other})])
    management.call("RELOAD")
    dial(audited, container_id="both")
    poll(lambda: any(line["event"] == "login" for line in audited.lines(other)), "the second log has it")
    audited.one("login", container="both")
    audited.router.configure([each for each in audited.sections if each[0] != "audit"])
    management.call("RELOAD")
    poll(lambda: audited.found("audit.stop"), "it ends")
    assert audited.lines(other)[0]["event"] == "audit.start"
    size = audited.path.stat().st_size
    dial(audited, container_id="unseen").close()
    audited.router.configure(audited.sections)
    management.call("RELOAD")
    poll(lambda: len(audited.found("audit.start")) == 2, "it begins again")
    assert audited.path.stat().st_size > size
    assert not audited.found("login", container="unseen")


def test_unopenable_file_fails_start_and_reload(audited: AuditedRouter, dial: Dial) -> None:
    wrong: Section = ("audit", {"name": "wrong", "path": audited.folder / "none" / "audit.log"})
    audited.router.configure([*audited.sections, wrong])
    with pytest.raises(ManagementStatusError, match=r"sluice\.conf:\d+: The audit log 'wrong' cannot be opened"):
        Management(dial(audited)).call("RELOAD")
    audited.router.stop()
    seen = len(audited.router.lines)
    audited.router.spawn()
    assert audited.router.wait_exit() == 1
    assert any("sluice.conf:" in line and "'wrong' cannot be opened" in line for line in audited.router.lines[seen:])
    audited.router.configure(audited.sections)
    audited.router.start()


# --- full disks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the mount point of a file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k sluice-audit {folder} 2>/dev/null") != 0:
        pytest.skip("cannot mount a file system here")
    yield folder
    os.system(f"umount -l {folder}")


def fill_up(path: Path) -> None:
    """Fill the remaining space of the file system."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(descriptor, b"x" * 512):
            pass
    os.close(descriptor)


def create_addresses(management: Management, count: int) -> None:
    for number in range(count):
        management.create("router.config.address", f"f{number}", prefix=f"f{number}-{'x' * 800}")


def test_full_device_counts_dropped_lines(tmp_path: Path, start: Start, dial: Dial) -> None:
    full: Section = ("audit", {"name": "full", "path": "/dev/full", "maxQueued": 32768})
    audited = AuditedRouter(tmp_path, start, lambda folder: [*sections(folder), full])
    management = Management(dial(audited))
    create_addresses(management, 60)
    row = management.one("audit", name="full")
    assert (row["linesWritten"], row["fault"]) == (0, "No space left on device")
    assert row["linesDropped"] > 10
    dropped = "sluice_audit_dropped_total"
    assert scrape(audited.router.ports["web"]).sum(dropped) >= row["linesDropped"]
    audited.router.wait_log(r"SERVER \(error\) The audit log 'full' cannot be written: No space left on device")
    audited.router.wait_log(r"SERVER \(error\) The audit log 'full' loses lines: .* linesDropped counts them")
    assert len(audited.found("management.change")) == 60  # the other log is complete
    assert management.one("audit", name="audit")["linesDropped"] == 0


def test_freed_disk_records_the_dropped_lines(tmp_path: Path, disk: Path, start: Start, dial: Dial) -> None:
    audited = AuditedRouter(tmp_path, start, sections)
    audited.router.stop()
    audited.path = disk / "audit.log"
    audited.audit[1].update(path=audited.path, maxQueued=32768)
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * 50_000)
    audited.router.configure(audited.sections)
    audited.router.start()
    management = Management(dial(audited))
    create_addresses(management, 80)
    row = management.one("audit")
    assert row["linesDropped"] > 0
    ballast.unlink()
    poll(lambda: management.one("audit")["fault"] is None, "it is written again")
    management.delete("router.config.address", "f0")
    missing = audited.one("audit.dropped")["detail"]
    lines = audited.lines()
    seen = {line["sequence"] for line in lines}
    assert set(range(1, max(seen) + 1)) - seen == set(range(missing["first"], missing["last"] + 1))
    assert missing["count"] == len(range(missing["first"], missing["last"] + 1)) == row["linesDropped"]


def test_full_log_with_refuse_denies_changes(tmp_path: Path, disk: Path, start: Start, dial: Dial) -> None:
    audited = AuditedRouter(tmp_path, start, sections)
    audited.router.stop()
    audited.path = disk / "audit.log"
    audited.audit[1].update(path=audited.path, maxQueued=65536, onFull="refuse")
    audited.router.configure(audited.sections)
    audited.router.start()
    ballast = disk / "ballast"
    fill_up(ballast)
    management = Management(dial(audited))
    with pytest.raises(ManagementStatusError, match="An audit log cannot be written"):
        create_addresses(management, 200)
    refused = "an audit log cannot be written, so new connections are refused"
    assert dial(audited).expect_close() == ("amqp:resource-limit-exceeded", refused)
    created = len(management.query("router.config.address"))
    assert management.one("audit")["linesDropped"] <= 2  # the refusals themselves
    ballast.unlink()
    poll(lambda: management.one("audit")["fault"] is None, "it is written again")
    poll(lambda: len(audited.found("management.change", status=201)) == created, "each change has its line")
    dial(audited).close()


def test_router_without_audit_has_no_file(tmp_path: Path, start: Start, peers: list[AmqpPeer]) -> None:
    router: RouterProcess = start([listener(), WEB])
    peers.append(AmqpPeer.opened(router.ports[""]))
    assert scrape(router.ports["web"]).sum("sluice_audit_lines_total") == 0
    assert not list(tmp_path.rglob("audit*"))
