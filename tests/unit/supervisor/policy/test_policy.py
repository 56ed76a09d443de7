"""Policy in the supervisor: connections, links, counters, log, management, changes (security.md 6)."""

import json
import socket
from typing import Any

import pytest

from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.handover import InitiateData
from sluice.router.control.message import ControlMessage
from sluice.router.log import LogSettings, ModuleSettings
from sluice.router.policy.decisions import CONNECTION_TEXT, LINK_TEXT, RESOURCE_LIMIT, UNAUTHORIZED
from sluice.router.policy.rules import Vhosts
from sluice.supervisor.connections.admission import Admit
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.policy.connection_rules import connection_limits
from sluice.supervisor.policy.denials import LOGGED_A_SECOND, MOST_KINDS, OTHER, DenialKind, Denials
from sluice.supervisor.policy.grant import OpenFacts
from sluice.supervisor.policy.policy import DENIED
from sluice.supervisor.policy.stats import MOST_GONE, ConnectionsByKey
from tests.unit.supervisor.harness import attach
from tests.unit.supervisor.management.managed_router import QUIET, ManagedRouter

LOG_POLICY = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null"), "POLICY": ModuleSettings(mask=127)})
OPEN = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}


def text(*vhosts: dict[str, Any], policy: dict[str, Any] | None = None, **listener: Any) -> str:
    """Return a configuration with these vhosts, a listener and a connector. In JSON syntax each value has its own
    line."""
    sections = [
        ["router", {"id": "QDR", "workerThreads": 2}],
        ["listener", {"host": "127.0.0.1", "port": 0, "name": "main", **listener}],
        ["connector", {"host": "127.0.0.1", "port": 1, "name": "out", "policyVhost": "v"}],
        ["policy", {"enableVhostPolicy": True, **(policy or {})}],
        *(["vhost", vhost] for vhost in vhosts),
    ]
    return "\n".join(_lines(section) for section in sections)


def _lines(section: Any) -> str:
    kind, values = section
    lines = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines.append(f"    {name}: " + (json.dumps(value, indent=8) if value else "{\n    }"))
        else:
            lines.append(f"    {name}: {str(value).lower() if isinstance(value, bool) else value}")
    return "\n".join([f"{kind} {{", *lines, "}", ""])


class PolicyRouter:
    """Managed router with vhosts."""

    def __init__(self, *vhosts: dict[str, Any], log: LogSettings = LOG_POLICY, **more: Any) -> None:
        self.router = ManagedRouter(log=log, text=text(*vhosts, **more))
        self.policy = self.router.core.policy
        self._links = 0

    def open(
        self,
        user: str | None = "anonymous",
        hostname: str | None = "v",
        peer: str = "10.0.0.1:1000",
        groups: tuple[str, ...] = (),
    ) -> RegisteredConnection:
        return self.router.connection(peer=peer, user=user, hostname=hostname, groups=groups)

    def close(self, connection: RegisteredConnection) -> None:
        self.router.core.receive(self.router.workers[0], messages.Closed(conn=connection.number, error=None))

    def closed(self, connection: RegisteredConnection) -> tuple[str | None, str | None] | None:
        """Return the error with which the connection was to be closed."""
        answer = self.router.admissions.get(connection.number)
        if isinstance(answer, messages.Denied):
            return answer.condition, answer.description
        for message in self._sent_messages(messages.Close):
            if message.conn == connection.number:
                return message.condition, message.description
        return None

    def attach(
        self, connection: RegisteredConnection, direction: str, address: str | None, **more: Any
    ) -> ControlMessage:
        """Return the answer to an attach."""
        self._links += 1
        attach_message = attach(self._links, direction, address, conn=connection.number, **more)
        before = len(self.router.workers[0].outbox)
        self.router.core.receive(self.router.workers[0], attach_message)
        self.router._answers()
        (answer,) = list(self.router.workers[0].outbox)[before:]
        assert isinstance(answer, ControlMessage)
        return answer

    def detach(self, connection: RegisteredConnection, link: int) -> None:
        self.router.core.receive(self.router.workers[0], messages.Detach(conn=connection.number, link=link))

    def stats(self, vhost: str = "v") -> dict[str, Any]:
        (row,) = [row for row in self.router.query("vhostStats") if row["hostname"] == vhost]
        return row

    def log(self) -> list[str]:
        return [entry.text for entry in self.router.log.recent() if entry.module == "POLICY"]

    def _sent_messages(self, kind: Any) -> list[Any]:
        return [message for message in self.router.workers[0].outbox if isinstance(message, kind)]

    sent_messages = _sent_messages


