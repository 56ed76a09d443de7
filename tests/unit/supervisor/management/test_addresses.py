"""Type router.address: rows of the address table (management.md 6.3)."""

from sluice.router.testing.interworker import set_address
from tests.peer.management import PREFIX


# management.md 6.3.
def test_address_row_shows_counters(router):
    connection = router.connection()
    router.link(connection, "out", "closest/x")
    router.link(connection, "out", "closest/x")
    record = router.core.table.records["M0closest/x"]
    set_address(router.region, 0, record.id, ingress=2, egress=3)
    set_address(router.region, 1, record.id, ingress=5, redirected=1)
    answer = router.ask("READ", type=PREFIX + "router.address", name="M0closest/x")
    row = answer.body
    assert (row["key"], row["name"], row["identity"]) == ("M0closest/x",) * 3
    assert (row["distribution"], row["subscriberCount"], row["priority"], row["inProcess"]) == ("closest", 2, 7, 0)
    assert (row["deliveriesIngress"], row["deliveriesEgress"], row["deliveriesRedirectedToFallback"]) == (7, 3, 1)
    assert (row["remoteHostRouters"], row["transitOutstanding"], row["trackedDeliveries"]) == ([], None, 0)
    keys = [each["key"] for each in router.query("router.address", "key", "inProcess") if each["inProcess"]]
    assert set(keys) >= {"M0$management", "L$management"}
    assert router.ask("READ", type=PREFIX + "router.address", identity="Mx").outcome == (404, "Not Found")
    assert router.ask("READ", type=PREFIX + "router.address").outcome == (404, "Not Found")
