"""Output of `sluice stat` for given rows, line by line, and its requests."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from router.cli.stat.main import main
from tests.unit.router.cli.node import ScriptedManagementNode, rows_node

ROUTER = {
    "id": "QDR.A", "version": "1.19.0", "mode": "interior", "area": "0", "linkRouteCount": 1, "autoLinkCount": 2,
    "linkCount": 3, "nodeCount": 4, "addrCount": 5, "connectionCount": 6,
}  # fmt: skip
TOTALS = {
    "workerThreads": 4, "uptimeSeconds": 90061, "memoryUsage": 333447168, "presettledDeliveries": 1000,
    "droppedPresettledDeliveries": 1, "acceptedDeliveries": 2, "rejectedDeliveries": 3, "releasedDeliveries": 4,
    "modifiedDeliveries": 5, "deliveriesDelayed1Sec": 6, "deliveriesDelayed10Sec": 7, "deliveriesStuck": 8,
    "deliveriesRedirectedToFallback": 9, "linksBlocked": 10, "deliveriesIngress": 11, "deliveriesEgress": 12,
    "deliveriesTransit": 13, "deliveriesIngressRouteContainer": 14, "deliveriesEgressRouteContainer": 15,
}  # fmt: skip
CONNECTION = {
    "identity": "1", "host": "127.0.0.1:4", "container": "c", "role": "normal", "protocol": "amqp", "dir": "in",
    "isAuthenticated": False, "sasl": None, "user": None, "isEncrypted": False, "sslProto": None, "sslCipher": None,
    "tenant": None, "active": True, "lastDlvSeconds": None, "uptimeSeconds": 59,
}  # fmt: skip
TLS = {"isEncrypted": True, "sslProto": "TLSv1.3", "sslCipher": "AES"}
LINK = {
    "linkType": "endpoint", "linkDir": "in", "connectionId": "7", "identity": "12", "peer": None, "owningAddr": "M0a.b",
    "capacity": 250, "priority": 4, "undeliveredCount": 1, "unsettledCount": 2, "deliveryCount": 12345,
    "presettledCount": 4, "droppedPresettledCount": 5, "acceptedCount": 6, "rejectedCount": 7, "releasedCount": 8,
    "modifiedCount": 9, "deliveriesDelayed1Sec": 10, "deliveriesDelayed10Sec": 1, "settleRate": 3,
    "deliveriesStuck": 0, "creditAvailable": 240, "zeroCreditSeconds": 0, "adminStatus": "enabled",
    "operStatus": "up", "linkName": "sender", "stall": None, "stallSeconds": 0,
}  # fmt: skip
ADDRESS = {
    "name": "M0b", "distribution": "balanced", "priority": -1, "inProcess": 0, "subscriberCount": 1, "remoteCount": 2,
    "containerCount": 7, "deliveriesIngress": 1234567, "deliveriesEgress": 4, "deliveriesTransit": 5,
    "deliveriesToContainer": 1000, "deliveriesFromContainer": 2000, "deliveriesRedirectedToFallback": 6,
}  # fmt: skip
HEADING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC\nQDR\.A\n\n")

Stat = Callable[..., str]


@pytest.fixture
def nodes() -> Iterator[list[ScriptedManagementNode]]:
    made: list[ScriptedManagementNode] = []
    yield made
    for node in made:
        node.stop()


@pytest.fixture
def stat(nodes: list[ScriptedManagementNode], capsys: pytest.CaptureFixture[str]) -> Stat:
    """Return a function that runs the tool and returns its output without the heading. code: expected exit status."""

    def run(
        tables: Mapping[str, list[dict[str, Any]]], *words: str, calls: Mapping[str, Any] | None = None, code: int = 0
    ) -> str:
        node = rows_node({"router": [ROUTER], **tables}, calls)
        nodes.append(node)
        assert main([*words, "-b", node.url]) == code
        out = capsys.readouterr().out
        return HEADING.sub("", out, count=1)

    return run


def test_general_statistics_are_shown(stat: Stat) -> None:
    assert stat({"router": [ROUTER | TOTALS]}) == (
        "Router Statistics\n"
        "  attr                             value\n"
        f"  {'=' * 47}\n"
        "  Version                          1.19.0\n"
        "  Mode                             interior\n"
        "  Router Id                        QDR.A\n"
        "  Worker Threads                   4\n"
        "  Uptime                           001:01:01:01\n"
        "  VmSize                           318 MiB\n"
        "  Area                             0\n"
        "  Link Routes                      1\n"
        "  Auto Links                       2\n"
        "  Links                            3\n"
        "  Nodes                            4\n"
        "  Addresses                        5\n"
        "  Connections                      6\n"
        "  Presettled Count                 1000\n"
        "  Dropped Presettled Count         1\n"
        "  Accepted Count                   2\n"
        "  Rejected Count                   3\n"
        "  Released Count                   4\n"
        "  Modified Count                   5\n"
        "  Deliveries Delayed > 1sec        6\n"
        "  Deliveries Delayed > 10sec       7\n"
        "  Deliveries Stuck > 10sec         8\n"
        "  Deliveries to Fallback           9\n"
        "  Links Blocked                    10\n"
        "  Ingress Count                    11\n"
        "  Egress Count                     12\n"
        "  Transit Count                    13\n"
        "  Deliveries from Route Container  14\n"
        "  Deliveries to Route Container    15\n"
    )


def test_general_statistics_of_old_router_are_shown(stat: Stat) -> None:
    lines = stat({}, "--general", "--csv").splitlines()
    assert lines[:3] == ["Router Statistics", '"attr","value"', '"Version","1.19.0"']
    assert [line.split(",")[0].strip('"') for line in lines[2:]] == [
        "Version", "Mode", "Router Id", "Area", "Link Routes", "Auto Links", "Links", "Nodes", "Addresses",
        "Connections",
    ]  # fmt: skip


def test_connections_table_shows_security_and_authentication(stat: Stat) -> None:
    rows = [
        CONNECTION,
        {**CONNECTION, **TLS, "identity": "2", "isAuthenticated": True, "sasl": "PLAIN", "user": "u", "tenant": "t.x/"},
        {**CONNECTION, "identity": "3", "isAuthenticated": True, "sasl": "ANONYMOUS", "user": "anonymous",
         "lastDlvSeconds": 3661},
        {**CONNECTION, **TLS, "identity": "4", "isAuthenticated": True, "sasl": "GSSAPI", "user": "k"},
        {**CONNECTION, "identity": "5", "isAuthenticated": True, "sasl": "EXTERNAL", "user": None, "container": None},
    ]  # fmt: skip
    up = "000:00:00:59"
    assert stat({"connection": rows}, "-c") == (
        "Connections\n"
        "  id  host         container  role    proto  dir  security      authentication  tenant  last dlv      uptime\n"
        f"  {'=' * 114}\n"
        f"  1   127.0.0.1:4  c          normal  amqp   in   no-security   no-auth                 -             {up}\n"
        f"  2   127.0.0.1:4  c          normal  amqp   in   TLSv1.3(AES)  u(PLAIN)        t.x     -             {up}\n"
        f"  3   127.0.0.1:4  c          normal  amqp   in   no-security   anonymous-user          000:01:01:01  {up}\n"
        f"  4   127.0.0.1:4  c          normal  amqp   in   Kerberos      k(Kerberos)             -             {up}\n"
        f"  5   127.0.0.1:4             normal  amqp   in   no-security   x.509                   -             {up}\n"
    )


def test_edge_connections_are_shown(stat: Stat) -> None:
    edge = {**CONNECTION, "identity": "2", "role": "edge"}
    assert stat({"connection": [CONNECTION, edge]}, "-e") == (
        "Connections\n"
        "  id  host         container  role  dir  security     authentication  tenant  active\n"
        "  ====================================================================================\n"
        "  2   127.0.0.1:4  c          edge  in   no-security  no-auth                 True\n"
    )
    assert stat({"connection": [CONNECTION]}, "-e") == ""
    assert stat({"connection": []}, "-e") == "No Edge Router Connections\n"


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


def test_addresses_table_is_sorted_and_formatted(stat: Stat) -> None:
    rows = [
        ADDRESS,
        {**ADDRESS, "name": "M1a", "priority": 7},
        {**ADDRESS, "name": "Cbroker", "distribution": "linkBalanced"},
        {**ADDRESS, "name": "Xodd"},
    ]
    assert stat({"router.address": rows}, "-a") == (
        "Router Addresses\n"
        "  class       addr    phs  distrib       pri  local  remote  in         out  thru  fallback\n"
        f"  {'=' * 91}\n"
        "  mobile      a       1    balanced      7    1      2       1,234,567  4    5     6\n"
        "  mobile      b       0    balanced      -    1      2       1,234,567  4    5     6\n"
        "  link-in     broker       linkBalanced  -    7      2       1,234,567  4    5     6\n"
        "  unknown: X  odd          balanced      -    1      2       1,234,567  4    5     6\n"
    )
    verbose = stat({"router.address": [ADDRESS]}, "-a", "-v", "--csv").splitlines()
    assert verbose[1:] == [
        '"class","addr","phs","distrib","pri","in-proc","local","remote","in","out","thru","fallback","to-proc",'
        '"from-proc"',
        '"mobile","b","0","balanced","-","0","1","2","1,234,567","4","5","6","1,000","2,000"',
    ]


def test_nodes_table_shows_routers(stat: Stat) -> None:
    own = {"id": "QDR.B", "nextHop": "(self)", "routerLink": None, "protocolVersion": 1, "cost": None,
           "linkState": ["QDR.A"], "validOrigins": [], "lastTopoChange": 1795221139}  # fmt: skip
    other = {**own, "id": "QDR.A", "nextHop": None, "routerLink": 0, "cost": 2, "validOrigins": ["QDR.C"],
             "lastTopoChange": None}  # fmt: skip
    assert stat({"router.node": [own, other]}, "-n") == (
        "Routers in the Network\n"
        "Last Topology Change: Saturday Nov 21 00:32:19 2026 GMT\n"
        "  router-id  next-hop  link\n"
        "  ===========================\n"
        "  QDR.A      -         0\n"
        "  QDR.B      (self)    -\n"
    )
    assert stat({"router.node": [{**own, "lastTopoChange": 0}, other]}, "-nv") == (
        "Routers in the Network\n"
        "  router-id  next-hop  link  ver  cost  neighbors  valid-origins\n"
        "  ================================================================\n"
        "  QDR.A      -         0     1    2     ['QDR.A']  ['QDR.C']\n"
        "  QDR.B      (self)    -     1          ['QDR.A']  []\n"
    )
    assert stat({"router.node": []}, "-n") == "Router is Standalone - No Router List\n"


def test_auto_links_and_link_routes_are_shown(stat: Stat) -> None:
    link = {"address": "q", "direction": "in", "phase": 1, "externalAddress": None, "linkRef": "9",
            "operStatus": "failed", "lastError": "Node not found"}  # fmt: skip
    assert stat({"router.config.autoLink": [link]}, "--autolinks") == (
        "AutoLinks\n"
        "  addr  dir  phs  extAddr  link  status  lastErr\n"
        f"  {'=' * 55}\n"
        "  q     in   1             9     failed  Node not found\n"
    )
    assert stat({"router.config.autoLink": []}, "--autolinks") == "AutoLinks\nNo AutoLinks found\n"
    route = {"prefix": "b", "pattern": None, "direction": "in", "distribution": "linkBalanced",
             "operStatus": "active", "addExternalPrefix": None, "delExternalPrefix": None}  # fmt: skip
    pattern = {**route, "prefix": None, "pattern": "a.#", "delExternalPrefix": "x."}
    assert stat({"router.config.linkRoute": [route]}, "--linkroutes") == (
        "Link Routes\n"
        "  address  dir  distrib       status\n"
        "  ====================================\n"
        "  b        in   linkBalanced  active\n"
    )
    assert stat({"router.config.linkRoute": [route, pattern]}, "--linkroutes", "--csv") == (
        'Link Routes\n"address","dir","distrib","status","add-ext-prefix","del-ext-prefix"\n'
        '"a.#","in","linkBalanced","active",,"x."\n'
        '"b","in","linkBalanced","active",,\n'
    )
    assert stat({"router.config.linkRoute": []}, "--linkroutes") == "Link Routes\nNo Link Routes found\n"


def test_memory_table_shows_pools_and_summary(stat: Stat) -> None:
    pool = {"identity": "allocator/qd_b", "typeSize": 1024, "transferBatchSize": 16384, "localFreeListMax": 32,
            "totalAllocFromHeap": 1720, "heldByThreads": 1600, "batchesRebalancedToThreads": 0,
            "batchesRebalancedToGlobal": 1}  # fmt: skip
    tables = {"router": [ROUTER | TOTALS], "allocator": [pool, {**pool, "identity": "allocator/qd_a"}]}
    assert stat(tables, "-m") == (
        "Memory Pools\n"
        "  type  size   batch  thread-max  total  in-threads  rebal-in  rebal-out\n"
        "  ========================================================================\n"
        "  qd_a  1,024  16384  32          1,720  1,600       0         1\n"
        "  qd_b  1,024  16384  32          1,720  1,600       0         1\n"
        "\n"
        "Memory Summary\n"
        "  VmSize   Pooled\n"
        "  ===================\n"
        "  318 MiB  3.36 MiB\n"
    )
    assert stat({"allocator": []}, "-m") == "No memory statistics available\n"
    assert stat({"allocator": [{**pool, "typeSize": None}]}, "-m") == "No memory statistics available\n"


def test_policy_configuration_and_status_are_shown(stat: Stat) -> None:
    policy = {"maxConnections": 65535, "maxMessageSize": 0, "enableVhostPolicy": False,
              "enableVhostNamePatterns": False, "policyDir": "", "defaultVhost": "", "connectionsProcessed": 3,
              "connectionsDenied": 1, "connectionsCurrent": 2, "linksDenied": 4, "maxMessageSizeDenied": 5,
              "totalDenials": 10}  # fmt: skip
    assert stat({"policy": [policy]}, "-p") == (
        "Policy Configuration\n"
        "  attr                            value\n"
        "  =======================================\n"
        "  Maximum Concurrent Connections  65535\n"
        "  Maximum Message Size            0\n"
        "  Enable Vhost Policy             False\n"
        "  Enable Vhost Name Patterns      False\n"
        "  Policy Directory                \n"
        "  Default Vhost                   (nil)\n"
        "\n"
        "Policy Status\n"
        "  attr                         value\n"
        "  ====================================\n"
        "  Connections Processed        3\n"
        "  Connections Denied           1\n"
        "  Connections Current          2\n"
        "  Links Denied                 4\n"
        "  Maximum Message Size Denied  5\n"
        "  Total Denials                10\n"
    )


VHOST = {
    "hostname": "h", "maxConnections": 10, "maxMessageSize": None, "maxConnectionsPerUser": 5,
    "maxConnectionsPerHost": 6, "allowUnknownUser": True,
    "groups": {"admin": {"users": "a,b", "maxSenders": 3, "allowDynamicSource": True}, "$default": {}},
}  # fmt: skip


def test_vhosts_table_shows_limits(stat: Stat) -> None:
    assert stat({"vhost": [VHOST]}, "--vhosts") == (
        "Vhosts\n"
        "  hostname  maxConnections  maxMessageSize  maxConnectionsPerUser  maxConnectionsPerHost  "
        "allowUnknownUser  groups\n"
        f"  {'=' * 114}\n"
        f"  h         10{' ' * 30}5                      6                      True              2\n"
    )
    assert stat({"vhost": []}, "--vhosts") == "No Vhosts\n"


def test_vhost_groups_are_shown_with_defaults(stat: Stat) -> None:
    attributes = {"maxFrameSize": {"type": "integer", "default": 2147483647}, "maxSenders": {"type": "integer"}}
    schema = {"entityTypes": {"vhostUserGroupSettings": {"attributes": attributes}}}
    lines = stat({"vhost": [VHOST]}, "--vhostgroups", "--csv", calls={"GET-SCHEMA": schema}).splitlines()
    assert lines[0] == "Vhost Groups"
    assert lines[2] == (
        '"h","admin","(nil)","(nil)","(nil)","2147483647","(nil)","(nil)","3","(nil)",'
        '"True","False","False","False","False","False","False"'
    )
    assert lines[4:9] == ["", "Vhost 'h' UserGroup 'admin'", '"attr","value"', '"vhost","h"', '"group","admin"']
    assert lines[9:16] == [
        '"users","a,b"', '"remoteHosts","(nil)"', '"sources","(nil)"', '"targets","(nil)"', '"sourcePattern","(nil)"',
        '"targetPattern","(nil)"', "",
    ]  # fmt: skip
    assert lines[16] == "Vhost 'h' UserGroup '$default'"


def test_vhost_stats_are_shown_with_users(stat: Stat) -> None:
    stats = {"hostname": "h", "connectionsApproved": 4, "connectionsDenied": 1, "connectionsCurrent": 2,
             "sessionDenied": 0, "senderDenied": 0, "receiverDenied": 0, "maxMessageSizeDenied": 0,
             "perUserState": {"u": ["1.2.3.4:5", "1.2.3.4:6"]}}  # fmt: skip
    lines = stat({"vhostStats": [stats]}, "--vhoststats").splitlines()
    assert lines[0] == "Vhost Stats"
    assert lines[3].split() == ["h", "4", "1", "2", "0", "0", "0", "0"]
    assert lines[4:] == [
        "",
        "Vhost User Stats",
        "  vhost  user  remote hosts",
        "  ===================================",
        "  h      u     1.2.3.4:5, 1.2.3.4:6",
    ]
    assert stat({"vhostStats": []}, "--vhoststats") == "No Vhost Stats\n"


def test_log_lines_are_shown(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    at = time.mktime((2026, 11, 21, 0, 28, 19, 0, 0, -1))
    entries = [["SERVER", "info", "[C1] Accepted", None, None, int(at)]]
    assert stat({}, "--log", "--limit", "5", calls={"GET-LOG": entries}) == (
        "Sat Nov 21 00:28:19 2026 SERVER (info) [C1] Accepted\n"
    )
    assert nodes[0].requests[-1].properties["limit"] == 5


def test_heading_and_requests_are_as_expected(
    stat: Stat, nodes: list[ScriptedManagementNode], capsys: pytest.CaptureFixture[str]
) -> None:
    """Time and router stand above the table. GET-MGMT-NODES is sent first. Correlation-ids are consecutive numbers as
    text."""
    node = rows_node({"router": [ROUTER], "connection": []})
    nodes.append(node)
    assert main(["--connections", "--bus", node.url]) == 0
    out = capsys.readouterr().out
    assert HEADING.match(out)
    assert out.endswith("\n\nConnections\n")
    assert [request.properties["operation"] for request in node.requests] == ["GET-MGMT-NODES", "QUERY", "QUERY"]
    assert [request.correlation for request in node.requests] == ["1", "2", "3"]
    for request in node.requests:
        assert request.address == "$management"
        assert (request.properties["type"], request.properties["name"]) == ("org.amqp.management", "self")
    assert (node.requests[1].properties["offset"], node.requests[1].properties["count"]) == (0, 500)


def test_query_is_paged_up_to_limit(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    rows = [{**ADDRESS, "name": f"M0{number:04}"} for number in range(1200)]
    assert len(stat({"router.address": rows}, "-a").splitlines()) == 3 + 1200
    assert [request.properties["offset"] for request in nodes[0].requests[2:]] == [0, 500, 1000]
    assert len(stat({"router.address": rows}, "-a", "--limit", "7").splitlines()) == 3 + 7
    assert nodes[1].requests[2].properties["count"] == 7
    assert len(stat({"router.address": rows}, "-a", "--limit", "700").splitlines()) == 3 + 700
    assert [request.properties["count"] for request in nodes[2].requests[2:]] == [500, 200]
    assert len(stat({"router.address": rows}, "-a", "--limit", "0").splitlines()) == 3 + 1200


# brokers-and-edge.md ED-24.
def test_option_all_routers_shows_each_router(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    addresses = ["amqp:/_topo/0/QDR.A/$management", "amqp:/_topo/0/QDR.B/$management"]
    out = stat({"connection": []}, "--all-routers", "-c", calls={"GET-MGMT-NODES": addresses})
    assert re.fullmatch(r"[-\d]+ [.:\d]+ UTC\nRouter  QDR\.A\n\nConnections\n\nRouter  QDR\.B\n\nConnections\n\n", out)
    asked = [request.address for request in nodes[0].requests]
    assert asked == ["$management", "_topo/0/QDR.A/$management", "_topo/0/QDR.B/$management"]
    alone = stat({"connection": []}, "--all-routers", "-c", calls={"GET-MGMT-NODES": addresses[:1]})
    assert alone == "Connections\n"


def test_option_all_entities_shows_all_tables(stat: Stat) -> None:
    tables: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in ("router.link", "router.address", "connection", "router.config.autoLink", "router.config.linkRoute",
                     "allocator", "vhost", "vhostStats")
    }  # fmt: skip
    out = stat({**tables, "policy": [dict.fromkeys(("maxConnections", "maxMessageSize", "enableVhostPolicy",
        "enableVhostNamePatterns", "policyDir", "defaultVhost", "connectionsProcessed", "connectionsDenied",
        "connectionsCurrent", "linksDenied", "maxMessageSizeDenied", "totalDenials"))]}, "--all-entities")  # fmt: skip
    titles = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert titles == [
        "Router Links", "Router Addresses", "Connections", "AutoLinks", "No AutoLinks found", "Link Routes",
        "No Link Routes found", "Router Statistics", "No memory statistics available", "Policy Configuration",
        "Policy Status", "No Vhosts", "No Vhost Stats",
    ]  # fmt: skip
    assert out.endswith("No Vhosts\n\nNo Vhost Stats\n\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-a", "-c"], "argument -c/--connections: not allowed with argument -a/--address"),
        (["x"], "unrecognized arguments: x"),
        (["--limit", "x"], "argument --limit: invalid int value: 'x'"),
        (["--vhost"], "ambiguous option: --vhost could match --vhosts, --vhostgroups, --vhoststats"),
        (["--all-routers", "-r", "x"], "argument -r/--router: not allowed with argument --all-routers"),
    ],
)
def test_usage_error_is_reported(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words, "sluice stat")
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("usage: sluice stat ")
    assert err.endswith(f"sluice stat: error: {error}\n")


def test_missing_column_is_an_error(stat: Stat) -> None:
    broken = {name: value for name, value in CONNECTION.items() if name != "tenant"}
    assert stat({"connection": [broken]}, "-c", code=1) == "KeyError: 'tenant'\n"
