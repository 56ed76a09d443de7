"""Heartbeats between an edge router and the interior router of its uplink (inter-router.md 14.6)."""

from sluice.workers.links.heartbeats import MISSED_MS, PERIOD_MS, SILENT_MS
from tests.component.engine.host import MS

LONG_MS = 10 * SILENT_MS


def pass_time(network, milliseconds):
    """Let time pass for both routers, in steps that are shorter than the period of heartbeats."""
    for _ in range(milliseconds // (PERIOD_MS // 2)):
        for router in network.routers.values():
            router.pass_time(PERIOD_MS // 2)
        network.settle()


def missed(network):
    """Return the number of heartbeats of E that A has missed."""
    return sum(each.missed for each in network["A"].core.edges.rows().values())


def test_uplink_with_heartbeats_stays_open(network):
    pass_time(network, LONG_MS)
    assert (len(network.joints), missed(network)) == (1, 0)


def test_late_heartbeat_is_reported_and_uplink_stays_open(network):
    pass_time(network, LONG_MS)
    (uplink,) = network.joints
    uplink.held = True
    pass_time(network, MISSED_MS + PERIOD_MS)
    assert missed(network) > 0
    uplink.held = False
    pass_time(network, LONG_MS)
    assert len(network.joints) == 1


def test_silent_uplink_is_dropped(network):
    pass_time(network, LONG_MS)
    (uplink,) = network.joints
    end = uplink.ends[1]
    uplink.held = True
    pass_time(network, SILENT_MS)
    assert not end.gone
    pass_time(network, 2 * PERIOD_MS)
    assert end.gone
    uplink.held = False
    network.settle()


def test_time_without_running_does_not_count_as_silence(network):
    """A worker that did not run has not read the heartbeats that have arrived."""
    pass_time(network, LONG_MS)
    (uplink,) = network.joints
    network["A"].workers[0].poller.time_ns += LONG_MS * MS
    network["A"].pass_time(PERIOD_MS)
    network.settle()
    assert not uplink.ends[1].gone
    pass_time(network, LONG_MS)
    assert (len(network.joints), missed(network)) == (1, 0)
