"""Queries with many rows: in pages, in one message, during changes, and with traffic (management.md 5.3, 5.6)."""

import threading
import time

from tests.peer import message
from tests.peer.management import PREFIX, Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh, pair, pass_one
from tests.system.router import RouterProcess, poll

ROWS = 1300
PAGE = 500  # rows per page of the tools of Dispatch 1.19


def attach_receivers(connect: Connect, count: int, address: str) -> list[AmqpPeer]:
    """Attach `count` receivers over six connections and return the peers."""
    peers = [connect() for _ in range(6)]
    for number in range(count):
        peers[number % 6].receiver(f"{address}/{number}", name=f"many-{number}", wait=False)
    for peer in peers:
        peer.barrier()
    return peers


def query_in_pages(management: Management, kind: str, *names: str) -> list[list[object]]:
    """Return all rows of a type, queried in pages as the tools of Dispatch 1.19 do."""
    rows: list[list[object]] = []
    while True:
        found = management.call(
            "QUERY", {"attributeNames": list(names)}, entityType=PREFIX + kind, offset=len(rows), count=PAGE
        )["results"]
        rows += found
        if len(found) < PAGE:
            return rows


def test_query_in_pages_returns_each_row_once(connect: Connect, management: Management, fresh: Fresh) -> None:
    peers = attach_receivers(connect, ROWS, fresh())
    poll(lambda: management.one("router")["linkCount"] == ROWS + 2, "all links are attached")
    paged = query_in_pages(management, "router.link", "identity", "name")
    assert len(paged) == ROWS + 2
    identities = [int(str(row[0])) for row in paged]
    assert identities == sorted(set(identities)), "in order of attach, none twice"
    assert {row[1] for row in paged} >= {f"many-{number}" for number in range(ROWS)}
    whole = management.query("router.link")
    assert [row["identity"] for row in whole] == [row[0] for row in paged], "one message holds them all"
    addresses = query_in_pages(management, "router.address", "key")
    assert len(addresses) >= ROWS
    assert len({str(row[0]) for row in addresses}) == len(addresses)
    for peer in peers:
        peer.close()
    poll(lambda: management.one("router")["linkCount"] == 2, "all links are detached")
    assert len(management.query("router.link", "identity")) == 2


def test_entity_query_in_pages_returns_each_row_once(management: Management) -> None:
    names = [row["identity"] for row in management.query("entity", "identity")]
    found: list[str] = []
    for offset in range(0, len(names), 10):
        body = management.call("QUERY", {"attributeNames": ["identity"]}, entityType="entity", offset=offset, count=10)
        found += [row[0] for row in body["results"]]
    assert found == names


def test_traffic_during_long_queries_is_not_delayed(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    """While one client keeps reading all links, other clients send, attach and detach."""
    attach_receivers(connect, ROWS, fresh())
    poll(lambda: management.one("router")["linkCount"] >= ROWS, "all links are attached")
    stop = threading.Event()
    reader = Management(connect())
    counts: list[int] = []
    faults: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                counts.append(len(reader.query("router.link")))
        # Any exception is reported by the test's thread.
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        sender, receiver = pair(connect, fresh())
        attached: list[float] = []
        while len(counts) < 5 and not faults:
            pass_one(sender, receiver)
            receiver.flow(10)
            began = time.monotonic()
            link = connect_receiver(connect, fresh())
            attached.append(time.monotonic() - began)
            link.close()
    finally:
        stop.set()
        thread.join(30)
    assert not faults
    assert min(counts) >= ROWS
    assert sorted(attached)[len(attached) // 2] < 0.5, "decisions about links do not wait for long answers"


def connect_receiver(connect: Connect, address: str) -> AmqpPeer:
    """Return a new connection with one receiver."""
    peer = connect()
    peer.receiver(address)
    return peer


def test_counters_read_during_traffic_never_fall(connect: Connect, management: Management, fresh: Fresh) -> None:
    """Counters read during traffic never fall, and at the end they are exact."""
    address = fresh()
    sender, receiver = pair(connect, address, credit=1000)
    last = -1
    for round_ in range(20):
        for number in range(10):
            sender.wait_credit()
            sender.send(message.message(number), settled=True)
        count = management.one("router.link", owningAddr=f"M0{address}", linkDir="in")["deliveryCount"]
        assert last <= count <= 10 * (round_ + 1)
        last = count
    receiver.receive(200)
    assert management.one("router.link", owningAddr=f"M0{address}", linkDir="out")["deliveryCount"] == 200
