"""Program qdstat: each display, as people and scripts read it; exit codes and errors."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

import pytest
from proton import Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from tests.interop.dispatch.programs import QdstatProgram, run
from tests.system.router import RouterProcess, Section, free_port, poll

SECTIONS: list[Section] = [("router", {"metadata": "m"}), ("address", {"prefix": "urgent", "priority": 7})]

HEADING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC")
DURATION = r"\d{3}:\d\d:\d\d:\d\d"
NUMBER = r"\d+"


@pytest.fixture(scope="module", autouse=True)
def traffic(shared_router: RouterProcess) -> Iterator[None]:
    """Connected clients for the displays: three messages to two consumers, a priority address, a SASL connection."""
    clients = [
        BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=sasl, timeout=10) for sasl in (True, False)
    ]
    receivers = [client.create_receiver("multicast/show", credit=10) for client in clients]
    sender = clients[0].create_sender("multicast/show", options=AtMostOnce())
    for number in range(3):
        sender.send(Message(body=number))
    urgent = clients[1].create_receiver("urgent/show")
    for receiver in receivers:
        assert [receiver.receive(timeout=10).body for _ in range(3)] == [0, 1, 2]
    assert urgent
    yield
    for client in clients:
        client.close()


def body(out: str) -> list[str]:
    """Check the heading and return the lines below it."""
    lines = out.splitlines()
    assert HEADING.fullmatch(lines[0])
    assert lines[1] == "QDR"
    assert lines[2] == ""
    return lines[3:]


def columns(line: str) -> list[str]:
    """Return the column names of a header line."""
    assert line.startswith("  ")
    return re.split(r"  +", line.strip())


# --- general ------------------------------------------------------------------------------------------------------

GENERAL = [
    "Version", "Mode", "Router Id", "Worker Threads", "Uptime", "VmSize", "Area", "Link Routes", "Auto Links", "Links",
    "Nodes", "Addresses", "Connections", "Presettled Count", "Dropped Presettled Count", "Accepted Count",
    "Rejected Count", "Released Count", "Modified Count", "Deliveries Delayed > 1sec", "Deliveries Delayed > 10sec",
    "Deliveries Stuck > 10sec", "Deliveries to Fallback", "Links Blocked", "Ingress Count", "Egress Count",
    "Transit Count", "Deliveries from Route Container", "Deliveries to Route Container",
]  # fmt: skip


@pytest.mark.parametrize("options", [[], ["-g"], ["--general"], ["--gen"]])
def test_general_display_lists_attributes(options: list[str], qdstat: QdstatProgram) -> None:
    lines = body(qdstat(*options))
    assert lines[0] == "Router Statistics"
    assert columns(lines[1]) == ["attr", "value"]
    assert re.fullmatch(r"  =+", lines[2])
    rows = {line[2:34].strip(): line[34:].strip() for line in lines[3:] if line}
    assert list(rows) == GENERAL
    assert (rows["Mode"], rows["Router Id"], rows["Worker Threads"], rows["Area"]) == ("standalone", "QDR", "3", "0")
    assert re.fullmatch(DURATION, rows["Uptime"])
    assert re.fullmatch(r"[\d.]+ [KMG]iB", rows["VmSize"])
    assert rows["Presettled Count"] == "3"
    for name in GENERAL[7:]:
        assert re.fullmatch(NUMBER, rows[name]), (name, rows[name])


def test_general_display_has_csv_form(qdstat: QdstatProgram) -> None:
    lines = body(qdstat("-g", "--csv"))
    assert lines[0] == "Router Statistics"
    rows = list(csv.reader(lines[1:]))
    assert rows[0] == ["attr", "value"]
    assert [row[0] for row in rows[1:] if row] == GENERAL
    assert ["Mode", "standalone"] in rows
    assert '"Router Id","QDR"' in lines


# --- tables -------------------------------------------------------------------------------------------------------

LINKS = ["type", "dir", "conn id", "id", "peer", "class", "addr", "phs", "cap", "pri", "undel", "unsett", "deliv",
         "presett", "psdrop", "acc", "rej", "rel", "mod", "delay", "rate", "stuck", "cred", "blkd"]  # fmt: skip
ADDRESSES = ["class", "addr", "phs", "distrib", "pri", "local", "remote", "in", "out", "thru", "fallback"]
TABLES: dict[str, tuple[str, list[str]]] = {
    "-c": (
        "Connections",
        [
            "id",
            "host",
            "container",
            "role",
            "proto",
            "dir",
            "security",
            "authentication",
            "tenant",
            "last dlv",
            "uptime",
        ],
    ),
    "-l": ("Router Links", LINKS),
    "-l -v": ("Router Links", [*LINKS, "admin", "oper", "name", "stall", "stalled for"]),
    "-a": ("Router Addresses", ADDRESSES),
    "-a -v": (
        "Router Addresses",
        [*ADDRESSES[:5], "in-proc", *ADDRESSES[5:], "to-proc", "from-proc"],
    ),
    "-p": ("Policy Configuration", ["attr", "value"]),
}


@pytest.mark.parametrize("options", TABLES)
def test_table_has_exact_columns(options: str, qdstat: QdstatProgram) -> None:
    """A table has a title, the exact columns and an underline of `=`; its CSV form has the same columns."""
    title, names = TABLES[options]
    lines = body(qdstat(*options.split()))
    assert lines[0] == title
    assert columns(lines[1]) == names
    assert re.fullmatch(r"  =+", lines[2])
    assert lines[3].startswith("  ")
    quoted = body(qdstat(*options.split(), "--csv"))
    assert quoted[0] == title
    assert next(csv.reader(quoted[1:])) == names


@pytest.mark.parametrize(
    ("short", "long"), [("-c", "--connections"), ("-l", "--links"), ("-a", "--address"), ("-p", "--policy")]
)
def test_long_options_equal_short_options(short: str, long: str, qdstat: QdstatProgram) -> None:
    assert body(qdstat(short))[:2] == body(qdstat(long))[:2]


def test_connections_table_shows_clients(qdstat: QdstatProgram) -> None:
    rows = qdstat.table("-c")
    assert len(rows) == 3
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), key=int)
    for row in rows:
        assert (row["role"], row["proto"], row["dir"], row["security"]) == ("normal", "amqp", "in", "no-security")
        assert re.fullmatch(r"127\.0\.0\.1:\d+", row["host"])
        assert re.fullmatch(DURATION, row["uptime"])
        assert row["tenant"] == ""
    assert [row["authentication"] for row in rows] == ["anonymous-user", "no-auth", "no-auth"]
    assert re.fullmatch(DURATION, rows[0]["last dlv"])


def test_links_table_shows_counters(qdstat: QdstatProgram) -> None:
    rows = [row for row in qdstat.table("-l") if row["addr"] == "multicast/show"]
    assert [row["dir"] for row in rows] == ["out", "out", "in"]
    for row in rows:
        assert (row["type"], row["class"], row["phs"], row["peer"]) == ("endpoint", "mobile", "0", "")
        assert (row["cap"], row["pri"], row["undel"], row["unsett"]) == ("250", "4", "0", "0")
        assert (row["deliv"], row["presett"], row["acc"], row["delay"], row["stuck"]) == ("3", "3", "0", "0", "0")
        assert row["conn id"].isdecimal()
        assert row["id"].isdecimal()
        assert row["blkd"] == "-" or re.fullmatch(r"\d\d:\d\d:\d\d", row["blkd"])
    temporary = [row for row in qdstat.table("-l") if row["addr"].startswith("temp.")]
    assert [(row["class"], row["phs"]) for row in temporary] == [("local", "")]


def test_addresses_table_shows_counters(qdstat: QdstatProgram) -> None:
    rows = qdstat.table("-a")
    assert [row["addr"] for row in rows] == sorted(row["addr"] for row in rows)
    shown = next(row for row in rows if row["addr"] == "multicast/show")
    assert (shown["class"], shown["phs"], shown["distrib"], shown["pri"]) == ("mobile", "0", "multicast", "-")
    assert (shown["local"], shown["remote"], shown["in"], shown["out"], shown["thru"]) == ("2", "0", "3", "6", "0")
    urgent = next(row for row in rows if row["addr"] == "urgent/show")
    assert (urgent["pri"], urgent["local"], urgent["fallback"]) == ("7", "1", "0")
    assert {(row["class"], row["addr"]) for row in rows} >= {("mobile", "$management"), ("local", "$management")}


def test_priority_column_aligns_with_header(qdstat: QdstatProgram) -> None:
    """The values of column `pri` begin below its header, as Dispatch's own tests expect: a hyphen, or 0 to 9."""
    for option in ("--address", "--links"):
        lines = qdstat(option).split("\n")
        start = re.search("pri", lines[4])
        assert start is not None
        for line in lines[6:-1]:
            if not line.strip():
                break
            found = re.findall(r"[-\d]+", line[start.start() :])[0]
            assert found == "-" or 0 <= int(found) <= 9


