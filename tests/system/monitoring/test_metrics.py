"""Page /metrics: its series match the clients' deliveries, over all workers."""

from __future__ import annotations

from tests.peer import frames, message
from tests.promql import dashboard_queries, rules, used_names
from tests.system.fixtures import Connect, Fresh, pair, pass_one
from tests.system.http import WEB, get, scrape, wait_page
from tests.system.router import RouterProcess

SECTIONS = [WEB]


STATES = {"accepted": frames.ACCEPTED, "rejected": frames.REJECTED, "released": frames.RELEASED}


def test_metrics_page_begins_with_series_of_dispatch_in_order(router: RouterProcess) -> None:
    lines = get(router.ports["web"], "/metrics").text.splitlines()
    names = [line.split()[2:] for line in lines if line.startswith("# TYPE qdr_")]
    assert names == [
        ["qdr_connections_total", "gauge"],
        ["qdr_links_total", "gauge"],
        ["qdr_addresses_total", "gauge"],
        ["qdr_routers_total", "gauge"],
        ["qdr_link_routes_total", "gauge"],
        ["qdr_auto_links_total", "gauge"],
        ["qdr_presettled_deliveries_total", "counter"],
        ["qdr_dropped_presettled_deliveries_total", "counter"],
        ["qdr_accepted_deliveries_total", "counter"],
        ["qdr_released_deliveries_total", "counter"],
        ["qdr_rejected_deliveries_total", "counter"],
        ["qdr_modified_deliveries_total", "counter"],
        ["qdr_deliveries_ingress_total", "counter"],
        ["qdr_deliveries_egress_total", "counter"],
        ["qdr_deliveries_transit_total", "counter"],
        ["qdr_deliveries_ingress_route_container_total", "counter"],
        ["qdr_deliveries_egress_route_container_total", "counter"],
        ["qdr_deliveries_delayed_1sec_total", "counter"],
        ["qdr_deliveries_delayed_10sec_total", "counter"],
        ["qdr_deliveries_stuck_total", "gauge"],
        ["qdr_links_blocked_total", "gauge"],
        ["qdr_deliveries_redirected_to_fallback_total", "counter"],
    ]
    assert [line for line in lines if line.startswith("# TYPE")][: len(names)] == [
        f"# TYPE {name} {kind}" for name, kind in names
    ]


def test_metrics_of_alerts_and_dashboards_are_on_page(router: RouterProcess) -> None:
    families = get(router.ports["web"], "/metrics").text
    expressions = [rule["expr"] for rule in rules("alert").values()] + [query.expr for query in dashboard_queries()]
    names = {name.removesuffix("_bucket") for text in expressions for name in used_names(text).metrics}
    recorded = rules("record").keys() | {"up"}
    assert [name for name in sorted(names - recorded) if f"# TYPE {name} " not in families] == []


