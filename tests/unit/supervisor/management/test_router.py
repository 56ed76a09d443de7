"""Type router and its single row (management.md 6.1)."""

from sluice.router.testing.interworker import set_worker


# management.md 6.1.
def test_router_row_shows_counters(router):
    set_worker(router.region, 0, accepted=3, ingress=5)
    set_worker(router.region, 1, accepted=4, presettled=2)
    router.link(router.connection())
    (row,) = router.query("router")
    assert (row["id"], row["name"], row["identity"], row["mode"], row["area"]) == ("QDR", "QDR", "1", "standalone", "0")
    assert (row["version"], row["metadata"], row["workerThreads"]) == ("9.9", "of tests", 2)
    assert (row["acceptedDeliveries"], row["deliveriesIngress"], row["presettledDeliveries"]) == (7, 5, 2)
    assert (row["connectionCount"], row["linkCount"], row["addrCount"]) == (1, 1, len(router.core.table.records))
    assert row["memoryUsage"] > 1 << 20
    assert router.query("router", "blockedLinkCount", "linksBlocked") == [{"blockedLinkCount": 0, "linksBlocked": 0}]
