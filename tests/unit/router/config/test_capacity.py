"""Workers and memory that a router uses if its configuration does not set them."""

import pytest

from sluice.router.cgroup import CgroupLimit, CgroupLimits
from sluice.router.config import build
from sluice.router.config.capacity import LEAST_MEGABYTES, MIB, MOST_MEGABYTES, Capacity
from sluice.router.config.load import load_text

CONTAINER = Capacity(64, CgroupLimits(CgroupLimit(1.5, "/cpu"), CgroupLimit(512 * MIB, "/memory")))


@pytest.mark.parametrize(
    ("cores", "affinity", "workers"), [(None, 8, 8), (0.5, 8, 1), (2.0, 64, 2), (2.5, 64, 3), (16.0, 4, 4)]
)
def test_workers_are_limited_by_cores_and_quota(cores, affinity, workers):
    limit = None if cores is None else CgroupLimit(cores, "x")
    assert Capacity(affinity, CgroupLimits(limit)).workers == workers


@pytest.mark.parametrize(
    ("octets", "workers", "megabytes"),
    [(None, 4, MOST_MEGABYTES), (512, 2, 80), (64 << 10, 4, MOST_MEGABYTES), (64, 1, LEAST_MEGABYTES), (1024, 1, 432)],
)
def test_memory_for_messages_is_share_of_limit(octets, workers, megabytes):
    limit = None if octets is None else CgroupLimit(octets * MIB, "x")
    assert Capacity(4, CgroupLimits(None, limit)).megabytes(workers) == megabytes


def test_router_in_container_uses_its_limits(monkeypatch):
    monkeypatch.setattr(build, "measure", lambda: CONTAINER)
    router = load_text("x.conf", "router {\n id: R\n}\n").router
    assert (router.workers, router.buffered_megabytes) == (2, 80)
    assert router.attributes["maxBufferedMegabytes"] == 80
    assert "maxBufferedMegabytes" not in router.given


def test_configured_numbers_are_kept_in_container(monkeypatch):
    monkeypatch.setattr(build, "measure", lambda: CONTAINER)
    router = load_text("x.conf", "router {\n id: R\n workerThreads: 4\n maxBufferedMegabytes: 2000\n}\n").router
    assert (router.workers, router.buffered_megabytes) == (4, 2000)


def test_description_names_limits_with_their_files():
    assert CONTAINER.describe() == "64 cores, 1.5 of them at a time (/cpu), 512 MiB of memory (/memory)"
    assert Capacity(2, CgroupLimits()).describe() == "2 cores"