def vhost(groups: dict[str, Any] | None = None, **attributes: Any) -> dict[str, Any]:
    return {"hostname": "v", **attributes, "groups": groups or {}}


REFUSED = (RESOURCE_LIMIT, CONNECTION_TEXT)


# -- Connections


# security.md P-9.
def test_disabled_vhost_policy_refuses_nothing():
    policy_router = PolicyRouter(vhost(), policy={"enableVhostPolicy": False})
    connection = policy_router.open()
    assert policy_router.closed(connection) is None
    assert isinstance(policy_router.attach(connection, "in", "a"), messages.Attached)


# security.md P-70.
def test_allowed_connection_is_counted():
    policy_router = PolicyRouter(vhost({"g": OPEN}))
    connection = policy_router.open(user="u")
    assert policy_router.closed(connection) is None
    row = policy_router.stats()
    assert (row["connectionsApproved"], row["connectionsCurrent"], row["connectionsDenied"]) == (1, 1, 0)
    assert (row["perUserState"], row["perHostState"]) == ({"u": ["10.0.0.1:1000"]}, {"10.0.0.1": ["10.0.0.1:1000"]})
    policy_router.close(connection)
    row = policy_router.stats()
    assert (row["connectionsApproved"], row["connectionsCurrent"]) == (1, 0)
    assert (row["perUserState"], row["perHostState"]) == ({"u": []}, {"10.0.0.1": []})


@pytest.mark.parametrize(
    ("groups", "hostname", "line", "counted"),
    [
        ({"g": OPEN}, "w", "vhost 'w': No policy defined for vhost", None),
        ({"g": {"users": "other"}}, "v", "vhost 'v': User is not in a user group and unknown users are denied", "v"),
        ({"g": {"users": "u"}}, "a", "vhost 'v': User is not allowed to connect from this network host", "v"),
    ],
)
def test_denied_connection_is_closed_logged_and_counted(groups, hostname, line, counted):
    """Denied connections follow security.md P-16."""
    policy_router = PolicyRouter(vhost(groups, aliases="a"))
    connection = policy_router.open(user="u", hostname=hostname)
    assert policy_router.closed(connection) == REFUSED
    assert policy_router.log()[-1] == f"DENY AMQP Open for user 'u', rhost '10.0.0.1', {line}"
    assert policy_router.stats()["connectionsDenied"] == (0 if counted is None else 1)
    (row,) = policy_router.router.query("policy")
    assert (row["connectionsDenied"], row["totalDenials"]) == (0, 0)
    (kind,) = policy_router.policy.denials.counts
    assert kind.vhost == (counted or "")


def test_connection_limits_apply():
    """Connections are counted by vhost, user and host, and closed ones free their place (security.md P-15)."""
    policy_router = PolicyRouter(vhost({"g": OPEN}, maxConnections=3, maxConnectionsPerUser=2, maxConnectionsPerHost=2))
    first = policy_router.open(user="a", peer="10.0.0.1:1")
    policy_router.open(user="b", peer="[::1]:2")
    policy_router.open(user="a", peer="10.0.0.1:3")
    full = policy_router.open(user="a", peer="10.0.0.1:4")
    assert policy_router.closed(full) == REFUSED
    assert [line.rpartition(": ")[2] for line in policy_router.log()[-3:]] == [
        "Connection denied by application connection limit", "Connection denied by per user limit",
        "Connection denied by per host limit"]  # fmt: skip
    assert policy_router.stats()["perHostState"]["::1"] == ["[::1]:2"]
    policy_router.close(full)
    policy_router.close(first)
    assert policy_router.closed(policy_router.open(user="a", peer="10.0.0.1:5")) is None


def test_listener_vhost_overrides_hostname():
    policy_router = PolicyRouter(vhost({"g": OPEN}), policyVhost="v")
    assert policy_router.closed(policy_router.open(hostname="other")) is None
    assert policy_router.stats()["connectionsCurrent"] == 1


