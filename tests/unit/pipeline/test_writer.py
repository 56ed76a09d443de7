"""Segment numbers and staged octets of the writer, including failed writes."""

import time

import pytest

from sluice.pipeline.commands.bench import LOG, deliveries
from sluice.pipeline.segments import Group, Landing
from sluice.pipeline.stores import LocalStore
from sluice.pipeline.writer import SegmentWriter
from tests.unit.pipeline.test_segments import publish_segments


@pytest.fixture
def landing(tmp_path):
    return Landing.create(str(tmp_path))


def numbers(landing: Landing) -> list[int]:
    return [segment.number for segment in landing.listing(LOG.key).segments]


def test_clock_going_back_keeps_segment_order(landing):
    ahead = time.time_ns() // 10**6 + 10**8
    publish_segments(landing, 0, key=LOG.key, landed=ahead)
    writer = SegmentWriter(landing, LOG, "l")
    segment = writer.write(deliveries(3, 4))
    assert (segment.number, segment.landed) == (1, ahead)


@pytest.mark.parametrize("published", [False, True])
def test_number_of_possibly_published_segment_is_not_reused(landing, monkeypatch, published):
    writer = SegmentWriter(landing, LOG, "l")
    writer.write(deliveries(3, 4))
    publish = LocalStore.publish

    def failing(self, path, octets):
        if published:
            publish(self, path, octets)  # synchronising the folder fails afterwards
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "publish", failing)
        with pytest.raises(OSError, match="no"):
            writer.write(deliveries(3, 4))
    writer.write(deliveries(3, 4))
    assert numbers(landing) == list(range(3 if published else 2))


def test_staged_octets_are_unread_by_some_group(landing):
    writer = SegmentWriter(landing, LOG, "l")
    made = [writer.write(deliveries(3, 4)) for _ in range(3)]
    assert writer.staged() == sum(segment.octets for segment in made)
    assert writer.oldest() == made[0].landed
    landing.commit(Group("a", {LOG.key: 3}))
    landing.commit(Group("b", {LOG.key: 2}))
    assert writer.staged() == made[2].octets
    landing.commit(Group("b", {LOG.key: 3}))
    assert (writer.staged(), writer.oldest()) == (0, None)
    assert SegmentWriter(landing, LOG, "l").number == 3
