"""Vhost policy of a running router: opens, attaches, messages, and changes at runtime (security.md 6).

routing-semantics.md 13.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice.router.client import LinkDetachedError, Message, Rejected, connect
from tests.peer import message
from tests.peer.frames import coordinator, source, target
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh, Start, pass_one
from tests.system.router import EVERYTHING, RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial


def vhost(hostname: str, group: dict[str, Any], **attributes: Any) -> Section:
    """Return a vhost with one group for all users."""
    return "vhost", {"hostname": hostname, **attributes, "groups": {"all": {"users": "*", "remoteHosts": "*", **group}}}


SECTIONS: list[Section] = [
    listener("named", policyVhost="tight"),
    ("policy", {"enableVhostPolicy": True}),
    vhost("$default", EVERYTHING),
    vhost("tight", {"sources": "in, own-${user}*", "targets": "in", "maxReceivers": 2}, aliases="narrow"),
    vhost("patterns", {"sourcePattern": "a.*, ${user}.#", "targetPattern": "a.*"}),
    vhost("full", EVERYTHING, maxConnections=1),
    vhost("elsewhere", {**EVERYTHING, "remoteHosts": "10.0.0.1, ::1-::ff"}),
    vhost("small", {**EVERYTHING, "maxFrameSize": 2048, "maxSessions": 2, "maxSessionWindow": 10000,
                    "maxMessageSize": 1000}),
    vhost("shut", {**EVERYTHING, "maxFrameSize": 2048, "maxSessionWindow": 2047}),
    vhost("relay", {"targets": "in, ${user}.*", "sources": "*", "allowAnonymousSender": True}, onChange="close"),
    vhost("patterned", {"targetPattern": "a.#", "sources": "*", "allowAnonymousSender": True}),
    vhost("proxy", {**EVERYTHING, "allowUserIdProxy": True}),
    vhost("bare", {**EVERYTHING, "allowWaypointLinks": False, "allowFallbackLinks": False}),
]  # fmt: skip
PATIENCE = 20.0
DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")
UNAUTHORIZED = ("amqp:unauthorized-access", "link disallowed by local policy")
FORBIDDEN = ("amqp:unauthorized-access", "policy violation on target")
TOO_MANY = ("amqp:resource-limit-exceeded", "link disallowed by local policy")


def stats(management: Management, hostname: str) -> dict[str, Any]:
    return management.one("vhostStats", hostname=hostname)


def test_connection_from_denied_host_is_closed(router: RouterProcess, connect: Connect, management: Management) -> None:
    """The router sends an open with the listener's values, then the close (security.md P-16)."""
    before = stats(management, "elsewhere")["connectionsDenied"]
    peer = connect(hostname="elsewhere")
    assert peer.remote_open is not None
    assert peer.remote_open.max_frame_size == 16384
    assert peer.expect_close() == DENIED
    router.wait_log(
        r"POLICY \(info\) DENY AMQP Open for user 'anonymous', rhost '127.0.0.1', vhost 'elsewhere': User is not "
        "allowed to connect from this network host"
    )
    assert stats(management, "elsewhere")["connectionsDenied"] == before + 1
    assert all(row["container"] != "elsewhere" for row in management.query("connection"))


def test_connection_beyond_limit_is_closed(connect: Connect, management: Management) -> None:
    """A closed connection makes room for another (security.md P-15)."""
    first = connect(hostname="full")
    assert connect(hostname="full").expect_close() == DENIED
    row = stats(management, "full")
    assert (row["connectionsCurrent"], list(row["perUserState"]), list(row["perHostState"])) == (
        1, ["anonymous"], ["127.0.0.1"])  # fmt: skip
    first.close()
    poll(lambda: stats(management, "full")["connectionsCurrent"] == 0, "the first has left")
    connect(hostname="full").barrier()


def test_open_begin_and_attach_have_limits_of_policy(connect: Connect) -> None:
    """Cover security.md P-20 and P-21."""
    peer = connect(hostname="small")
    assert peer.remote_open is not None
    assert (peer.remote_open.max_frame_size, peer.remote_open.channel_max) == (2048, 1)
    sender = peer.sender("x", credit=False)
    assert sender.remote is not None
    assert sender.remote.max_message_size == 1000
    begun = sender.session.remote
    assert begun is not None
    assert begun.incoming_window == 4


