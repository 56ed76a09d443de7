"""Metrics by user and by vhost, and of clients for which there is no vhost, as a router with workers shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start, pass_one
from tests.system.http import WEB, scrape, wait_page
from tests.system.router import EVERYTHING, Section, listener, poll
from tests.system.tools import run

SECTIONS: list[Section] = [
    listener(),
    WEB,
    ("policy", {"enableVhostPolicy": True}),
    ("vhost", {"hostname": "red", "groups": {"all": EVERYTHING}}),
    ("vhost", {"hostname": "blue", "groups": {"all": EVERYTHING}}),
]
DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


@pytest.mark.parametrize("workers", [1, 3])
def test_deliveries_count_for_their_vhost_and_user(start: Start, peers: list[AmqpPeer], workers: int) -> None:
    router = start(SECTIONS, workers)
    for hostname, count in (("red", 3), ("blue", 2)):
        sender_peer, receiver_peer = (AmqpPeer.opened(router.ports[""], hostname=hostname) for _ in range(2))
        peers += sender_peer, receiver_peer
        receiver = receiver_peer.receiver(hostname, credit=10)
        sender = sender_peer.sender(hostname)
        for _ in range(count):
            pass_one(sender, receiver)
    web = router.ports["web"]
    page = wait_page(web, "all deliveries", sluice_vhost_client_deliveries_total=10)
    for hostname, count in (("red", 3), ("blue", 2)):
        for direction in ("in", "out"):
            name = "sluice_vhost_client_deliveries_total"
            assert page.sum(name, vhost=hostname, direction=direction) == count
            assert page.sum("sluice_vhost_client_octets_total", vhost=hostname, direction=direction) > count
            assert page.sum("sluice_vhost_client_links", vhost=hostname, direction=direction) == 1
        assert page.sum("sluice_vhost_client_connections", vhost=hostname) == 2
    assert page.sum("sluice_user_deliveries_total", user="anonymous", direction="in") == 5
    for peer in peers:
        peer.drop()
    page = wait_page(web, "no links", sluice_user_links=0, sluice_vhost_client_connections=0)
    assert page.sum("sluice_user_deliveries_total", user="anonymous", direction="in") == 5, "ended links still count"
    assert page.sum("sluice_vhost_client_deliveries_total", vhost="red", direction="out") == 3


@pytest.mark.parametrize("workers", [1, 3])
def test_top_shows_rates_of_vhosts_without_limits(start: Start, peers: list[AmqpPeer], workers: int) -> None:
    """No page of metrics is read, so the router counts because of `sluice top`."""
    own: Section = ("vhost", {"hostname": "127.0.0.1", "groups": {"all": EVERYTHING}})
    router = start([*SECTIONS, own], workers)
    peers += [AmqpPeer.opened(router.ports[""], hostname="red") for _ in range(2)]
    receiver, sender = peers[0].receiver("a", credit=10), peers[1].sender("a")
    management = Management(AmqpPeer.opened(router.ports[""], hostname="blue"))
    peers.append(management.peer)
    for _ in range(3):
        pass_one(sender, receiver)

    def row() -> dict[str, Any]:
        return next(row for row in management.call("GET-USAGE") if row["vhost"] == "red")

    found = poll(lambda: found if (found := row())["deliveriesOut"] == 3 else None, "all are counted")
    assert {name: found[name] for name in ("connections", "linksIn", "linksOut", "deliveriesIn")} == {
        "connections": 2, "linksIn": 1, "linksOut": 1, "deliveriesIn": 3
    }  # fmt: skip
    shown = json.loads(run("top", router.port, "--once", "--json", "-i", "0.1").out)
    red = next(each for each in shown[-1]["vhosts"] if each["name"] == "red")
    assert (red["deliveriesIn"], red["octetsOut"]) == (3, found["octetsOut"])


@pytest.mark.adversarial
def test_clients_for_unknown_vhosts_are_counted_and_logged_once(start: Start, peers: list[AmqpPeer]) -> None:
    """Hostnames that clients choose create no series, and lines at a bounded rate."""
    router = start(SECTIONS)
    for number in range(20):
        peers.append(AmqpPeer.opened(router.ports[""], hostname=f"unknown{number}"))
        assert peers[-1].expect_close() == DENIED
    page = scrape(router.ports["web"])
    assert page.sum("sluice_policy_unknown_vhost_total") == 20
    assert page.sum("sluice_policy_denied_total", vhost="", reason="no_vhost") == 20
    assert page.sum("sluice_user_refused_total", user="anonymous") == 20
    assert not [name for name in page.labels("sluice_vhost_client_connections", "vhost") if "unknown" in name]
    router.wait_log(r"POLICY \(warning\) Clients are refused because no vhost has their hostname: 'unknown0'")
    assert sum("no vhost has their hostname" in line for line in router.log.splitlines()) == 1
    peers.append(AmqpPeer.opened(router.ports[""], hostname="red"))
    assert Management(peers[-1]).one("policy")["unknownVhostsDenied"] == 20
