"""Pages /healthz and /metrics of a listener with `http: yes`, as Dispatch's users scrape them. management.md 10.2."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from proton import Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from tests.interop.dispatch.node import ManagementNode, attempt
from tests.system.router import RouterProcess, Section, free_port, listener, poll

SECTIONS: list[Section] = [
    listener("web", http=True),
    listener("bare", http=True, healthz=False, metrics=False, websockets=False),
]

#: Series of 1.19 in order: name without `qdr_` and `_total`, type.
SERIES = [
    *((name, "gauge") for name in ("connections", "links", "addresses", "routers", "link_routes", "auto_links")),
    *(
        (name, "counter")
        for name in (
            "presettled_deliveries", "dropped_presettled_deliveries", "accepted_deliveries", "released_deliveries",
            "rejected_deliveries", "modified_deliveries", "deliveries_ingress", "deliveries_egress",
            "deliveries_transit", "deliveries_ingress_route_container", "deliveries_egress_route_container",
            "deliveries_delayed_1sec", "deliveries_delayed_10sec",
        )
    ),
    ("deliveries_stuck", "gauge"),
    ("links_blocked", "gauge"),
    ("deliveries_redirected_to_fallback", "counter"),
]  # fmt: skip


def get(port: int, path: str, method: str = "GET") -> tuple[HTTPResponse, str]:
    """Send a request on a connection of its own; return response and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def metric_samples(port: int) -> dict[str, float]:
    """Return the samples without labels, by series."""
    found = re.findall(r"^(\w+) (\S+)$", get(port, "/metrics")[1], re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_healthz_request_returns_ok(shared_router: RouterProcess) -> None:
    response, text = get(shared_router.ports["web"], "/healthz")
    assert (response.status, text) == (200, "OK\n")
    assert response.headers["content-type"].startswith("text/plain")
    assert response.headers["server"]


def test_metrics_page_lists_series_in_order(shared_router: RouterProcess) -> None:
    """The page has the series of 1.19 in order, each after the line with its type."""
    response, text = get(shared_router.ports["web"], "/metrics")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain")
    places = []
    for name, kind in SERIES:
        match = re.search(rf"^# TYPE qdr_{name}_total {kind}\nqdr_{name}_total \d+(\.0)?$", text, re.MULTILINE)
        assert match, f"qdr_{name}_total"
        places.append(match.start())
    assert places == sorted(places)


def test_metrics_count_matches_management(shared_router: RouterProcess, node: ManagementNode) -> None:
    links = node.one("router")["linkCount"]
    poll(
        lambda: metric_samples(shared_router.ports["web"])["qdr_links_total"] == links,
        "a page that is not of the moment before",
    )
    before = metric_samples(shared_router.ports["web"])
    client = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
    receiver = client.create_receiver("balanced/metrics", credit=10)
    sender = client.create_sender("balanced/metrics", options=AtMostOnce())
    for number in range(4):
        sender.send(Message(body=number))
    assert [receiver.receive(timeout=10).body for _ in range(4)] == list(range(4))
    wanted = {"presettled_deliveries": 4, "deliveries_ingress": 4, "deliveries_egress": 4, "connections": 1, "links": 2,
              "addresses": 1}  # fmt: skip

    def grown() -> bool:
        now = metric_samples(shared_router.ports["web"])
        return {name: now[f"qdr_{name}_total"] - before[f"qdr_{name}_total"] for name in wanted} == wanted

    poll(grown, "the metrics show the traffic")
    row = node.one("router")
    now = metric_samples(shared_router.ports["web"])
    for column, name in (("linkCount", "links"), ("connectionCount", "connections"), ("addrCount", "addresses")):
        assert row[column] == now[f"qdr_{name}_total"]
    client.close()


@pytest.mark.parametrize("path", ["/nothing", "/metrics/more", "/%2e%2e/etc/passwd"])
def test_unknown_path_returns_404(path: str, shared_router: RouterProcess) -> None:
    assert get(shared_router.ports["web"], path)[0].status == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_disabled_page_returns_404(path: str, shared_router: RouterProcess) -> None:
    assert get(shared_router.ports["bare"], path)[0].status == 404


def test_concurrent_scrapes_are_answered(shared_router: RouterProcess) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: get(shared_router.ports["web"], "/metrics"), range(24)))
    assert {response.status for response, _ in answers} == {200}


def test_http_listener_created_by_management_answers(shared_router: RouterProcess, node: ManagementNode) -> None:
    """The listener is created, answers, and is deleted. A router may refuse to delete it, as 1.19 may."""
    port = free_port()
    made = node.create("listener", "web2", host="127.0.0.1", port=str(port), http=True)
    assert made.http is True
    poll(lambda: is_listening(port), "the new listener answers")
    assert get(port, "/healthz")[0].status == 200
    answer: Any = attempt(node.delete, "listener", name="web2")
    if answer is None:
        poll(lambda: not is_listening(port), "the deleted listener is closed")
    else:
        assert answer == (400, "HTTP listeners cannot be deleted")
    assert get(shared_router.ports["web"], "/healthz")[0].status == 200


def is_listening(port: int) -> bool:
    """True if a server answers on the port."""
    try:
        get(port, "/healthz")
    except OSError:
        return False
    return True