def test_policy_decides_from_facts_alone():
    """Decisions without a connection follow security.md P-20 and P-21."""
    policy_router = PolicyRouter(vhost({"g": {**OPEN, "maxFrameSize": 1000, "maxSessions": 3}}, maxMessageSize=99))
    facts = OpenFacts(7, "u", "v", "[::1]:99", policy_router.router.configuration.listeners[0])
    assert facts.host == "::1"
    assert policy_router.policy.open(facts) == Admit(messages.Limits(max_frame=1000, sessions=3, message=99), "v")
    assert policy_router.policy.open(facts._replace(number=8, hostname="w")) == DENIED
    assert policy_router.stats()["connectionsCurrent"] == 1
    policy_router.policy.closed(7)
    policy_router.policy.closed(8)
    assert policy_router.stats()["connectionsCurrent"] == 0


@pytest.mark.parametrize(
    ("settings", "listener", "frame", "window"),
    [
        ({}, {}, None, None),
        ({"maxFrameSize": 100}, {}, 512, None),
        ({"maxFrameSize": 2**40}, {}, 2**32 - 1, None),
        ({"maxFrameSize": 0, "maxSessionWindow": 0}, {}, None, None),
        ({"maxFrameSize": 2048, "maxSessionWindow": 10000}, {}, 2048, 10000),
        ({"maxFrameSize": 5000}, {"maxFrameSize": 4096, "maxSessionFrames": 10}, 5000, 40960),
        ({"maxSessionWindow": 100000}, {"maxSessionFrames": 10}, None, 100000),
    ],
)
def test_group_limits_bound_frame_and_window(settings, listener, frame, window):
    configuration = load_text("x.conf", text(vhost({"g": {**OPEN, **settings}}), **listener))
    (rules,) = Vhosts(configuration.policy, configuration.vhosts)
    group = rules.group("g")
    assert group is not None
    found = connection_limits(group, configuration.listeners[0])
    assert (found.max_frame, found.window) == (frame, window)


def test_service_permissions_apply_without_vhost_policy():
    """Rules of a service apply without vhost policy (security.md A-8)."""
    policy_router = PolicyRouter(policy={"enableVhostPolicy": False})
    facts = OpenFacts(7, "u", "v", "10.0.0.1:1", policy_router.router.configuration.listeners[0], (["a"], ["b"]))
    connection = policy_router.open(user="u")
    facts = facts._replace(number=connection.number)
    assert policy_router.policy.open(facts) == Admit()
    assert isinstance(policy_router.attach(connection, "in", "a"), messages.Attached)
    assert isinstance(policy_router.attach(connection, "in", "b"), messages.Refused)
    assert isinstance(policy_router.attach(connection, "out", "b"), messages.Attached)
    assert isinstance(policy_router.attach(connection, "in", None), messages.Attached)


# -- Links


def test_links_are_allowed_and_denied():
    """Links follow security.md P-31, P-32 and P-40."""
    group = {"users": "*", "remoteHosts": "*", "sources": "s", "targets": "t"}
    policy_router = PolicyRouter(vhost({"g": group}))
    connection = policy_router.open(user="u")
    assert isinstance(policy_router.attach(connection, "in", "t"), messages.Attached)
    assert isinstance(policy_router.attach(connection, "out", "s"), messages.Attached)
    answer = policy_router.attach(connection, "in", "s")
    assert isinstance(answer, messages.Refused)
    assert (answer.condition, answer.description, answer.termini) == (UNAUTHORIZED, LINK_TEXT, True)
    assert policy_router.log()[-1] == (
        f"[C{connection.number}] DENY AMQP Attach sender link 's' for user 'u', rhost '10.0.0.1', vhost 'v' based on "
        "link target name")  # fmt: skip
    assert isinstance(policy_router.attach(connection, "out", None), messages.Refused)
    assert (policy_router.stats()["senderDenied"], policy_router.stats()["receiverDenied"]) == (1, 1)
    (row,) = policy_router.router.query("policy")
    assert (row["linksDenied"], row["totalDenials"]) == (2, 2)
    assert policy_router.policy.denials.counts == {DenialKind("v", "g", "target"): 1, DenialKind("v", "g", "source"): 1}