def test_session_window_below_one_frame_is_zero(connect: Connect) -> None:
    """Such a window is 0, and any transfer violates it (security.md P-20)."""
    sender = connect(hostname="shut").sender("x", credit=False)
    assert sender.session.remote is not None
    assert sender.session.remote.incoming_window == 0
    peer = sender.session.peer
    peer.frame("transfer", handle=0, delivery_id=0, delivery_tag=b"1", message_format=0, settled=True, payload=b"x")
    text = "transfer 0 is outside of the incoming window"
    assert peer.expect_close() == ("amqp:session:window-violation", text)


def test_session_beyond_limit_closes_the_connection(
    router: RouterProcess, connect: Connect, management: Management
) -> None:
    """A begin beyond the limit closes the connection and is counted (security.md P-30)."""
    before = stats(management, "small")["sessionDenied"]
    peer = connect(hostname="small")
    peer.frame("begin", channel=2, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    assert peer.expect_close() == (
        "amqp:connection:framing-error", "remote channel 2 is above negotiated channel_max 1.")  # fmt: skip
    poll(lambda: stats(management, "small")["sessionDenied"] == before + 1, "the session is counted")
    router.wait_log(r"POLICY \(info\) \[C\d+\] DENY AMQP Begin Session for user 'anonymous', .* based on session limit")


@pytest.mark.parametrize(
    ("vhost", "address", "allowed"),
    [
        ("tight", "in", True), ("tight", "out", False), ("tight", "/in", False), ("narrow", "in", True),
        ("patterns", "a.x", True), ("patterns", "a.x.y", False), ("elsewhere?", "anything", True),
    ],
)  # fmt: skip
def test_sender_is_checked_against_targets(connect: Connect, vhost: str, address: str, allowed: bool) -> None:
    sender = connect(hostname=vhost).sender(address, credit=False)
    if allowed:
        assert sender.target["address"] == address
    else:
        assert sender.wait_detached() == UNAUTHORIZED
        assert sender.remote is not None
        assert None not in (sender.remote.source, sender.remote.target)
        assert not {"address"} & {*sender.source, *sender.target}


@pytest.mark.parametrize(
    ("vhost", "address", "allowed"),
    [
        ("tight", "in", True), ("tight", "own-anonymous-1", True), ("tight", "own-other", False), ("tight", "", False),
        ("patterns", "anonymous.x.y", True), ("patterns", "anonymous", True), ("patterns", "anonymousx", False),
    ],
)  # fmt: skip
def test_receiver_is_checked_against_sources(connect: Connect, vhost: str, address: str, allowed: bool) -> None:
    receiver = connect(hostname=vhost).receiver(address)
    if allowed:
        assert receiver.source["address"] == address
    else:
        assert receiver.wait_detached() == UNAUTHORIZED


@pytest.mark.parametrize("wanted", [target(None), coordinator(), target(None, dynamic=True)])
def test_anonymous_sender_without_permission_is_refused(connect: Connect, wanted: Any) -> None:
    assert connect(hostname="tight").sender(target=wanted, credit=False).wait_detached() == UNAUTHORIZED


def test_dynamic_receiver_without_permission_is_refused(connect: Connect) -> None:
    assert connect(hostname="tight").receiver(source=source(None, dynamic=True)).wait_detached() == UNAUTHORIZED
    assert connect().receiver(source=source(None, dynamic=True)).source["address"]


def test_waypoint_and_fallback_links_without_permission_are_refused(connect: Connect) -> None:
    """Cover security.md P-45 with one symbol and with several."""
    peer = connect(hostname="bare")
    for capabilities in ("qd.waypoint", ["x", "qd.fallback"]):
        wanted = target("x", capabilities=capabilities)
        assert peer.sender(target=wanted, credit=False).wait_detached() == UNAUTHORIZED


def test_receiver_beyond_limit_is_refused(router: RouterProcess, connect: Connect, management: Management) -> None:
    peer = connect("named", hostname="other")
    before = stats(management, "tight")["receiverDenied"]
    first = peer.receiver("in")
    peer.receiver("in")
    assert peer.receiver("in").wait_detached() == TOO_MANY
    router.wait_log(r"DENY AMQP Attach receiver for user 'anonymous', rhost '127.0.0.1', vhost 'other' based on "
                    "maxReceivers limit")  # fmt: skip
    assert stats(management, "tight")["receiverDenied"] == before + 1
    first.detach()
    assert peer.receiver("in").source["address"] == "in"


def test_message_beyond_limit_closes_the_connection(
    router: RouterProcess, connect: Connect, management: Management
) -> None:
    """The denial is counted (security.md P-52; routing-semantics.md 11.8)."""
    before = management.one("policy")
    peer = connect(hostname="small")
    sender = peer.sender("x", credit=False)
    receiver = connect().receiver("x", 10)
    assert receiver.source["address"] == "x"
    sender.wait_credit()
    sender.send(message.message("m" * 1001))
    assert peer.expect_close() == ("amqp:connection:forced", "Message size exceeded")
    router.wait_log(r"POLICY \(warning\) \[C\d+\]\[L\d+\] DENY AMQP Transfer maxMessageSize exceeded")
    after = management.one("policy")
    assert [after[name] - before[name] for name in ("maxMessageSizeDenied", "totalDenials")] == [1, 1]
    assert stats(management, "small")["maxMessageSizeDenied"] == 1


def test_client_after_message_beyond_limit_reports_the_close(router: RouterProcess) -> None:
    with connect(f"127.0.0.1:{router.port}", timeout=PATIENCE) as taking:
        taking.receiver("long", timeout=PATIENCE)
        client = connect(f"127.0.0.1:{router.port}", timeout=PATIENCE, hostname="small")
        sender = client.sender("long", timeout=PATIENCE)
        outcome = sender.send(Message("m" * 1001), timeout=PATIENCE)
        assert outcome == Rejected("amqp:link:message-size-exceeded", "Message size exceeded")
        with pytest.raises(LinkDetachedError, match="amqp:connection:forced: Message size exceeded"):
            sender.send(Message("short"), timeout=PATIENCE)
        client.close()


@pytest.mark.parametrize(
    ("vhost", "allowed", "refused"),
    [("relay", ["in", "anonymous.x"], ["out", "/in", "other.x"]), ("patterned", ["a", "a/x.y", "/a.x"], ["b", "ax"])],
)
def test_messages_of_anonymous_sender_are_checked_against_targets(
    router: RouterProcess, connect: Connect, vhost: str, allowed: list[str], refused: list[str]
) -> None:
    """The link stays attached and its credit is returned (security.md P-50)."""
    everywhere = connect()
    receivers = [everywhere.receiver(address, 10) for address in allowed]
    sender = connect(hostname=vhost).sender(None)
    for address in [*refused, *refused]:
        outcome = sender.request(message.message("x", to=address))
        assert (outcome.name, outcome.error) == ("rejected", FORBIDDEN)
    for address, receiver in zip(allowed, receivers, strict=True):
        number = sender.send(message.message(address, to=address))
        receiver.next().settle()
        assert sender.outcome(number).name == "accepted"
    router.wait_log(rf"DENY AMQP message to '{refused[0]}' for user 'anonymous', rhost '127.0.0.1', vhost '{vhost}' "
                    "based on target address")  # fmt: skip


def test_changed_rules_apply_to_messages(connect: Connect, management: Management, fresh: Fresh) -> None:
    """With `onChange: close` the new rules apply to messages of a sender that itself stays attached."""
    name = fresh("v")
    group = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "in", "allowAnonymousSender": True}
    management.create("vhost", f"vhost/{name}", hostname=name, groups={"all": group}, onChange="close")
    receiver = connect().receiver("in", 10)
    sender = connect(hostname=name).sender(None)
    pass_one(sender, receiver, to="in")
    management.update("vhost", f"vhost/{name}", groups={"all": {**group, "targets": "out"}})

    # The attach is answered by the supervisor after the workers have the new rules.
    sender.peer.receiver(fresh())
    outcome = sender.request(message.message("x", to="in"))
    assert (outcome.name, outcome.error) == ("rejected", FORBIDDEN)


