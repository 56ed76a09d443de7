"""Outages of brokers: their reason and their duration in management, log, metrics and health."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peer import frames
from tests.peer.container import Container, ScriptedBroker
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import pki
from tests.system.fixtures import Start
from tests.system.http import WEB, get, scrape
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

CONNECTOR = "connector"
#: Seconds until the log says that something is up again, on a busy machine.
LONG = 30.0


@pytest.fixture
def brokers() -> Iterator[Callable[..., ScriptedBroker]]:
    made: list[ScriptedBroker] = []

    def make(tls: ssl.SSLContext | None = None) -> ScriptedBroker:
        made.append(ScriptedBroker(tls))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


def connector(broker: ScriptedBroker, name: str, **attributes: Any) -> Section:
    given = {"name": name, "host": "127.0.0.1", "port": broker.port, "role": "route-container"}
    return CONNECTOR, {**given, **attributes}


class Observer:
    """Management client of a router, with its log and its pages."""

    def __init__(self, router: RouterProcess) -> None:
        self.router = router
        self.management = Management(AmqpPeer.opened(router.ports["amqp"]))

    def row(self, name: str, kind: str = CONNECTOR) -> dict[str, Any]:
        return self.management.one(kind, name=name)

    def wait_reason(self, name: str, reason: str) -> dict[str, Any]:
        """Wait until a connector is down for a reason."""

        def found() -> dict[str, Any] | None:
            row = self.row(name)
            return row if not row["up"] and reason in (row.get("downReason") or "") else None

        row: dict[str, Any] = poll(found, f"connector {name} is down: {reason}")
        return row

    def readiness(self) -> tuple[int, list[str]]:
        reply = get(self.router.ports["web"], "/readyz")
        return reply.status, reply.text.splitlines()


def auto_link(name: str, direction: str) -> Section:
    return "autoLink", {"name": name, "address": "q", "direction": direction, "connection": "good"}


def test_reason_of_each_broker_is_shown_once(
    start: Start, brokers: Callable[..., ScriptedBroker], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base: Path = tmp_path_factory.getbasetemp()
    trusted, strangers = pki(base), pki(base, "strangers")
    closing, login, away = brokers(), brokers(), brokers()
    untrusted = brokers(strangers.server_context(strangers.server))
    away.refuse()
    own = Observer(
        start(
            [
                listener("amqp"),
                WEB,
                ("sslProfile", {"name": "p", "caCertFile": str(trusted.trusted)}),
                connector(closing, "closing"),
                connector(login, "login", saslUsername="u", saslPassword="x", saslMechanisms="PLAIN"),
                connector(untrusted, "untrusted", sslProfile="p"),
                connector(away, "away"),
            ],
            1,
        )
    )
    login.serve(mechanisms=("PLAIN",), code=1)
    with pytest.raises(ssl.SSLError):
        untrusted.accept()
    closing.serve().frame("close", error=frames.error("amqp:connection:forced", "maintenance"))
    reasons = {
        "closing": "amqp:connection:forced maintenance",
        "login": "amqp:unauthorized-access Authentication failed",
        "untrusted": "certificate verify failed",
        "away": "Connection refused",
    }
    for name, reason in reasons.items():
        own.wait_reason(name, reason)
    away.listen()
    away.accept().drop()  # the second failed attempt has no line of its own, but its reason is shown
    own.wait_reason("away", "no protocol header found")
    assert own.row("away")["attempts"] == 2
    for name, reason in reasons.items():
        own.router.wait_log(rf"CONN_MGR \(warning\) Connector '{name}' is down: .*{reason}")
        assert own.router.log.count(f"Connector '{name}' is down") == 1
    status, lines = own.readiness()
    assert (status, lines[-1]) == (200, "readyz check passed")
    reasons["away"] = "no protocol header found"
    for name, reason in reasons.items():
        (line,) = [line for line in lines if f" connector {name}: down for " in line]
        assert line.startswith("[!]")
        assert reason in line
    page = scrape(own.router.ports["web"])
    assert page.labels("sluice_connector_up", "connector") == set(reasons)
    assert page.sum("sluice_connector_up") == 0
    assert page.sum("sluice_connector_attempts_total", connector="away") >= 2


def answer(container: Container, count: int) -> None:
    """Accept the session and the auto links of the router."""
    container.session_begun()
    for _ in range(count):
        container.link_attached()


def test_outage_of_required_broker_makes_router_unready(start: Start, brokers: Callable[..., ScriptedBroker]) -> None:
    good = brokers()
    route: Section = ("linkRoute", {"name": "r", "prefix": "lr", "direction": "in", "connection": "good"})
    sections = [connector(good, "good", readyWithout=False), auto_link("feed", "out"), auto_link("drain", "in"), route]
    own = Observer(start([listener("amqp"), WEB, *sections], 1))
    container = good.serve()
    assert own.readiness()[0] == 503, "the auto links are not answered yet"
    answer(container, 2)
    poll(lambda: own.readiness()[0] == 200, "ready")
    assert {"[+] auto links: 2 of 2 are active", "[+] link routes: 1 of 1 are active"} <= set(own.readiness()[1])
    row = own.row("good")
    assert (row["up"], row["attempts"], row.get("downReason")) == (True, 1, None)
    good.refuse()
    container.frame("close", error=frames.error("amqp:connection:forced", "going"))
    reason = "amqp:connection:forced going"
    own.wait_reason("good", reason)
    status, lines = own.readiness()
    assert status == 503
    assert "[-] auto links: 0 of 2 are active: 'feed' is not" in "\n".join(lines)
    for line in (
        f"Connector 'good' is down: {reason}",
        f"Auto links 'feed', 'drain' on connection good are down: {reason}",
        f"Link route 'r' on connection good is down: {reason}",
    ):
        own.router.wait_log(rf"\(warning\) {line}")
    found = own.management.query("router.config.autoLink", "name", "stateSeconds", "attempts", "downReason")
    assert [(row["attempts"], row["downReason"]) for row in found] == [(1, reason), (1, reason)]
    assert own.router.log.count("is down: ") == 2
    good.listen()
    again = good.serve(timeout=20)
    own.router.wait_log(r"\(notice\) Connector 'good' is up again after \d+ s", LONG)
    own.router.wait_log(r"\(notice\) Link route 'r' on connection good is up again after \d+ s", LONG)
    answer(again, 2)
    own.router.wait_log(r"\(notice\) Auto links '\w+', '\w+' on connection good are up again after \d+ s", LONG)
    poll(lambda: own.readiness()[0] == 200, "ready again")


def test_refused_links_of_link_route_are_counted(start: Start, brokers: Callable[..., ScriptedBroker]) -> None:
    broker = brokers()
    route: Section = ("linkRoute", {"name": "r", "prefix": "lr", "direction": "in", "connection": "good"})
    own = Observer(start([listener("amqp"), WEB, connector(broker, "good"), route], 1))
    container = broker.serve()
    own.router.wait_log("Link Route Activated 'r'")
    client = AmqpPeer.opened(own.router.ports["amqp"])
    sender = client.sender("lr.a", wait=False)
    container.link_attached(answer=False).session.end(frames.error("amqp:not-found", "no queue 'a'"))
    lost = "Connectivity to the peer container was lost: amqp:not-found no queue 'a'"
    assert sender.wait_detached() == ("qd:routed-link-lost", lost)
    names = ["name", "attempts", "refusals", "lastRefusal", "downReason"]

    def found() -> dict[str, Any] | None:
        (row,) = own.management.query("router.config.linkRoute", *names)
        return row if row["refusals"] else None

    row = poll(found, "the refusal is counted")
    assert (row["attempts"], row["refusals"], row["downReason"]) == (1, 1, None)
    assert row["lastRefusal"] == "amqp:not-found no queue 'a'"
    assert scrape(own.router.ports["web"]).sum("sluice_link_route_refusals_total", link_route="r") == 1


@pytest.mark.disturbs
def test_dropped_connection_is_outage_and_drain_is_none(start: Start, brokers: Callable[..., ScriptedBroker]) -> None:
    broker = brokers()
    route: Section = ("linkRoute", {"name": "r", "prefix": "lr", "direction": "in", "connection": "good"})
    grace: Section = ("router", {"shutdownGraceSeconds": 20})
    sections = [grace, listener("amqp"), WEB, connector(broker, "good"), auto_link("feed", "out"), route]
    router = start(sections, 1)
    container = broker.serve()
    answer(container, 1)
    router.wait_log("Auto Link Activated 'feed'")
    container.drop()
    reason = "the peer has closed the TCP connection without an AMQP close"
    for name in ("Connector 'good'", "Auto link 'feed' on connection good", "Link route 'r' on connection good"):
        router.wait_log(rf"\(warning\) {name} is down: {reason}")
    answer(broker.serve(timeout=20), 1)
    router.wait_log(r"\(notice\) Auto link 'feed' on connection good is up again after \d+ s", LONG)
    lines = router.log.count("down: ")
    os.kill(router.pid, signal.SIGTERM)
    router.wait_log("Drained: all connections are closed", LONG)
    assert router.log.count("down: ") == lines
