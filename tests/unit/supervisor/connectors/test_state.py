"""State of a connector: order and times of its attempts, and the status and message that it shows."""

import re

import pytest

from sluice.supervisor.connectors.failover import MAX_ANNOUNCED
from sluice.supervisor.connectors.state import (
    AFTER_END,
    AFTER_FAILURE,
    AFTER_WORKER,
    JITTER,
    LASTING_SECONDS,
    TO_ROUTERS,
    WITH_FAILOVER,
    ConnectorState,
    Status,
)

LIST = "failover-server-list"


@pytest.fixture
def state():
    return ConnectorState("one", "amqp", uniform=lambda low, high: 1.0)


def servers(*places):
    return {LIST: [{"network-host": host, "port": port} for host, port in (place.split(":") for place in places)]}


def connect(state, properties=None, text="opened"):
    entry = state.begin()
    state.opened(text, properties)
    return entry.place


def test_new_connector_is_initializing(state):
    assert (state.status, state.message, state.ring.urls) == (Status.INITIALIZING, "", "amqp://one:amqp")


# brokers-and-edge.md C-5, C-6.
def test_attempt_shows_success_at_start_and_message_at_end(state):
    assert state.begin().place == "one:amqp"
    assert (state.status, state.message) == (Status.SUCCESS, "")
    state.opened("it is open", None)
    assert (state.status, state.message) == (Status.SUCCESS, "it is open")


def test_message_names_handshake_and_earlier_failure(state):
    state.begin()
    state.connected(3)
    shown = r"\[C3\] Connection to one:amqp: handshaking since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"
    assert re.fullmatch(shown, state.message)
    assert state.status is Status.SUCCESS
    state.failed("why")
    assert state.message == "why"
    state.begin()
    assert state.message == "why"
    state.connected(3)
    assert re.fullmatch(shown + "; before: why", state.message)
    state.worker_died()
    assert state.message == "why"
    state.connected(3)
    state.opened("it is open", None)
    assert state.message == "it is open"
    state.ended()
    state.connected(3)
    assert re.fullmatch(shown, state.message), "an end is no failure"


def test_failed_attempt_waits_longer_than_ended_connection(state):
    state.begin()
    assert state.failed("why") == AFTER_FAILURE
    assert (state.status, state.message) == (Status.CONNECTING, "why")
    connect(state)
    assert state.failed("lost") == AFTER_END
    assert state.message == "lost"


def test_close_by_peer_is_no_failure(state):
    connect(state, text="it was open")
    assert state.ended() == AFTER_END
    assert (state.status, state.message) == (Status.CONNECTING, "it was open")


def test_failed_attempt_waits_long_after_open_connection(state):
    connect(state)
    state.ended()
    state.begin()
    assert state.failed("refused") == AFTER_FAILURE


def test_lost_worker_leads_to_immediate_attempt(state):
    connect(state, servers("two:2"))
    assert state.worker_died() == AFTER_WORKER
    assert state.status is Status.CONNECTING
    assert state.begin().place == "one:amqp"


def test_retry_wait_varies_within_tolerance():
    low = ConnectorState("one", "1", uniform=lambda low, high: low)
    high = ConnectorState("one", "1", uniform=lambda low, high: high)
    assert low.failed("") == pytest.approx(AFTER_FAILURE * (1 - JITTER))
    assert high.failed("") == pytest.approx(AFTER_FAILURE * (1 + JITTER))
    assert JITTER * AFTER_FAILURE <= 1, "brokers-and-edge.md C-8 allows a second"


def test_deleted_connector_stays_closing(state):
    connect(state)
    state.delete()
    assert state.closing
    state.failed("late")
    assert state.status is Status.CLOSING


# brokers-and-edge.md C-13.
def test_failover_list_follows_configured_address(state):
    connect(state, servers("two:2", "one:amqp", "three:3", "two:2"))
    assert state.ring.urls == "amqp://one:amqp, amqp://two:2, amqp://three:3"
    assert state.failed("") == WITH_FAILOVER
    assert state.ended() == WITH_FAILOVER


