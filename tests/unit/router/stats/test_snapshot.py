"""Reader of link counters: it reports each change once, for each link that used the slot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.router.ring.region import Region
from sluice.router.stats.snapshot import LINK_COUNTERS, LinkReader, SampleReader
from sluice.router.testing.interworker import claim_link, free_link, write_sample

WORKERS, LINKS = 3, 10


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(WORKERS, LINKS, 4, 4096)
    yield made
    made.close()


def deliveries(reader: LinkReader) -> list[tuple[int, int, bool, int]]:
    """Return (slot, generation, present, growth of `deliveries`) of each reported link."""
    return [(row[0], row[1], row[2], row[11][LINK_COUNTERS.index("deliveries")]) for row in reader.look()]


def test_reader_reports_only_growth(region: Region) -> None:
    reader = LinkReader(region, 1)
    assert reader.look() == []
    claim_link(region, 1, 0, 7, taken=(1, 0, 2), direction=2, deliveries=5, accepted=4)
    claim_link(region, 0, 0, 8, deliveries=99)  # counters of another worker
    (row,) = reader.look()
    assert (row[3], row[11][:2], row[12], sum(row[13])) == (False, [5, 4], [1, 0, 2], 0)
    assert reader.look() == []
    claim_link(region, 1, 0, 7, taken=(1, 0, 9), direction=2, deliveries=12, accepted=4)
    (row,) = reader.look()
    assert (row[11][:2], row[12]) == ([7, 0], [0, 0, 7])


def test_counters_of_32_bits_wrap(region: Region) -> None:
    reader = LinkReader(region, 0)
    claim_link(region, 0, 0, 7, taken=(0, 2**32 - 1, 0))
    reader.look()
    claim_link(region, 0, 0, 7, taken=(0, 4, 0), deliveries=1)
    (row,) = reader.look()
    assert row[12] == [0, 5, 0]


def test_last_counters_of_ended_link_are_reported(region: Region) -> None:
    reader = LinkReader(region, 0)
    claim_link(region, 0, 3, 7, deliveries=5)
    assert deliveries(reader) == [(3, 7, True, 5)]
    claim_link(region, 0, 3, 7, deliveries=8, ended=7)
    free_link(region, 0, 3)
    assert deliveries(reader) == [(3, 7, False, 3)]
    assert reader.look() == []
    claim_link(region, 0, 3, 9, deliveries=2)
    assert deliveries(reader) == [(3, 9, True, 2)]


def test_link_that_ended_between_reads_is_reported(region: Region) -> None:
    reader = LinkReader(region, 0)
    claim_link(region, 0, 0, 7, deliveries=6, ended=7)
    free_link(region, 0, 0)
    assert deliveries(reader) == [(0, 7, False, 6)]


def test_blocked_link_is_reported_without_changes(region: Region) -> None:
    reader = LinkReader(region, 0)
    claim_link(region, 0, 0, 7, direction=2, blocked_since=5)
    assert len(reader.look()) == len(reader.look()) == 1


def test_slots_of_lost_worker_start_anew(region: Region) -> None:
    reader = LinkReader(region, 0)
    claim_link(region, 0, 0, 7, deliveries=6)
    reader.look()
    region.reset_worker(0)
    assert reader.look() == []
    claim_link(region, 0, 0, 7, deliveries=2)  # a generation that is reused
    assert deliveries(reader) == [(0, 7, True, 2)]


def test_later_reader_continues_from_state(region: Region) -> None:
    first = LinkReader(region, 0)
    claim_link(region, 0, 0, 7, deliveries=6)
    first.look()
    claim_link(region, 0, 0, 7, deliveries=10)
    assert deliveries(LinkReader(region, 0, first.state)) == [(0, 7, True, 4)]
    with pytest.raises(ValueError, match="another region"):
        LinkReader(region, 0, b"x")


def test_region_mapped_for_reading_can_be_read(region: Region) -> None:
    import os

    claim_link(region, 2, 0, 7, deliveries=6)
    seen = Region.attach(os.open(f"/proc/self/fd/{region.fd}", os.O_RDONLY), writes=False)
    assert deliveries(LinkReader(seen, 2)) == [(0, 7, True, 6)]
    seen.close()


SAMPLES, NO_TIME = 16384, 0xFFFFFFFF


def test_samples_are_reported_once(region: Region) -> None:
    reader = SampleReader(region, 1)
    assert reader.look() == []
    write_sample(region, 1, at=5, octets=7, link=3, generation=9, latency=11, settle=13, kind=0x24, every=1024)
    write_sample(region, 0, at=6)  # sample of another worker
    assert reader.look() == [(5, 7, 3, 9, 11, 13, 0x24, 1024)]
    write_sample(region, 1, latency=NO_TIME, settle=NO_TIME)
    (row,) = reader.look()
    assert row[4:6] == (None, None)
    assert reader.look() == []
    assert SampleReader(region, 1, reader.seen).look() == []  # another process continues from this state


def test_latest_samples_survive_overflow(region: Region) -> None:
    reader = SampleReader(region, 0)
    write_sample(region, 0, at=1)
    assert len(reader.look()) == 1
    for number in range(SAMPLES + 10):
        write_sample(region, 0, at=number)
    # The reader returns one sample less than the buffer holds: the oldest may be overwritten during the read.
    assert [row[0] for row in reader.look()] == list(range(11, SAMPLES + 10))
