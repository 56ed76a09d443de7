"""Choice of the worker by placement."""

import pytest

from sluice.router.config.load import load_text
from sluice.supervisor.listeners.placement import Placements

TEXT = """
router {
  workerThreads: 4
}
listener {
  name: in
}
placement {
  name: any
  listener: in
  worker: 0
}
placement {
  name: net
  host: 10.1.0.0/16
  worker: 1
}
placement {
  name: host
  host: 10.1.2.3
  worker: 2
}
placement {
  name: six
  host: fd00::/8
  listener: in
  worker: 3
}
"""


@pytest.mark.parametrize(
    ("listener", "host", "worker"),
    [
        ("in", "127.0.0.1", 0),
        ("out", "127.0.0.1", None),
        ("out", "10.1.9.9", 1),
        ("in", "10.1.9.9", 1),
        ("in", "10.1.2.3", 2),
        ("in", "::ffff:10.1.2.3", 2),
        ("in", "fd00::1%eth0", 3),
        ("out", "fd00::1", None),
    ],
)
def test_best_placement_names_worker(listener, host, worker):
    placements = Placements()
    placements.start(load_text("x.conf", TEXT))
    assert placements.worker(listener, host) == worker


def test_worker_without_placements_is_none():
    placements = Placements()
    placements.start(load_text("x.conf", "router {\n}\n"))
    assert placements.worker("in", "127.0.0.1") is None