@pytest.mark.parametrize("target", ["in", None])
def test_message_with_foreign_user_id_is_rejected(router: RouterProcess, connect: Connect, target: str | None) -> None:
    """Cover security.md P-51 with and without an address of the sender (routing-semantics.md 11.2)."""
    receiver = connect().receiver("in", 10)
    sender = connect(hostname="relay").sender(target)
    to = {} if target else {"to": "in"}
    outcome = sender.request(message.message("x", user_id=b"somebody", **to))
    assert (outcome.name, outcome.error) == ("rejected", ("amqp:unauthorized-access", "user_id proxy violation"))
    for user in (None, b"", b"anonymous"):
        pass_one(sender, receiver, user_id=user, **to)
    router.wait_log(r"DENY AMQP message for user 'anonymous', .* based on user-id")
    pass_one(connect(hostname="proxy").sender(target), receiver, user_id=b"somebody", **to)


def test_permitted_traffic_crosses_workers(connect: Connect, fresh: Fresh) -> None:
    receiver = connect(hostname="tight").receiver("in", 10)
    pass_one(connect(hostname="narrow").sender("in"), receiver)


def test_vhost_changed_at_runtime_applies_to_new_links(connect: Connect, management: Management, fresh: Fresh) -> None:
    """Cover security.md P-80 to P-83, and onChange."""
    name = fresh("v")
    groups = {"all": {"users": "*", "remoteHosts": "*", "targets": "a, b", "sources": "a, b"}}
    management.create("vhost", f"vhost/{name}", hostname=name, groups=groups)
    peer = connect(hostname=name)
    kept = peer.sender("b", credit=False)
    narrow = {"all": {**groups["all"], "targets": "a"}}
    management.update("vhost", f"vhost/{name}", groups=narrow)
    assert peer.sender("b", credit=False).target["address"] == "b"
    later = connect(hostname=name)
    assert later.sender("b", credit=False).wait_detached() == UNAUTHORIZED
    assert kept.detached is None
    management.update("vhost", f"vhost/{name}", onChange="close")
    assert kept.wait_detached() == UNAUTHORIZED
    staying = peer.receiver("a")
    management.delete("vhost", f"vhost/{name}")  # the rules of the default vhost apply from here
    later.barrier()
    assert peer.sender("b", credit=False).target["address"] == "b"
    assert staying.detached is None