def test_link_limits_apply():
    policy_router = PolicyRouter(vhost({"g": {**OPEN, "maxSenders": 1, "maxReceivers": 1}}))
    connection = policy_router.open()
    assert isinstance(policy_router.attach(connection, "in", "a"), messages.Attached)
    refused = policy_router.attach(connection, "in", "a")
    assert isinstance(refused, messages.Refused)
    assert refused.condition == RESOURCE_LIMIT
    assert isinstance(policy_router.attach(connection, "out", "a"), messages.Attached)
    assert isinstance(policy_router.attach(connection, "out", "a"), messages.Refused)
    policy_router.detach(connection, 1)
    assert isinstance(policy_router.attach(connection, "in", "a"), messages.Attached)
    policy_router.close(connection)


def test_link_refused_for_other_reason_is_not_counted():
    policy_router = PolicyRouter(vhost({"g": {**OPEN, "maxReceivers": 1}}))
    connection = policy_router.open()
    answer = policy_router.attach(connection, "out", "amqp:/_topo/0/other/x")
    assert isinstance(answer, messages.Refused)
    assert answer.description != LINK_TEXT
    assert isinstance(policy_router.attach(connection, "out", "a"), messages.Attached)


def test_denials_by_workers_are_counted():
    """Denials by workers follow security.md P-30 and P-50 to P-52."""
    policy_router = PolicyRouter(vhost({"g": OPEN}))
    number = policy_router.open().number
    policy_router.router.core.receive(policy_router.router.workers[0], messages.Oversized(number, 7))
    policy_router.router.core.receive(policy_router.router.workers[0], messages.SessionDenied(number))
    forbidden = messages.Forbidden(conn=number, targets=3, users=2, address="x")
    policy_router.router.core.receive(policy_router.router.workers[0], forbidden)
    row = policy_router.stats()
    assert (row["sessionDenied"], row["maxMessageSizeDenied"]) == (1, 1)
    (row,) = policy_router.router.query("policy")
    assert (row["totalDenials"], row["maxMessageSizeDenied"], row["linksDenied"]) == (2, 1, 0)
    assert {kind.reason: count for kind, count in policy_router.policy.denials.counts.items()} == {
        "message_size": 1, "sessions": 1, "message_target": 3, "user_id": 2}  # fmt: skip
    client = "for user 'anonymous', rhost '10.0.0.1', vhost 'v'"
    assert policy_router.log()[-3:] == [
        f"[C{number}] DENY AMQP Begin Session {client} based on session limit",
        f"[C{number}] DENY AMQP message to 'x' {client} based on target address",
        f"[C{number}] DENY AMQP message {client} based on user-id",
    ]


def test_rules_are_sent_to_workers_once_per_group():
    """Workers get the rules once for all connections of a group, until the last of these has closed. Changed rules are
    sent for the connection that they apply to."""
    policy_router = PolicyRouter(vhost({"g": {**OPEN, "targets": "a, b", "allowUserIdProxy": True}}, onChange="close"))

    def sent_messages() -> list[ControlMessage]:
        kinds = (messages.Rules, messages.RulesGone, messages.Permit)
        found: list[ControlMessage] = [
            each for each in policy_router.router.workers[0].outbox if isinstance(each, kinds)
        ]
        policy_router.router.workers[0].outbox.clear()
        return found

    first = policy_router.open(user="u")
    rules, permit = sent_messages()
    assert isinstance(rules, messages.Rules)
    assert (rules.items, rules.patterns) == (["a", "b"], False)
    assert permit == messages.Permit(conn=first.number, rules=rules.number, user="u", proxies=True)
    second = policy_router.open(user=None)
    assert sent_messages() == [messages.Permit(conn=second.number, rules=rules.number, user=None, proxies=True)]
    policy_router.close(first)
    assert sent_messages() == []
    policy_router.router.ask(
        "UPDATE", {"groups": {"g": {**OPEN, "targetPattern": "c.#", "targets": None}}}, name="vhost/v"
    )
    changed, permit, gone = sent_messages()
    assert isinstance(changed, messages.Rules)
    assert (changed.items, changed.patterns) == (["c.#"], True)
    assert permit == messages.Permit(conn=second.number, rules=changed.number, user=None, proxies=False)
    assert gone == messages.RulesGone(rules.number)
    policy_router.close(second)
    assert sent_messages() == [messages.RulesGone(changed.number)]


# -- Connectors


class NullInitiator:
    def opened(self, connection: RegisteredConnection) -> None:
        pass

    def ended(self, *_: Any) -> None:
        pass


