"""Tool `qdstat` against a router: each column equals what the clients did."""

import re

import pytest

from tests.peer import message
from tests.peer.frames import RELEASED, modified, rejected
from tests.system.fixtures import CAPACITY, Connect, Fresh, pair, pass_one, wait_address_table
from tests.system.router import RouterProcess, listener, poll
from tests.system.tools import Row, one, run, table

SECTIONS = [
    listener("tenants", multiTenant=True),
    ("address", {"prefix": "first", "distribution": "closest", "priority": 7}),
]

HEADING = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC\nQDR\n\n"


def general(router: RouterProcess) -> dict[str, str]:
    return {row["attr"]: row["value"] for row in table(router.port, "-g")}


def link_rows_after(router: RouterProcess, address: str, count: int) -> tuple[Row, Row]:
    """Wait until both links count all `count` deliveries; return the rows of the sender's and of the receiver's
    link."""
    columns = ("acc", "rej", "rel", "mod", "presett", "psdrop")

    def rows() -> tuple[Row, Row] | None:
        links = [row for row in table(router.port, "-l") if row["addr"] == address]
        sender, receiver = one(links, dir="in"), one(links, dir="out")
        done = all(sum(int(row[column]) for column in columns) == count for row in (sender, receiver))
        return (sender, receiver) if done else None

    found: tuple[Row, Row] = poll(rows, f"{count} deliveries are counted")
    return found


