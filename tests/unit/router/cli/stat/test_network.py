"""Displays of the routers in the network, auto links and link routes."""

from tests.unit.router.cli.stat.rows import Stat


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