def open_by_connector(policy_router: PolicyRouter) -> RegisteredConnection:
    core = policy_router.router.core
    profile, _ = core.profiles.add(policy_router.router.configuration.connectors[0])
    number = core.connections.take_number()
    connection = core.connections.initiate(
        number, policy_router.router.configuration.connectors[0], profile, NullInitiator(), InitiateData("h", None)
    )
    core.connections.move(connection, policy_router.router.workers[0])
    core.receive(
        policy_router.router.workers[0],
        messages.Opened(conn=number, container="b", hostname=None, user=None, properties={}, tls=None),
    )
    answer = policy_router.router.workers[0].outbox[-1]
    assert isinstance(answer, messages.Admitted | messages.Denied)
    policy_router.router.admissions[number] = answer
    return connection


def test_links_of_connector_peer_are_checked():
    """Policy applies to links that the peer of a connector attaches (security.md P-61)."""
    policy_router = PolicyRouter(vhost({"$connector": {"targets": "t", "remoteHosts": "10.9.9.9"}}, maxConnections=0))
    connection = open_by_connector(policy_router)
    assert policy_router.closed(connection) is None
    assert isinstance(policy_router.attach(connection, "in", "t"), messages.Attached)
    assert isinstance(policy_router.attach(connection, "in", "u"), messages.Refused)
    assert "for user '(null)'" in policy_router.log()[-1]
    assert (policy_router.stats()["senderDenied"], policy_router.stats()["connectionsCurrent"]) == (1, 0)
    policy_router.close(connection)


def test_connector_without_group_is_refused():
    """The connection is refused by security.md P-60."""
    policy_router = PolicyRouter(vhost({"g": OPEN}))
    connection = open_by_connector(policy_router)
    assert policy_router.closed(connection) == REFUSED
    number = connection.number
    assert policy_router.log()[-1] == (
        f"[C{number}] Failed to find policyVhost settings for connection 'out', policyVhost: 'v'")  # fmt: skip


# -- Management


def test_management_requests_need_permission():
    """Permissions follow security.md P-46, P-47, P-48 and management.md 5.13."""
    allowed = {**OPEN, "users": "a"}
    denied = {**OPEN, "users": "b", "allowDynamicLinkRoutes": False, "allowAdminStatusUpdate": False}
    policy_router = PolicyRouter(vhost({"g": allowed, "h": denied}))
    kind = "org.apache.qpid.dispatch.router.connection.linkRoute"
    route = {"pattern": "x.#", "direction": "in"}
    good, bad = policy_router.open(user="a"), policy_router.open(user="b")
    assert policy_router.router.ask("CREATE", route, bad.number, type=kind, name="r").outcome == (403, "Forbidden")
    assert policy_router.router.ask("CREATE", route, good.number, type=kind, name="r").status == 201
    close = {"adminStatus": "deleted", "identity": str(good.number)}
    kind = "org.apache.qpid.dispatch.connection"
    assert policy_router.router.ask("UPDATE", close, bad.number, type=kind).outcome == (
        403, "You are not allowed to perform this operation.")  # fmt: skip
    assert policy_router.router.ask("UPDATE", {**close, "identity": "999"}, bad.number, type=kind).status == 400
    assert policy_router.router.ask("UPDATE", close, good.number, type=kind).status == 200


def test_vhost_rows_show_configuration():
    policy_router = PolicyRouter(vhost({"g": {"users": "a"}}, maxConnections=3))
    (row,) = policy_router.router.query("vhost")
    assert (row["identity"], row["hostname"], row["maxConnections"]) == ("vhost/v", "v", 3)
    assert row["groups"] == {"g": {"users": "a"}}
    assert [row["identity"] for row in policy_router.router.query("vhostStats")] == ["vhostStats/v"]
    assert policy_router.router.query("vhostUserGroupSettings") == []


# -- Changes


