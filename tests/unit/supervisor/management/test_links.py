"""Type router.link: rows of attached links (management.md 6.2)."""

from tests.peer.management import PREFIX
from tests.peer.types import ULong


# management.md 6.2.
def test_link_row_shows_counters(router):
    connection = router.connection(worker=1)
    first = router.link(
        connection, "in", "closest/x", capacity=250, credit=249, deliveries=9, accepted=3, rejected=1, released=2,
        modified=1, presettled=1, dropped_presettled=1, delayed_1s=2, delayed_10s=1, unsettled=1,
    )  # fmt: skip
    second = router.link(connection, "out", "closest/x", undelivered=4)
    one, two = router.query("router.link")
    assert (one["identity"], two["identity"]) == (str(first), str(second))
    assert (one["name"], one["linkName"], one["linkDir"], one["owningAddr"]) == (
        "link-0",
        "link-0",
        "in",
        "M0closest/x",
    )
    assert (one["capacity"], one["creditAvailable"], one["deliveryCount"], one["unsettledCount"]) == (250, 249, 9, 1)
    assert [one[f"{name}Count"] for name in ("accepted", "rejected", "released", "modified")] == [3, 1, 2, 1]
    assert (one["presettledCount"], one["droppedPresettledCount"]) == (1, 1)
    assert (one["deliveriesDelayed1Sec"], one["deliveriesDelayed10Sec"]) == (2, 1)
    assert (one["connectionId"], one["linkType"], one["adminStatus"], one["priority"]) == (
        "1",
        "endpoint",
        "enabled",
        4,
    )
    assert (one["peer"], one["ingressHistogram"]) == (None, None)
    assert (two["linkDir"], two["undeliveredCount"], len(two["ingressHistogram"])) == ("out", 4, 128)


def test_link_status_depends_on_address(router):
    router.link(router.connection(), "in", None)
    assert router.query("router.link", "operStatus", "owningAddr") == [{"operStatus": "up", "owningAddr": None}]
    router.link(router.connection(), "out", "x")
    assert [row["operStatus"] for row in router.query("router.link", "operStatus")] == ["up", "down"]


def test_zero_credit_seconds_are_shown(router):
    router.link(router.connection(), "in", None, blocked_since=1)
    assert router.query("router.link", "zeroCreditSeconds")[0]["zeroCreditSeconds"] > 0


def test_links_are_read_by_identity_and_name(router):
    number = router.link(router.connection())
    link = PREFIX + "router.link"
    for operation, body in (("READ", {}), ("UPDATE", {"adminStatus": "disabled"})):
        for target in ({"identity": str(number)}, {"identity": ULong(number)}, {"name": "link-0"}):
            answer = router.ask(operation, body, type=link, **target)
            assert (answer.status, answer.body["identity"], answer.body["adminStatus"]) == (200, str(number), "enabled")
        assert router.ask(operation, body, type=link, identity="999").outcome == (404, "Not Found")
        assert router.ask(operation, body, type=link, name="none").outcome == (404, "Not Found")
        assert router.ask(operation, body, type=link).outcome == (400, "Bad Request")
    useless: object
    for useless in ({}, "x", None):
        answer = router.ask("UPDATE", useless, type=link, identity=str(number))
        assert (answer.outcome, answer.body) == ((400, "Bad Request"), {})
