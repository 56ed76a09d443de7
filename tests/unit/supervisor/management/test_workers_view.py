"""Operation GET-WORKERS: state of each worker."""

from router.ring.layout import DROP_NAMES


def test_get_workers_describes_workers(router):
    one, two = router.ask("GET-WORKERS").body
    assert (one["worker"], two["worker"], one["generation"]) == (0, 1, 1)
    assert [ring["to"] for ring in one["rings"]] == [1]
    assert one["rings"][0]["sizeOctets"] == 4096
    assert set(one["dropped"]) == set(DROP_NAMES)
    assert (one["latencyP50Seconds"], sum(one["latencyHistogram"])) == (None, 0)
