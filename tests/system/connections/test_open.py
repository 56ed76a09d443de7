"""The router's open (routing-semantics.md 1.3)."""

import re

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.peer.types import Array, Int, Map, Symbol
from tests.system.edges import edge, with_edges
from tests.system.fixtures import Connect, Fresh, Start
from tests.system.networks import interior
from tests.system.router import Section, listener, poll

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    listener("usual", idleTimeoutSeconds=None),
    listener("small", maxFrameSize=100, maxSessions=10, idleTimeoutSeconds=0),
    listener("frames", maxFrameSize=4096, idleTimeoutSeconds=7),
    listener(
        "rich",
        failoverUrls="amqp://other:1234, second.host, amqps://h3:99",
        openProperties={"s": "text", "n": 7, "b": True, "z": None, "l": [1, "two"], "m": {"inner": 1.5}},
    ),
]


def test_open_has_default_limits_and_capabilities(connect: Connect) -> None:
    answer = connect(listener="usual").remote_open
    assert answer is not None
    assert answer.container_id == "QDR"
    assert answer.hostname is None
    assert answer.max_frame_size == 16384
    assert answer.channel_max == 32767
    assert answer.idle_time_out == 8000
    assert answer.outgoing_locales is None
    assert answer.incoming_locales is None
    for capabilities in (answer.offered_capabilities, answer.desired_capabilities):
        assert isinstance(capabilities, Array)
        assert capabilities == [Symbol("ANONYMOUS-RELAY"), Symbol("qd.streaming-links")]


# brokers-and-edge.md W-2.
def test_open_has_product_version_and_connection_id(connect: Connect) -> None:
    answer = connect().remote_open
    assert answer is not None
    pairs = answer.properties.pairs
    assert [str(key) for key, _value in pairs][:3] == ["product", "version", "qd.conn-id"]
    assert all(isinstance(key, Symbol) for key, _value in pairs)
    assert answer.properties["product"] == "sluice-router"
    assert re.match(r"\d+\.\d+", answer.properties["version"])
    assert isinstance(answer.properties["qd.conn-id"], Int)
    assert set(answer.properties) == {"product", "version", "qd.conn-id"}


def test_connection_id_in_open_names_the_management_row(connect: Connect, management: Management) -> None:
    peers = [connect(container_id=f"numbered-{n}") for n in range(3)]
    for n, peer in enumerate(peers):
        assert peer.remote_open is not None
        row = management.one("connection", container=f"numbered-{n}")
        assert row["identity"] == str(int(peer.remote_open.properties["qd.conn-id"]))


def test_open_with_small_limits_is_raised_to_the_minimum(connect: Connect) -> None:
    answer = connect("small").remote_open
    assert answer is not None
    assert (answer.max_frame_size, answer.channel_max, answer.idle_time_out) == (512, 9, None)


def test_open_has_configured_frame_size_and_half_idle_timeout(connect: Connect) -> None:
    answer = connect("frames").remote_open
    assert answer is not None
    assert (answer.max_frame_size, answer.idle_time_out) == (4096, 3500)


# brokers-and-edge.md L-9.
def test_open_has_failover_list_and_configured_properties(connect: Connect) -> None:
    answer = connect("rich").remote_open
    assert answer is not None
    found = answer.properties
    assert [dict(one) for one in found["failover-server-list"]] == [
        {"network-host": "other", "port": "1234", "scheme": "amqp"},
        {"network-host": "second.host", "port": "5672"},
        {"network-host": "h3", "port": "99", "scheme": "amqps"},
    ]
    first = found["failover-server-list"][0].pairs[0]
    assert (type(first[0]), type(first[1])) == (Symbol, str)
    keys = [str(key) for key, _value in found.pairs]
    assert keys == ["product", "version", "qd.conn-id", "failover-server-list", "s", "n", "b", "z", "l", "m"]
    assert all(isinstance(key, Symbol) for key, _value in found.pairs)
    assert (found["s"], found["n"], found["b"], found["z"]) == ("text", 7, True, None)
    assert found["l"] == [1, "two"]
    assert dict(found["m"]) == {"inner": 1.5}


def test_client_properties_are_recorded(connect: Connect, management: Management) -> None:
    connect(container_id="recorded", properties={"colour": "blue", "size": Int(3)})
    row = management.one("connection", container="recorded")
    assert (row["properties"]["colour"], row["properties"]["size"]) == ("blue", 3)
    assert (row["role"], row["dir"], row["sasl"], row["user"]) == ("normal", "in", "ANONYMOUS", "anonymous")


def test_container_id_used_twice_is_accepted(connect: Connect, management: Management) -> None:
    twins = [connect(container_id="twin") for _ in range(2)]
    assert len([row for row in management.query("connection") if row["container"] == "twin"]) == 2
    for twin in twins:
        twin.barrier()


def test_string_keys_in_properties_are_accepted(connect: Connect, management: Management) -> None:
    connect(container_id="stringy", properties=Map([("plain", "value")]))
    assert management.one("connection", container="stringy")["properties"]["plain"] == "value"


def test_client_of_streaming_links_is_an_ordinary_client(connect: Connect, fresh: Fresh) -> None:
    """Outside router roles qd.streaming-links has no effect: such clients get streamed messages, too
    (routing-semantics.md C-12)."""
    address = fresh()
    receiver = connect(offered_capabilities=["qd.streaming-links"]).receiver(address, 1)
    sender = connect().sender(address)
    sender.send(message.data(bytes(200000)))
    assert message.body(receiver.next().payload) == bytes(200000)


def test_second_open_closes_the_connection(connect: Connect) -> None:
    peer = connect()
    peer.frame("open", container_id="again")
    error = peer.expect_close()
    assert error is not None
    assert error[0].startswith("amqp:")


def test_version_of_annotations_is_logged_at_both_ends(start: Start, workers: int) -> None:
    """Both ends of a connection between interior routers, or to an edge router, log it (brokers-and-edge.md C-32)."""
    debug: Section = "log", {"module": "ROUTER", "enable": "debug+"}
    a = start([*with_edges("A"), debug], workers)
    line = r"ROUTER \(debug\) Remote router annotations version: 1$"
    e = start([*edge("E", a), debug], workers)
    for router in (e, a):
        router.wait_log(line)
    b = start([*interior("B", None, (a.ports["net"],)), debug], workers)
    b.wait_log(line)
    poll(lambda: len(re.findall(line, a.log, re.MULTILINE)) == 2, "A has logged both")