def test_outcomes_are_counted_by_name(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    web = router.ports["web"]
    sender, receiver = pair(connect, fresh(), credit=20)
    before = scrape(web)
    counts = {"accepted": 4, "rejected": 3, "released": 2}
    for outcome, count in counts.items():
        for _ in range(count):
            number = sender.send(message.message("x"))
            receiver.next().settle(STATES[outcome])
            assert sender.outcome(number).name == outcome
    for _ in range(5):
        sender.send(message.message("x"), settled=True)
        receiver.next()
    counts["presettled"] = 5
    grown = {f"qdr_{name}_deliveries_total": count for name, count in counts.items()}
    grown |= {"qdr_deliveries_ingress_total": 14, "qdr_deliveries_egress_total": 14}
    grown |= {"sluice_deliveries_ended_total": 14, "sluice_delivery_seconds_count": 9}
    after = wait_page(
        web, "the sent deliveries are counted", **{name: before.sum(name) + count for name, count in grown.items()}
    )
    for outcome, count in counts.items():
        name = "sluice_deliveries_ended_total"
        assert after.sum(name, outcome=outcome) - before.sum(name, outcome=outcome) == count, outcome


def test_ingress_equals_ended_plus_dropped_plus_unsettled(
    router: RouterProcess, connect: Connect, fresh: Fresh
) -> None:
    web, address = router.ports["web"], fresh()
    before = scrape(web)
    sender, receiver = pair(connect, address, credit=20)
    numbers = [sender.send(message.message("x")) for _ in range(3)]
    sender.send(message.message("x"), settled=True)
    for delivery in receiver.receive(4)[:2]:
        delivery.settle()
    assert sender.outcome(numbers[1]).name == "accepted"
    late = connect().sender(address)
    late.send(message.data(bytes(400_000))[:200_000], more=True)
    receiver.next(complete=False)
    late.detach()
    connect().sender(None).send(message.message("x", to=fresh()), settled=True)
    names = ("sluice_deliveries_ended_total", "sluice_deliveries_dropped_total", "sluice_presettled_dropped_total")
    came = before.sum("sluice_deliveries_total", direction="ingress") + 6
    page = wait_page(web, "all deliveries are counted", qdr_deliveries_ingress_total=came)
    assert [page.sum(name) - before.sum(name) for name in names] == [4, 1, 1]  # the third delivery is unsettled
    receiver.detach()
    assert sender.outcome(numbers[2]).name == "modified"
    ended = before.sum("sluice_deliveries_ended_total") + 5
    page = wait_page(web, "all deliveries have ended", sluice_deliveries_ended_total=ended)
    assert [page.sum(name) - before.sum(name) for name in names] == [5, 1, 1]


def test_address_series_count_deliveries_and_links(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    web, address = router.ports["web"], fresh()
    egress = scrape(web).sum("qdr_deliveries_egress_total")
    sender, receiver = pair(connect, address, credit=3)
    pass_one(sender, receiver)
    pass_one(sender, receiver)
    sender.send(message.message("unsettled"))
    receiver.next()
    connect().receiver(address)
    name = "sluice_address_deliveries_total"
    after = wait_page(web, "three out", qdr_deliveries_egress_total=egress + 3)
    labels = {"address": address, "phase": "0"}
    assert after.sum(name, **labels, direction="ingress") == 3
    assert after.sum(name, **labels, direction="egress") == 3
    assert after.sum("sluice_address_consumers", **labels) == 2
    assert after.sum("sluice_address_producers", **labels) == 1
    assert after.sum("sluice_address_undelivered_deliveries", **labels) == 0


def test_links_and_connections_are_counted_by_role_and_direction(router: RouterProcess, connect: Connect, fresh: Fresh):
    web, address = router.ports["web"], fresh()
    wait_page(web, "links of other tests are gone", qdr_links_total=0, qdr_connections_total=0)
    peer = connect()
    peer.receiver(address)
    sender = peer.sender(address, credit=False)
    page = wait_page(web, "two links", qdr_links_total=2)
    assert page.sum("qdr_connections_total") == page.sum("sluice_listener_connections") == 1
    for direction in ("in", "out"):
        assert page.sum("sluice_links", role="normal", direction=direction, kind="endpoint") == 1
    assert page.sum("sluice_links_without_credit", direction="out") == 1  # the receiver has granted no credit
    sender.detach()
    wait_page(web, "one link", qdr_links_total=1, sluice_links=1)


def test_worker_series_cover_each_worker_and_ring(router: RouterProcess) -> None:
    page = scrape(router.ports["web"])
    workers = {str(index) for index in range(router.workers)}
    for name in ("up", "restarts_total", "cpu_seconds_total", "resident_memory_bytes", "connections", "links"):
        assert page.labels(f"sluice_worker_{name}", "worker") == workers, name
    assert page.sum("sluice_worker_up") == router.workers
    assert page.sum("sluice_worker_resident_memory_bytes") > router.workers << 20
    assert page.sum("sluice_table_lag_epochs") == 0
    assert page.sum("sluice_listener_up") == 2
    assert page.sum("sluice_build_info") == 1
    rings = {(own["producer"], own["consumer"]) for own, _ in page.samples.get("sluice_ring_used_bytes", ())}
    assert rings == {(one, other) for one in workers for other in workers if one != other}