def test_thousands_separators_appear_for_addresses_only(shared_router: RouterProcess, qdstat: QdstatProgram) -> None:
    """Counts of addresses have commas, counts of links do not."""
    client = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
    receiver = client.create_receiver("balanced/thousands", credit=2000)
    sender = client.create_sender("balanced/thousands", options=AtMostOnce())
    for number in range(1200):
        sender.send(Message(body=number))
        if number % 100 == 99:
            for _ in range(100):
                receiver.receive(timeout=10)
    row = next(row for row in qdstat.table("-a") if row["addr"] == "balanced/thousands")
    assert (row["in"], row["out"]) == ("1,200", "1,200")
    link = next(row for row in qdstat.table("-l") if row["addr"] == "balanced/thousands" and row["dir"] == "in")
    assert link["deliv"] == "1200"
    client.close()


def test_policy_display_lists_attributes(qdstat: QdstatProgram) -> None:
    lines = body(qdstat("-p"))
    empty = lines.index("")
    assert lines[empty + 1] == "Policy Status"
    configuration = [line[2:].split("  ")[0] for line in lines[3:empty]]
    assert configuration == ["Maximum Concurrent Connections", "Maximum Message Size", "Enable Vhost Policy",
                             "Enable Vhost Name Patterns", "Policy Directory", "Default Vhost"]  # fmt: skip
    assert re.fullmatch(r"  Maximum Concurrent Connections +65535", lines[3])
    status = {line[2:31].strip(): line[31:].strip() for line in lines[empty + 4 :] if line}
    assert list(status) == ["Connections Processed", "Connections Denied", "Connections Current", "Links Denied",
                            "Maximum Message Size Denied", "Total Denials"]  # fmt: skip
    assert int(status["Connections Current"]) >= 2
    assert int(status["Connections Processed"]) >= int(status["Connections Current"])