def test_policy_dir_files_change_by_reload(start: Start) -> None:
    """Files of policyDir are added and removed by reloads; an invalid file changes nothing."""
    everything = vhost("$default", EVERYTHING)
    router = start([listener(), ("policy", {"enableVhostPolicy": True}), everything])
    management = Management(AmqpPeer.opened(router.ports[""]))
    directory = router.directory / "policies"
    directory.mkdir()
    file = directory / "x.json"

    def write(**attributes: Any) -> None:
        attributes["groups"] = {"all": {"users": "*", "remoteHosts": "10.0.0.1"}}
        file.write_text(json.dumps([["vhost", {"hostname": "v", **attributes}]]))

    def is_denied() -> bool:
        """Return False if a begin is answered, True if the close has arrived before."""
        peer = AmqpPeer.opened(router.ports[""], hostname="v")
        try:
            peer.frame("begin", next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            return peer.read_frame().name == "close"
        finally:
            peer.drop()

    write()
    policy = ("policy", {"enableVhostPolicy": True, "policyDir": str(directory)})
    router.configure([listener(), policy, everything])
    management.call("RELOAD")
    assert is_denied()
    write(maxConnections=-1)
    answer = management.ask("RELOAD")
    assert answer.status == 400
    assert f"{file}:1: Policy 'v' is invalid: " in answer.description
    assert is_denied()
    file.unlink()
    management.call("RELOAD")
    assert not is_denied()


def test_invalid_vhost_prevents_the_start(tmp_path: Path) -> None:
    """security.md P-7."""
    router = RouterProcess(tmp_path, [listener(), ("vhost", {"hostname": "v", "maxConnections": 65536})], 1)
    router.spawn()
    assert router.wait_exit(30) == 1
    assert "PolicyError: Policy 'v' is invalid: Policy vhost 'v' option 'maxConnections' has error" in router.log


def test_explain_command_names_rule_and_place(start: Start) -> None:
    """`sluice policy explain --url` shows the rules in force and their places in the configuration."""
    router = start([listener(), *SECTIONS])
    with AmqpPeer.opened(router.port) as peer:
        group = {"users": "*", "remoteHosts": "*", "targets": "out"}
        Management(peer).create("vhost", "made", hostname="made", groups={"all": group})

    def explained(vhost: str) -> tuple[int, list[str]]:
        url = f"amqp://127.0.0.1:{router.port}"
        words = ["policy", "explain", "--url", url, "--vhost", vhost, "--send", "out"]
        done = subprocess.run(
            [sys.executable, "-m", "sluice.router.cli.main", *words], capture_output=True, text=True, timeout=60
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    code, lines = explained("tight")
    assert (code, lines[2]) == (3, "DENIED: sending to 'out'")
    assert f"({router.config}:" in lines[3]
    code, lines = explained("made")
    assert (code, lines[2:]) == (
        0,
        ["allowed: sending to 'out'", "  group 'all': targets has 'out' (made by management)"],
    )
