"""Display of the router's general statistics."""

from tests.unit.router.cli.stat.rows import ROUTER, TOTALS, Stat


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