def test_memory_display_lists_pools(qdstat: QdstatProgram) -> None:
    """The display has the router's memory pools, or says that there are none."""
    lines = body(qdstat("-m"))
    if lines[0] == "No memory statistics available":
        return
    assert lines[0] == "Memory Pools"
    names = ["type", "size", "batch", "thread-max", "total", "in-threads", "rebal-in", "rebal-out"]
    assert columns(lines[1]) == names
    rows = qdstat.table("-m")
    assert [row["type"] for row in rows] == sorted(row["type"] for row in rows)
    for row in rows:
        assert re.fullmatch(r"\d+", row["batch"])
        assert all(re.fullmatch(r"\d{1,3}(,\d{3})*", row[name]) for name in names[1:] if name != "batch"), row
    summary = lines.index("Memory Summary")
    assert lines[summary - 1] == ""
    assert columns(lines[summary + 1]) == ["VmSize", "Pooled"]


# --- displays without rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "lines"),
    [
        ("-n", ["Router is Standalone - No Router List"]),
        ("--nodes", ["Router is Standalone - No Router List"]),
        ("-e", []),
        ("--autolinks", ["AutoLinks", "No AutoLinks found"]),
        ("--linkroutes", ["Link Routes", "No Link Routes found"]),
    ],
)
def test_empty_display_prints_notice(option: str, lines: list[str], qdstat: QdstatProgram) -> None:
    assert [line for line in body(qdstat(option)) if line] == lines