def test_vhosts_are_changed_by_requests():
    """Changes by requests follow security.md P-80 to P-83."""
    policy_router = PolicyRouter(policy={"enableVhostNamePatterns": True})
    assert policy_router.closed(policy_router.open()) == REFUSED
    answer = policy_router.router.ask("CREATE", {"hostname": "v", "aliases": "w", "groups": {"g": OPEN}}, type="vhost")
    assert answer.status == 201
    assert policy_router.log()[-1] == "Created policy rules for vhost v"
    first = policy_router.open()
    assert policy_router.closed(first) is None
    assert policy_router.router.ask("UPDATE", {"maxConnections": 1}, name="vhost/v").status == 200
    assert policy_router.log()[-1] == "Updated policy rules for vhost v"
    assert policy_router.closed(policy_router.open()) == REFUSED
    assert policy_router.router.ask("UPDATE", {"maxConnections": 9}, name="vhost/v").status == 200
    assert policy_router.closed(policy_router.open()) is None
    assert policy_router.router.ask("DELETE", name="vhost/v").status == 204
    assert policy_router.closed(policy_router.open()) == REFUSED
    assert isinstance(policy_router.attach(first, "in", "a"), messages.Attached)  # as at the open of this connection
    assert policy_router.stats()["connectionsCurrent"] == 2
    assert policy_router.router.ask("CREATE", {"hostname": "w", "groups": {"g": OPEN}}, type="vhost").status == 201
    assert policy_router.closed(policy_router.open(hostname="w")) is None


def test_refused_update_changes_nothing():
    """Refused updates follow security.md P-82."""
    policy_router = PolicyRouter(vhost({"g": OPEN}))
    answer = policy_router.router.ask("UPDATE", {"maxConnections": -1}, name="vhost/v")
    assert answer.status == 500
    assert answer.description.startswith("PolicyError: Policy 'v' is invalid: ")
    assert policy_router.router.query("vhost")[0]["maxConnections"] == 65535
    assert policy_router.router.ask("UPDATE", {"maxConnectionsPerUser": 2}, name="vhost/v").status == 200
    (row,) = policy_router.router.query("vhost")
    assert (row["maxConnectionsPerUser"], row["maxConnectionsPerHost"]) == (2, 65535)


def test_host_names_in_requests_are_resolved(monkeypatch):
    def answer(name: str, *_: object, **__: object) -> list[Any]:
        if name == "nowhere":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    policy_router = PolicyRouter(vhost({"g": {**OPEN, "remoteHosts": "10.0.0.9"}}))
    assert policy_router.closed(policy_router.open()) == REFUSED
    group = {"g": {**OPEN, "remoteHosts": "here"}}
    assert policy_router.router.ask("UPDATE", {"groups": group}, name="vhost/v").status == 200
    assert policy_router.closed(policy_router.open()) is None
    refused = policy_router.router.ask("UPDATE", {"groups": {"g": {**OPEN, "remoteHosts": "nowhere"}}}, name="vhost/v")
    assert refused.outcome == (
        500, "PolicyError: Policy 'v' is invalid: Policy vhost 'v' user group 'g' option 'remoteHosts' "
        "connectionOption 'nowhere' failed to translate: 'HostStruct: 'nowhere' failed to resolve: '[Errno -2] Name or "
        "service not known''.")  # fmt: skip
    assert policy_router.closed(policy_router.open()) is None


def test_forbidden_connections_are_kept_by_default():
    policy_router = PolicyRouter(vhost({"g": OPEN}))
    connection = policy_router.open()
    policy_router.attach(connection, "in", "a")
    policy_router.router.ask("UPDATE", {"groups": {"g": {"users": "other"}}}, name="vhost/v")
    assert policy_router.closed(connection) is None
    assert policy_router.sent_messages(messages.CloseLink) == []


def test_forbidden_connections_are_closed_on_change():
    policy_router = PolicyRouter(vhost({"g": OPEN}, onChange="close"))
    staying, leaving = policy_router.open(user="a"), policy_router.open(user="b")
    policy_router.router.ask("UPDATE", {"groups": {"g": {**OPEN, "users": "a"}}, "maxConnections": 1}, name="vhost/v")
    assert (policy_router.closed(staying), policy_router.closed(leaving)) == (None, REFUSED)
    assert policy_router.stats()["connectionsCurrent"] == 2
    policy_router.close(leaving)
    assert policy_router.stats()["connectionsCurrent"] == 1
    policy_router.router.ask("DELETE", name="vhost/v")
    assert policy_router.closed(staying) == REFUSED