# brokers-and-edge.md C-12.
def test_address_is_left_after_two_consecutive_errors(state):
    connect(state, servers("two:2"))
    places = []
    for _ in range(6):
        state.failed("")
        places.append(state.begin().place)
    assert places == ["one:amqp", "two:2", "two:2", "one:amqp", "one:amqp", "two:2"]


def test_open_connection_resets_error_count(state):
    connect(state, servers("two:2"))
    state.failed("")
    assert connect(state) == "one:amqp"
    state.failed("")
    assert connect(state) == "one:amqp"
    for _ in range(5):
        state.ended()
        assert connect(state) == "one:amqp"


# brokers-and-edge.md C-10.
def test_new_list_keeps_only_listed_current_and_configured(state):
    connect(state, servers("two:2", "three:3", "four:4"))
    state.failed("")
    state.failed("")
    assert connect(state, servers("four:4", "five:5")) == "two:2"
    assert state.ring.urls == "amqp://two:2, amqp://four:4, amqp://five:5, amqp://one:amqp"


def test_missing_list_keeps_and_empty_list_drops_addresses(state):
    connect(state, servers("two:2", "three:3"))
    connect(state, {"product": "broker"})
    connect(state, None)
    connect(state, {LIST: "text"})
    assert len(state.ring) == 3
    connect(state, {LIST: []})
    assert state.ring.urls == "amqp://one:amqp"


# brokers-and-edge.md C-11.
def test_incomplete_and_invalid_list_entries_are_handled(state):
    items = [
        {"network-host": "two"},
        {"network-host": "three", "port": 3, "scheme": "amqps", "hostname": "ignored"},
        {"port": 4},
        {"network-host": ""},
        {"network-host": 5},
        "six:6",
        {"network-host": "seven", "port": [7], "scheme": 8},
        {"network-host": "eight\x00", "port": "1"},
        {"network-host": "user@nine", "port": "1"},
        {"network-host": "ten\r\nHost: eleven", "port": "1"},
        {"network-host": "twelve, amqp://thirteen"},
        {"network-host": "fe80::1%eth0", "port": "amqp\x00", "scheme": "amqp\n"},
    ]
    connect(state, {LIST: items})
    assert (
        state.ring.urls
        == "amqp://one:amqp, amqp://two:5672, amqps://three:3, amqp://seven:5672, amqp://fe80::1%eth0:5672"
    )


def test_dropped_list_leaves_the_configured_address(state):
    connect(state, servers("two:2"))
    state.failed("")
    state.failed("")
    state.ring.drop_announced()
    assert state.begin().place == "one:amqp"
    assert state.ring.urls == "amqp://one:amqp"


def test_failover_list_is_bounded(state):
    connect(state, servers(*(f"host{number}:1" for number in range(10 * MAX_ANNOUNCED))))
    assert len(state.ring) == 1 + MAX_ANNOUNCED


def test_absent_router_is_retried_soon_then_rarely():
    state = ConnectorState("one", "1", to_router=True, uniform=lambda low, high: 1.0)
    for seconds in (*TO_ROUTERS, TO_ROUTERS[-1]):
        state.begin()
        assert state.failed("refused") == seconds
    connect(state)
    assert state.failed("lost") == AFTER_END
    state.begin()
    assert state.failed("refused") == TO_ROUTERS[0]


@pytest.mark.parametrize("end", [ConnectorState.ended, lambda state: state.failed("lost")])
def test_router_connected_for_long_is_retried_soon(end):
    now = [100.0]
    state = ConnectorState("one", "1", to_router=True, uniform=lambda low, high: 1.0, clock=lambda: now[0])
    connect(state)
    now[0] += LASTING_SECONDS - 0.1
    assert end(state) == AFTER_END, "it may be unwanted"
    connect(state)
    now[0] += LASTING_SECONDS
    assert end(state) == TO_ROUTERS[0]
    state.begin()
    assert [state.failed("refused") for _ in range(3)] == list(TO_ROUTERS[:3])


def test_broker_connected_for_long_is_retried_later(state):
    connect(state)
    state._opened_at -= LASTING_SECONDS
    assert state.ended() == AFTER_END
