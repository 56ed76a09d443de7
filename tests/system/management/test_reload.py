"""Reload by SIGHUP and by operation RELOAD, undo, and changes by management, while clients are connected."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable
from typing import Any

import pytest

from tests.peer import message
from tests.peer.frames import source
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start, pass_one
from tests.system.http import get
from tests.system.router import FILES, RouterProcess, Section, free_port, listener, poll

ADDRESS = "router.config.address"


class ReloadingRouter:
    """Router under test, with a management client on its own connection."""

    def __init__(self, router: RouterProcess, peers: list[AmqpPeer]) -> None:
        self.router = router
        self.peers = peers
        self.management = Management(self.connect())

    def connect(self, port: int | None = None) -> AmqpPeer:
        peer = AmqpPeer.opened(next(iter(self.router.ports.values())) if port is None else port)
        self.peers.append(peer)
        return peer

    def reload(self, sections: Iterable[Section] | None = None, **properties: bool) -> dict[str, Any]:
        """Write the file, if sections are given, and call RELOAD; when the call returns, all workers use the
        result."""
        if sections is not None:
            self.router.configure(sections)
        answer: dict[str, Any] = self.management.call("RELOAD", **properties)
        return answer

    def reload_refused(self, sections: Iterable[Section], **properties: bool) -> ManagementStatusError:
        with pytest.raises(ManagementStatusError) as caught:
            self.reload(sections, **properties)
        return caught.value

    def reload_changes(self, sections: Iterable[Section], **properties: bool) -> list[tuple[str, str]]:
        """Reload and return the kind and the short type of each changed entity."""
        answer = self.reload(sections, **properties)
        return [(change["kind"], change["type"].rpartition(".")[2]) for change in answer["changes"]]

    def links(self, address: str, receivers: int = 2) -> tuple[PeerSender, list[PeerReceiver]]:
        made = [self.connect().receiver(address, 100) for _ in range(receivers)]
        return self.connect().sender(address), made

    def table_known(self) -> None:
        """Wait until every worker has the present table: the attach of a consumer is answered only then."""
        self.connect().receiver("unrelated")


@pytest.fixture
def reloading(start: Start, workers: int, peers: list[AmqpPeer]) -> ReloadingRouter:
    return ReloadingRouter(start([listener()], workers), peers)


def address(prefix: str, distribution: str, **more: Any) -> Section:
    return "address", {"prefix": prefix, "distribution": distribution, **more}


def send(sender: PeerSender, bodies: Iterable[str]) -> list[int]:
    return [sender.send(message.message(body)) for body in bodies]


def take(receiver: PeerReceiver, count: int) -> list[Any]:
    """Receive and accept `count` messages; return their bodies."""
    found = receiver.receive(count)
    for delivery in found:
        delivery.settle()
    return [message.body(delivery.payload) for delivery in found]


# --- addresses -------------------------------------------------------------------------------------------------------


def test_distribution_changes_for_an_address_in_use(reloading: ReloadingRouter) -> None:
    sender, (first, second) = reloading.links("a/x")
    unsettled = send(sender, ["1", "2"])
    kept = first.next(), second.next()
    assert reloading.reload_changes([listener(), address("a", "multicast")]) == [("create", "address")]
    copied = send(sender, ["3", "4"])
    for receiver in (first, second):
        assert take(receiver, 2) == ["3", "4"]
    for number in copied:
        assert sender.outcome(number).name == "accepted"
    assert reloading.reload_changes([listener(), address("a", "closest")]) == [("update", "address")]
    send(sender, ["5", "6", "7", "8"])
    assert [len(take(receiver, 2)) for receiver in (first, second)] == [2, 2]
    # Deliveries sent before the changes are settled as usual.
    for delivery in kept:
        delivery.settle()
    for number in unsettled:
        assert sender.outcome(number).name == "accepted"
    assert reloading.reload_changes([listener()]) == [("delete", "address")]
    reloading.router.stop()


def test_unavailable_address_works_again_after_undo(reloading: ReloadingRouter) -> None:
    sender, (receiver,) = reloading.links("a/x", 1)
    pass_one(sender, receiver)
    reloading.reload([listener(), address("a", "unavailable")])
    assert sender.outcome(sender.send(message.message("nobody"))).name in ("released", "modified")
    assert reloading.reload(undo=True)["applied"]
    sender.wait_credit()
    pass_one(sender, receiver)


def test_fallback_is_enabled_and_disabled(reloading: ReloadingRouter) -> None:
    fallback = reloading.connect().receiver(credit=100, source=source("a/x", capabilities="qd.fallback"))
    sender = reloading.connect().sender("a/x", credit=False)
    reloading.reload([listener(), address("a", "balanced", enableFallback=True)])
    sender.wait_credit()
    pass_one(sender, fallback)
    reloading.reload([listener()])
    assert sender.outcome(sender.send(message.message("nobody"))).name in ("released", "modified")


def test_default_distribution_changes_for_addresses_in_use(reloading: ReloadingRouter) -> None:
    sender, (first, second) = reloading.links("x")
    assert reloading.reload_changes([listener(), ("router", {"defaultDistribution": "multicast"})]) == [
        ("update", "router")
    ]
    send(sender, ["1"])
    assert (take(first, 1), take(second, 1)) == (["1"], ["1"])


def test_thousand_addresses_change_in_one_reload(reloading: ReloadingRouter) -> None:
    names = [f"a{number}" for number in range(1000)]
    sender, (first, second) = reloading.links("a999/x")
    reloading.reload([listener(), *(address(name, "closest") for name in names)])
    answer = reloading.reload([listener(), *(address(name, "multicast") for name in names)])
    assert len(answer["changes"]) == 1000
    send(sender, ["1"])
    assert (take(first, 1), take(second, 1)) == (["1"], ["1"])
    assert len(reloading.management.query(ADDRESS)) == 1000
    reloading.reload([listener()])
    assert reloading.management.query(ADDRESS) == []


def test_addresses_made_by_management_are_removed_by_reload(reloading: ReloadingRouter) -> None:
    sender, (first, second) = reloading.links("a/x")
    reloading.management.create(ADDRESS, "mine", prefix="a", distribution="multicast")
    reloading.table_known()
    send(sender, ["1"])
    assert (take(first, 1), take(second, 1)) == (["1"], ["1"])
    row = reloading.management.one(ADDRESS, name="mine")
    with pytest.raises(ManagementStatusError, match="400 Name conflicts with an existing entity"):
        reloading.management.create(ADDRESS, "mine", prefix="b")
    with pytest.raises(ManagementStatusError, match="400 Already exists"):
        reloading.management.create(ADDRESS, "other", pattern="a.#")
    # A reload compares with the file alone, so it would delete the address made by management.
    answer = reloading.reload(plan=True)
    assert not answer["applied"]
    assert [(change["kind"], change["title"]) for change in answer["changes"]] == [("delete", "address 'mine'")]
    assert reloading.management.one(ADDRESS, name="mine") == row
    reloading.management.delete(ADDRESS, "mine")
    assert reloading.reload(plan=True)["changes"] == []


# --- exchanges -------------------------------------------------------------------------------------------------------


def test_exchanges_and_bindings_change_by_reload(reloading: ReloadingRouter) -> None:
    exchange: Section = ("exchange", {"name": "x", "address": "ex"})
    sender, receivers = (
        reloading.connect().sender("ex", credit=False),
        [reloading.connect().receiver(name, 100) for name in ("q1", "q2")],
    )
    reloading.reload([listener(), exchange, bind("b1", "q1", "red"), bind("b2", "q2", "#")])
    sender.wait_credit()
    send_subject(sender, "red", "1")
    assert [take(receiver, 1) for receiver in receivers] == [["1"], ["1"]]
    changed = reloading.reload_changes([listener(), exchange, bind("b1", "q1", "blue"), bind("b2", "q2", "#")])
    assert changed == [("update", "binding")]
    send_subject(sender, "red", "2")
    send_subject(sender, "blue", "3")
    assert [take(receiver, count) for receiver, count in zip(receivers, (1, 2), strict=True)] == [["3"], ["2", "3"]]
    reloading.management.create("router.config.binding", "b3", exchangeName="x", bindingKey="red", nextHopAddress="q1")
    reloading.management.delete("router.config.binding", "b2")
    assert {row["name"] for row in reloading.management.query("router.config.binding")} == {"b1", "b3"}
    reloading.management.delete("router.config.exchange", "x")
    assert reloading.management.query("router.config.binding") == []
    assert reloading.reload_changes([listener()]) == []


def bind(name: str, hop: str, key: str) -> Section:
    return "binding", {"name": name, "exchangeName": "x", "bindingKey": key, "nextHopAddress": hop}


def send_subject(sender: PeerSender, subject: str, body: str) -> None:
    payload = message.properties(subject=subject) + message.value(body)
    assert sender.outcome(sender.send(payload)).name == "accepted"


def test_invalid_binding_is_left_out_as_at_start(reloading: ReloadingRouter) -> None:
    sections = [listener(), ("exchange", {"name": "x", "address": "ex"}), bind("loop", "ex", "#")]
    assert reloading.reload_changes(sections) == [("create", "exchange")]
    reloading.router.wait_log(r"ROUTER_CORE .*Error configuring binding 'loop': next hop 'ex' leads back")


# --- listeners -------------------------------------------------------------------------------------------------------


def test_listeners_are_opened_and_closed(reloading: ReloadingRouter) -> None:
    kept = reloading.connect()
    port = free_port()
    more = listener("more", port=port, linkCapacity=7)
    reloading.reload([listener(), more])
    reloading.router.wait_log(rf"Listening on 127.0.0.1:{port} \(more\)")
    late = reloading.connect(port)
    assert late.sender("a", credit=False) is not None
    receiver = kept.receiver("a", 10)
    sender = late.sender("a")
    assert sender.credit == 7
    pass_one(sender, receiver)
    # Changed attributes of a listener apply to new connections; open ones keep their values.
    assert reloading.reload_changes([listener(), listener("more", port=port, linkCapacity=9)]) == [
        ("update", "listener")
    ]
    assert reloading.connect(port).sender("a").credit == 9
    assert late.sender("a").credit == 7
    reloading.reload([listener()])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    pass_one(sender, receiver)


def test_listeners_exchange_their_ports(reloading: ReloadingRouter) -> None:
    first, second = free_port(), free_port()
    reloading.reload([listener(), listener("a", port=first), listener("b", port=second)])
    reloading.reload([listener(), listener("a", port=second), listener("b", port=first)])
    reloading.connect(first)
    reloading.connect(second)
    rows = {row["name"]: row["port"] for row in reloading.management.query("listener")}
    assert (rows["a"], rows["b"]) == (str(second), str(first))
    # A listener that moves from one interface to all interfaces on the same port needs both bound for a moment.
    reloading.reload([listener(), listener("a", port=second, host="0.0.0.0")])
    reloading.connect(second)


def test_reload_with_busy_port_is_refused(reloading: ReloadingRouter) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sections = [listener(), listener("busy", port=port), address("a", "multicast"), listener("free", port=0)]
        error = reloading.reload_refused(sections)
        assert str(error) == f"500 Listener error on 127.0.0.1:{port}: Address already in use"
        assert reloading.management.query(ADDRESS) == []
        assert len(reloading.management.query("listener")) == 1
        # CREATE makes the entity although the port is busy, as Dispatch does; a later reload opens it.
        reloading.management.create("listener", "busy", host="127.0.0.1", port=str(port))
        reloading.router.wait_log(f"Listener error on 127.0.0.1:{port}: Address already in use")
    reloading.reload([listener(), listener("busy", port=port)])
    reloading.connect(port)
    reloading.management.delete("listener", "busy")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_http_listener_is_opened_changed_and_replaced(reloading: ReloadingRouter) -> None:
    port = free_port()
    reloading.reload([listener(), listener("web", port=port, http=True)])
    assert get(port, "/readyz").status == 200
    reloading.reload([listener(), listener("web", port=port, http=True, metrics=False)])
    assert get(port, "/metrics").status == 404
    reloading.reload([listener(), listener("web", port=port)])
    reloading.connect(port)


# --- log -------------------------------------------------------------------------------------------------------------


def test_log_settings_change_by_reload(reloading: ReloadingRouter) -> None:
    log = reloading.router.directory / "other.log"
    reloading.reload([listener(), FILES, ("log", {"module": "SERVER", "enable": "debug+", "outputFile": str(log)})])
    reloading.connect()
    poll(lambda: log.exists() and "Accepted connection" in log.read_text(), "lines in the new file")
    entity = reloading.management.one("log", identity="log/SERVER")
    with pytest.raises(ManagementStatusError, match="500 .*Failed to open log file '/nowhere/x'"):
        reloading.management.update("log", "log/SERVER", outputFile="/nowhere/x")
    with pytest.raises(ManagementStatusError, match="is not a valid log level"):
        reloading.management.update("log", "log/SERVER", enable="loud")
    assert reloading.management.one("log", identity="log/SERVER") == entity
    reloading.management.update("log", "log/SERVER", enable="error+")
    before = log.read_text()
    reloading.connect()
    assert log.read_text() == before
    error = reloading.reload_refused([listener(), ("log", {"module": "AGENT", "outputFile": "/nowhere/x"})])
    assert "Failed to open log file '/nowhere/x'" in str(error)


def test_sighup_opens_log_files_again(reloading: ReloadingRouter) -> None:
    log = reloading.router.directory / "router.log"
    reloading.reload([listener(), ("log", {"module": "SERVER", "outputFile": str(log)})])
    log.rename(log.with_suffix(".1"))
    os.kill(reloading.router.pid, signal.SIGHUP)

    def there() -> bool:
        reloading.connect()
        return log.exists() and "Accepted connection" in log.read_text()

    poll(there, "lines in the file of the old name")


def send_sighup(reloading: ReloadingRouter) -> None:
    """Send SIGHUP and wait until the file has been read."""
    seen = len(reloading.router.lines)
    os.kill(reloading.router.pid, signal.SIGHUP)
    done = r"AGENT \((notice|error)\) (Configuration reloaded|The configuration cannot be reloaded)"
    reloading.router.wait_log(done, after=seen)


# --- all or nothing --------------------------------------------------------------------------------------------------


def test_sighup_applies_the_file(reloading: ReloadingRouter) -> None:
    sender, (first, second) = reloading.links("a/x")
    reloading.router.configure([listener(), address("a", "multicast")])
    send_sighup(reloading)
    assert len(reloading.management.query(ADDRESS)) == 1
    reloading.router.config.write_text("address {\n    distribution: loud\n}\n")
    send_sighup(reloading)
    text = r"The configuration cannot be reloaded and is unchanged: \S*sluice.conf:2: .*'multicast', .*'loud'"
    reloading.router.wait_log(text)
    assert len(reloading.management.query(ADDRESS)) == 1
    pass_on = send(sender, ["1"])
    assert (take(first, 1), take(second, 1)) == (["1"], ["1"])
    assert sender.outcome(pass_on[0]).name == "accepted"


def test_watched_file_behind_swapped_link_is_reloaded(start: Start) -> None:
    """Kubernetes updates the files of a ConfigMap by renaming a link to their folder."""
    watch: Section = ("router", {"watchConfiguration": True})
    router = start([listener(), watch], 1)
    text = router.config.read_text()
    folder = router.config.parent
    link = folder / "router.conf"
    for version, prefix, changes in (("..1", "first", "1 change"), ("..2", "second", "2 changes")):
        (folder / version).mkdir()
        (folder / version / "router.conf").write_text(f"{text}address {{\n    prefix: {prefix}\n}}\n")
        (folder / "..new").symlink_to(version)
        os.rename(folder / "..new", folder / "..data")
        if not link.is_symlink():
            link.symlink_to("..data/router.conf")
            os.rename(link, router.config)
            link = router.config
        router.wait_log(f"Configuration reloaded from .*: {changes}$")
    router.stop()


@pytest.mark.parametrize(
    ("bad", "texts"),
    [
        ([address("b", "loud")], [":12: ", "attribute 'distribution'", "'multicast', 'closest', 'balanced'"]),
        ([("address", {"prefix": "b", "colour": "red"})], [":12: ", "Unknown attribute 'colour'"]),
        ([("policy", {"maxConnections": -1})], [":11: ", "maxConnections", "0"]),
        ([("vhost", {"maxConnections": 1})], [":10: ", "'hostname'"]),
        ([listener("twice"), listener("twice")], ["duplicates unique attribute 'name'"]),
    ],
)
def test_invalid_file_changes_nothing(reloading: ReloadingRouter, bad: list[Section], texts: list[str]) -> None:
    error = reloading.reload_refused([listener(), *bad, address("good", "multicast")])
    assert error.code == 400
    assert "sluice.conf" in error.description
    for text in texts:
        assert text in error.description
        assert reloading.router.wait_log(
            r"AGENT \(error\) The configuration cannot be reloaded and is unchanged: .*sluice.conf"
        )
    assert reloading.management.query(ADDRESS) == []


def test_missing_file_changes_nothing(reloading: ReloadingRouter) -> None:
    reloading.router.config.unlink()
    with pytest.raises(ManagementStatusError, match="400 .*cannot be opened: No such file or directory"):
        reloading.reload()


def test_undo_called_twice_restores_the_reload(reloading: ReloadingRouter) -> None:
    with pytest.raises(ManagementStatusError, match="400 There is nothing to undo"):
        reloading.reload(undo=True)
    reloading.management.create(ADDRESS, "mine", prefix="m")
    reloading.reload([listener(), address("a", "multicast")])
    assert [row["prefix"] for row in reloading.management.query(ADDRESS)] == ["a"]
    answer = reloading.reload(undo=True, plan=True)
    assert [change["kind"] for change in answer["changes"]] == ["delete", "create"]
    reloading.reload(undo=True)
    assert [row["prefix"] for row in reloading.management.query(ADDRESS)] == ["m"]
    reloading.reload(undo=True)
    assert [row["prefix"] for row in reloading.management.query(ADDRESS)] == ["a"]


def test_attribute_needing_restart_is_reported_and_kept(reloading: ReloadingRouter) -> None:
    answer = reloading.reload([listener(), ("router", {"id": "OTHER", "metadata": "text"})])
    (change,) = answer["changes"]
    assert change["effect"] == "restart"
    assert {name: each["effect"] for name, each in change["attributes"].items() if name in ("id", "metadata")} == {
        "id": "restart", "metadata": "live",
    }  # fmt: skip
    reloading.router.wait_log(r"AGENT \(warning\) Attribute 'id' of router takes effect after a restart of the router")
    row = reloading.management.one("router")
    assert (row["id"], row["metadata"]) == ("QDR", "text")
    assert "id" in reloading.reload(plan=True)["changes"][0]["attributes"]


def test_file_without_id_changes_nothing(start: Start, peers: list[AmqpPeer]) -> None:
    text = "listener {\n    host: 127.0.0.1\n    port: 0\n}\n"
    reloading = ReloadingRouter(start(text=text), peers)
    assert reloading.reload()["changes"] == []
    assert reloading.reload()["text"] == "Nothing changes."


# security.md P-85.
def test_connection_limit_changes_by_reload(reloading: ReloadingRouter) -> None:
    reloading.reload([listener(), ("policy", {"maxConnections": 2})])
    port = reloading.router.ports[""]
    reloading.connect()
    with socket.create_connection(("127.0.0.1", port)) as refused:
        assert refused.recv(1) == b""
    reloading.router.wait_log(
        r"POLICY \(info\) DENY Connection '127.0.0.1' based on global connection count. nConn.*= 2"
    )
    assert reloading.management.one("policy")["connectionsDenied"] == 1
    reloading.reload([listener()])
    reloading.connect()


def test_log_lines_of_workers_are_counted_and_kept(reloading: ReloadingRouter) -> None:
    """Frames are logged by the worker that owns the connection."""
    reloading.reload([listener(), ("log", {"module": "PROTOCOL", "enable": "trace+"})])
    reloading.connect().receiver("traced")

    def traced() -> list[str]:
        texts = [text for module, _, text, *_ in reloading.management.call("GET-LOG") if module == "PROTOCOL"]
        return texts if any("@open(16)" in text for text in texts) else []

    texts = poll(traced, "a traced open among the recent lines")
    assert reloading.management.one("logStats", name="PROTOCOL")["traceCount"] >= len(texts)