def test_forbidden_links_are_closed_on_change():
    policy_router = PolicyRouter(vhost({"g": OPEN}, onChange="close"))
    connection = policy_router.open(user="u")
    for direction, address in (("in", "a"), ("in", "b"), ("out", "a"), ("out", "b")):
        policy_router.attach(connection, direction, address)
    group = {"users": "*", "remoteHosts": "*", "targets": "a", "sources": "*", "maxReceivers": 1, "maxSenders": 2}
    policy_router.router.ask("UPDATE", {"groups": {"g": group}}, name="vhost/v")
    closed = policy_router.sent_messages(messages.CloseLink)
    assert [(each.link, each.condition, each.description) for each in closed] == [
        (2, UNAUTHORIZED, LINK_TEXT), (4, RESOURCE_LIMIT, LINK_TEXT)]  # fmt: skip
    assert isinstance(policy_router.attach(connection, "in", "a"), messages.Refused)  # the other link still exists
    policy_router.detach(connection, 2)
    assert isinstance(policy_router.attach(connection, "in", "a"), messages.Attached)
    assert policy_router.stats()["connectionsCurrent"] == 1


@pytest.mark.parametrize(("on_change", "closed"), [("close", REFUSED), ("keep", None)])
def test_token_groups_decide_like_users(on_change, closed):
    """Groups of a token decide like lists of users. Other groups in a renewed token count like changed rules."""
    policy_router = PolicyRouter(vhost({"staff": OPEN | {"users": "boss"}}, onChange=on_change))
    assert policy_router.closed(policy_router.open(user="u")) == REFUSED
    facts = OpenFacts(1000, "u", "v", "10.0.0.1:1", policy_router.router.configuration.listeners[0], groups=("staff",))
    assert isinstance(policy_router.policy.open(facts), Admit)
    policy_router.policy.closed(1000)
    connection = policy_router.open(user="u", groups=("staff",))
    assert policy_router.closed(connection) is None
    connection.groups = ("other", "staff")
    policy_router.policy.groups_changed(connection)
    assert policy_router.closed(connection) is None
    connection.groups = ("other",)
    policy_router.policy.groups_changed(connection)
    assert policy_router.closed(connection) == closed


# -- Counters and log


def test_denial_lines_of_one_kind_are_limited():
    router = ManagedRouter(log=LOG_POLICY)
    now = [100.0]
    denials = Denials(router.log, lambda: now[0])
    kind = DenialKind("v", "g", "target")

    def lines() -> list[str]:
        return [entry.text for entry in router.log.recent() if entry.module == "POLICY"]

    assert denials.deadline == float("inf")
    for number in range(LOGGED_A_SECOND + 5):
        denials.add(kind, f"line {number}")
    denials.add(DenialKind("w", "g", "target"), "another kind")
    assert len(lines()) == LOGGED_A_SECOND + 1
    assert denials.counts[kind] == LOGGED_A_SECOND + 5
    assert denials.deadline == 101.0
    now[0] = 101.0
    denials.flush()
    where = "vhost 'v', group 'g', reason target"
    assert lines()[-1] == f"DENY 5 more refusals within one second, not logged: {where}"
    assert denials.deadline == float("inf")
    denials.add(kind, "again")
    assert lines()[-1] == "again"


def test_denial_kinds_are_limited():
    denials = Denials(ManagedRouter(log=QUIET).log)
    for number in range(MOST_KINDS + 5):
        denials.add(DenialKind(f"v{number}", "g", "target"))
    denials.add(DenialKind("v1", "g", "target"))
    assert len(denials.counts) == MOST_KINDS + 1
    assert (denials.counts[DenialKind("v1", "g", "target")], denials.counts[DenialKind(OTHER, OTHER, "target")]) == (
        2,
        5,
    )


def test_disabled_log_lines_are_not_limited():
    denials = Denials(ManagedRouter(log=QUIET).log)
    denials.add(DenialKind("v", "g", "target"), "x")
    assert denials.counts == {DenialKind("v", "g", "target"): 1}
    assert denials.deadline == float("inf")


def test_closed_places_are_dropped_eventually():
    places = ConnectionsByKey()
    for number in range(MOST_GONE + 3):
        places.enter(f"h{number}", number, f"h{number}:1")
        places.leave(f"h{number}", number)
    assert len(places.shown()) == MOST_GONE
    assert "h2" not in places.shown()
    places.enter("h3", 1, "h3:1")
    places.enter("x", 2, "x:1")
    places.leave("x", 2)
    assert places.shown()["h3"] == ["h3:1"]
    assert places.count("h3") == 1
