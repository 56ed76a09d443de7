"""Display of links."""

from tests.unit.router.cli.node import ScriptedManagementNode
from tests.unit.router.cli.stat.rows import Stat

LINK = {
    "linkType": "endpoint", "linkDir": "in", "connectionId": "7", "identity": "12", "peer": None, "owningAddr": "M0a.b",
    "capacity": 250, "priority": 4, "undeliveredCount": 1, "unsettledCount": 2, "deliveryCount": 12345,
    "presettledCount": 4, "droppedPresettledCount": 5, "acceptedCount": 6, "rejectedCount": 7, "releasedCount": 8,
    "modifiedCount": 9, "deliveriesDelayed1Sec": 10, "deliveriesDelayed10Sec": 1, "settleRate": 3,
    "deliveriesStuck": 0, "creditAvailable": 240, "zeroCreditSeconds": 0, "adminStatus": "enabled",
    "operStatus": "up", "linkName": "sender", "stall": None, "stallSeconds": 0,
}  # fmt: skip


def test_links_table_shows_counters_and_stalls(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    out = {**LINK, "linkDir": "out", "identity": "13", "owningAddr": "Dfar", "peer": "12", "zeroCreditSeconds": 3725}
    anonymous = {**LINK, "identity": "14", "owningAddr": None, "deliveriesDelayed1Sec": 0, "deliveriesDelayed10Sec": 0}
    assert stat({"router.link": [LINK, out, anonymous]}, "-l") == (
        "Router Links\n"
        "  type      dir  conn id  id  peer  class     addr  phs  cap  pri  undel  unsett  deliv  presett  psdrop  "
        "acc  rej  rel  mod  delay  rate  stuck  cred  blkd\n"
        f"  {'=' * 160}\n"
        "  endpoint  in   7        12        mobile    a.b   0    250  4    1      2       12345  4        5       "
        "6    7    8    9    11     3     0      240   -\n"
        "  endpoint  out  7        13  12    link-out  far        250  4    1      2       12345  4        5       "
        "6    7    8    9    11     3     0      240   01:02:05\n"
        "  endpoint  in   7        14                             250  4    1      2       12345  4        5       "
        "6    7    8    9    0      3     0      240   -\n"
    )
    verbose = stat({"router.link": [LINK]}, "-v", "--links", "--csv").splitlines()
    assert verbose[1].endswith(',"cred","blkd","admin","oper","name","stall","stalled for"')
    assert verbose[2].endswith(',"240","-","enabled","up","sender","-","-"')
    stalled = {**LINK, "stall": "window", "stallSeconds": 62}
    others = {**LINK, "stall": "QDR.A", "stallSeconds": "M0a"}  # values of other columns, as Dispatch returns
    verbose = stat({"router.link": [stalled, others]}, "-v", "--links", "--csv").splitlines()
    assert [line.split(",")[-2:] for line in verbose[2:]] == [['"window"', '"00:01:02"'], ['"-"', '"-"']]
    assert nodes[0].requests[-1].body["attributeNames"]  # only the columns that are shown