def test_general_display_counts_deliveries(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    before = general(router)
    sender, receiver = pair(connect, fresh())
    for _ in range(3):
        pass_one(sender, receiver)
    number = sender.send(message.message("no"))
    receiver.next().settle(rejected("x:y"))
    sender.outcome(number)
    sender.send(message.message("settled"), settled=True)
    receiver.next()

    def counted() -> dict[str, str] | None:
        now = general(router)
        return now if int(now["Presettled Count"]) == int(before["Presettled Count"]) + 1 else None

    after: dict[str, str] = poll(counted, "the settled message is counted")
    assert (after["Router Id"], after["Mode"], after["Area"]) == ("QDR", "standalone", "0")
    assert after["Worker Threads"] == str(router.workers)
    assert re.fullmatch(r"\d{3}:\d\d:\d\d:\d\d", after["Uptime"])
    assert re.fullmatch(r"[\d.]+ [KMG]iB", after["VmSize"])

    def grown(name: str) -> int:
        return int(after[name]) - int(before[name])

    assert grown("Rejected Count") == 1
    assert grown("Accepted Count") >= 3  # the requests of the tool count, too
    assert grown("Links") == 2
    assert grown("Connections") == 2
    assert list(after) == [
        "Version", "Mode", "Router Id", "Worker Threads", "Uptime", "VmSize", "Area", "Link Routes", "Auto Links",
        "Links", "Nodes", "Addresses", "Connections", "Presettled Count", "Dropped Presettled Count", "Accepted Count",
        "Rejected Count", "Released Count", "Modified Count", "Deliveries Delayed > 1sec", "Deliveries Delayed > 10sec",
        "Deliveries Stuck > 10sec", "Deliveries to Fallback", "Links Blocked", "Ingress Count", "Egress Count",
        "Transit Count", "Deliveries from Route Container", "Deliveries to Route Container",
    ]  # fmt: skip


def test_link_display_counts_outcomes(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    """Nine deliveries cover all outcomes, one is presettled, and one stays unsettled."""
    address = fresh()
    sender, receiver = pair(connect, address, credit=20)
    numbers = [sender.send(message.message(number)) for number in range(9)]
    states = [None] * 4 + [rejected("x:y")] * 2 + [RELEASED] * 2 + [modified(failed=True)]
    for state in states:
        delivery = receiver.next()
        delivery.settle() if state is None else delivery.settle(state)
    for number in numbers:
        sender.outcome(number)
    sender.send(message.message("settled"), settled=True)
    receiver.next()
    into, out = link_rows_after(router, address, 10)
    for row in (into, out):
        assert (row["type"], row["class"], row["phs"], row["peer"]) == ("endpoint", "mobile", "0", "")
        counts = [row[column] for column in ("deliv", "acc", "rej", "rel", "mod", "presett", "psdrop")]
        assert counts == ["10", "4", "2", "2", "1", "1", "0"]
        assert row["cap"] == str(CAPACITY)
        assert (row["delay"], row["stuck"], row["undel"], row["unsett"]) == ("0", "0", "0", "0")
        assert row["blkd"] == "-"
    assert (into["cred"], out["cred"]) == (str(CAPACITY), "10")
    assert into["conn id"] != out["conn id"]
    sender.send(message.message("waits"))
    receiver.next()
    links = [row for row in table(router.port, "-l", "-v", "--csv") if row["addr"] == address]
    for row in links:
        assert (row["unsett"], row["admin"], row["oper"]) == ("1", "enabled", "up")
    assert one(links, dir="out")["deliv"] == "11"
    assert one(links, dir="in")["name"] == sender.name


def test_link_without_credit_shows_blocked_time(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    connect().receiver(address, 0)

    def blocked() -> bool:
        row = one([row for row in table(router.port, "-l") if row["addr"] == address])
        assert row["cred"] == "0"
        return re.fullmatch(r"00:00:\d\d", row["blkd"]) is not None

    poll(blocked, "the link has been without credit for a second")


def test_address_display_counts_and_sorts(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    address = fresh("first")
    sender, receiver = pair(connect, address, credit=1500)
    for _ in range(1200):
        sender.wait_credit()
        sender.send(message.message("x"), settled=True)
        receiver.next()
    second = connect().receiver(address)
    row = one(table(router.port, "-a"), addr=address)
    assert row == {
        "class": "mobile", "addr": address, "phs": "0", "distrib": "closest", "pri": "7", "local": "2", "remote": "0",
        "in": "1,200", "out": "1,200", "thru": "0", "fallback": "0",
    }  # fmt: skip
    second.detach()
    wait_address_table(connect, fresh)
    row = one(table(router.port, "-a", "-v"), addr=address)
    assert (row["local"], row["in-proc"], row["to-proc"], row["from-proc"]) == ("1", "0", "0", "0")
    shown = [each["addr"] for each in table(router.port, "-a", "--csv")]
    assert shown == sorted(shown)
    assert len(table(router.port, "-a", "--limit", "1")) == 1


def test_connection_display_shows_authentication_and_tenant(router: RouterProcess, connect: Connect) -> None:
    connect(container_id="plain", sasl=False)
    connect(container_id="anonymous")
    connect("tenants", container_id="tenant", hostname="acme.com")
    rows = table(router.port, "-c")
    shown = {name: one(rows, container=name) for name in ("plain", "anonymous", "tenant")}
    for row in shown.values():
        assert (row["role"], row["proto"], row["dir"], row["security"]) == ("normal", "amqp", "in", "no-security")
        assert re.fullmatch(r"127\.0\.0\.1:\d+", row["host"])
        assert re.fullmatch(r"000:00:0\d:\d\d", row["uptime"])
        assert row["last dlv"] == "-"
    assert [shown[name]["authentication"] for name in shown] == ["no-auth", "anonymous-user", "anonymous-user"]
    assert [shown[name]["tenant"] for name in shown] == ["", "", "acme.com"]
    identities = [int(shown[name]["id"]) for name in shown]
    assert identities == sorted(identities)


def test_connection_display_shows_last_delivery(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect(container_id=address).receiver(address, 10)
    pass_one(connect().sender(address), receiver)

    def shown() -> bool:
        row = one(table(router.port, "-c"), container=address)
        return re.fullmatch(r"000:00:00:\d\d", row["last dlv"]) is not None

    poll(shown, "the delivery shows")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n"], HEADING + "Router is Standalone - No Router List\n"),
        (["--nodes", "-v"], HEADING + "Router is Standalone - No Router List\n"),
        (["-e"], HEADING),
        (["--autolinks"], HEADING + "AutoLinks\nNo AutoLinks found\n"),
        (["--linkroutes"], HEADING + "Link Routes\nNo Link Routes found\n"),
        (["--vhosts"], "No Vhosts\n"),
        (["--vhostgroups"], "No Vhosts\n"),
        (["--vhoststats"], "No Vhost Stats\n"),
        (["-p"], HEADING + r"Policy Configuration\n(  .*\n){8}\nPolicy Status\n(  .*\n){8}"),
        (["-m"], HEADING + r"Memory Pools\n(  .*\n)+\nMemory Summary\n  VmSize +Pooled\n  =+\n  .* [KM]iB  .*\n"),
        (["--all-routers", "--edge"], HEADING),
        (["-r", "QDR", "-e"], HEADING),
    ],
)
def test_displays_without_rows_print_their_heading(router: RouterProcess, words: list[str], expected: str) -> None:
    done = run("stat", router.port, *words)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(expected, done.out), done.out


def test_log_display_prints_recent_lines(router: RouterProcess) -> None:
    done = run("stat", router.port, "--log", "--limit", "3")
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert re.match(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} [A-Z_]+ \([a-z]+\) .", line)


def test_display_of_all_entities_has_all_titles(router: RouterProcess) -> None:
    done = run("stat", router.port, "--all-entities")
    assert (done.code, done.err) == (0, "")
    titles = [line for line in done.out.splitlines() if line and not line.startswith(" ")][2:]
    assert titles == [
        "Router Links", "Router Addresses", "Connections", "AutoLinks", "No AutoLinks found", "Link Routes",
        "No Link Routes found", "Router Statistics", "Memory Pools", "Memory Summary", "Policy Configuration",
        "Policy Status", "No Vhosts", "No Vhost Stats",
    ]  # fmt: skip


def test_unknown_router_is_reported(router: RouterProcess) -> None:
    done = run("stat", router.port, "-r", "NOPE")
    assert (done.code, done.out) == (1, "UnknownRouter: router 'NOPE' is not in the network\n")


def test_refused_link_is_reported(router: RouterProcess) -> None:
    done = run("stat", router.port, "-b", f"127.0.0.1:{router.port}/unavailable/x")
    assert done.code == 1
    assert re.fullmatch(
        r"LinkDetached: sender .* closed due to: Condition\('amqp:not-found', 'Node not found'\)\n", done.out
    )