@pytest.mark.parametrize(
    ("option", "text"), [("--vhosts", "No Vhosts"), ("--vhostgroups", "No Vhosts"), ("--vhoststats", "No Vhost Stats")]
)
def test_empty_vhost_display_omits_heading(option: str, text: str, qdstat: QdstatProgram) -> None:
    assert qdstat(option).strip() == text


def test_combined_display_keeps_order(qdstat: QdstatProgram) -> None:
    out = qdstat("--all-entities")
    titles = ["Router Links", "Router Addresses", "Connections", "AutoLinks", "Link Routes", "Router Statistics"]
    places = [out.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    assert out.index("Policy Configuration") > places[-1]
    assert out.index("No Vhosts") > out.index("Policy Configuration")


# --- log and limits -----------------------------------------------------------------------------------------------


def test_log_display_includes_own_request(qdstat: QdstatProgram) -> None:
    """The request for the log is in its last lines (module AGENT, level debug)."""
    out = qdstat("--log", "--limit=5")
    assert re.search(r"^\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4} AGENT \(debug\) .*GET-LOG", out, re.MULTILINE)
    heads = re.findall(r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} [A-Z_]+ \(\w+\) ", out, re.MULTILINE)
    assert len(heads) == 5


@pytest.mark.parametrize("option", ["-c", "-l", "-a"])
def test_limit_option_bounds_rows(option: str, qdstat: QdstatProgram) -> None:
    assert len(qdstat.table(option, "--limit", "1")) == 1
    assert len(qdstat.table(option, "--limit", "2")) == 2
    assert len(qdstat.table(option, "--limit", "0")) > 2


# --- targets ------------------------------------------------------------------------------------------------------


def test_router_option_accepts_own_name(qdstat: QdstatProgram) -> None:
    assert body(qdstat("-r", "QDR", "-g"))[0] == "Router Statistics"
    assert body(qdstat("--router=QDR", "-c"))[0] == "Connections"


def test_standalone_router_ignores_all_routers_option(qdstat: QdstatProgram) -> None:
    """With fewer than two routers, the option is ignored."""
    assert body(qdstat("--all-routers", "-a"))[0] == "Router Addresses"


def test_unknown_router_is_reported(qdstat: QdstatProgram) -> None:
    """The program of 1.19 waits for the time-out and prints the name of a link."""
    done = qdstat.run("-r", "NOPE")
    assert (done.code, done.out) == (1, "UnknownRouter: router 'NOPE' is not in the network\n")


def test_unreachable_router_is_reported() -> None:
    port = free_port()
    done = run("qdstat", "-b", f"127.0.0.1:{port}")
    assert done.code == 1
    assert done.out.startswith("ConnectionException: Connection amqp://127.0.0.1:")
    assert "Connection refused" in done.out


def test_bus_option_accepts_url_forms(shared_router: RouterProcess) -> None:
    for bus in (
        f"127.0.0.1:{shared_router.port}",
        f"amqp://127.0.0.1:{shared_router.port}",
        f"amqp://127.0.0.1:{shared_router.port}/$management",
    ):
        assert run("qdstat", "-b", bus).code == 0


def test_sasl_mechanism_option_authenticates(qdstat: QdstatProgram) -> None:
    assert body(qdstat("--sasl-mechanisms", "ANONYMOUS", "-c"))[0] == "Connections"


@pytest.mark.parametrize(
    "arguments", [["-c", "-l"], ["extra"], ["--nosuch"], ["--limit", "x"], ["-r", "A", "--all-routers"], ["-t", "x"]]
)
def test_wrong_usage_exits_with_code_2(arguments: list[str], qdstat: QdstatProgram) -> None:
    done = qdstat.run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.lower().startswith("usage: ")
    assert "qdstat: error: " in done.err


@pytest.mark.parametrize("option", ["-h", "--help", "--version"])
def test_help_option_exits_with_code_0(option: str) -> None:
    done = run("qdstat", option)
    assert done.code == 0
    assert done.out
    assert done.err == ""


def test_connection_closes_with_program(shared_router: RouterProcess, qdstat: QdstatProgram) -> None:
    before = len(qdstat.table("-c"))
    qdstat("-g")
    poll(lambda: len(qdstat.table("-c")) == before, "the connection of the program is gone")
