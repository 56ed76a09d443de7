"""Slots of links in shared memory: their number, generations and reuse."""

import pytest

from sluice.router.amqp.errors import RemoteError
from sluice.router.links.producer_link import ProducerLink
from sluice.router.ring.region import Region
from sluice.workers.slots import Slot, SlotPool

SLOTS = 4
RING_OCTETS = 1 << 18
GENERATION = 7  # of the worker
GENERATION_BITS = 20
KEPT = 1_000  # ns


class PoolOfProducers:
    """Pool of a worker with a few slots."""

    def __init__(self, kept: int) -> None:
        self.region = Region.create(1, SLOTS, 1, RING_OCTETS)
        self.region.keep_links(kept)
        self.pool = SlotPool(self.region, 0, GENERATION)
        self.links: list[ProducerLink] = []

    def claim(self, now: int = 0) -> Slot:
        self.links.append(ProducerLink(capacity=250))
        return self.pool.claim(self.links[-1], True, False, now)

    def claim_all(self) -> list[Slot]:
        return [self.claim() for _ in range(SLOTS)]


@pytest.fixture
def slots() -> PoolOfProducers:
    return PoolOfProducers(0)


@pytest.fixture
def kept_slots() -> PoolOfProducers:
    """Pool that keeps the slots of ended links for a while."""
    return PoolOfProducers(KEPT)


def test_link_beyond_last_slot_is_refused(slots: PoolOfProducers) -> None:
    claimed = slots.claim_all()
    assert sorted(slot.index for slot in claimed) == list(range(SLOTS))
    assert slots.pool.full
    with pytest.raises(RemoteError, match="no room for another link"):
        slots.claim()
    slots.pool.release(claimed[2], 0)
    assert (slots.pool.full, slots.pool.used) == (False, SLOTS - 1)
    assert slots.claim().index == claimed[2].index


def test_generation_differs_for_each_link_and_worker(slots: PoolOfProducers) -> None:
    """Records of other workers name a link by slot and generation, and may arrive after the slot was reused."""
    generations = set()
    for _ in range(100):
        slot = slots.claim()
        generations.add(slot.generation)
        slots.pool.release(slot, 0)
    assert len(generations) == 100
    assert {generation >> GENERATION_BITS for generation in generations} == {GENERATION}


def test_released_slot_has_no_link(slots: PoolOfProducers) -> None:
    slot = slots.claim()
    assert slots.region.link_counters(0, slot.index) is not None
    slots.pool.release(slot, 0)
    assert slots.region.link_counters(0, slot.index) is None


def test_kept_slot_is_not_reused_while_others_are_free(kept_slots: PoolOfProducers) -> None:
    slot = kept_slots.claim()
    kept_slots.pool.release(slot, now_ns=100)
    assert kept_slots.claim(now=100 + KEPT).index != slot.index
    assert kept_slots.claim(now=100 + KEPT + 1).index == slot.index


def test_oldest_kept_slot_is_reused_when_no_other_is_free(kept_slots: PoolOfProducers) -> None:
    claimed = kept_slots.claim_all()
    for now, slot in enumerate((claimed[3], claimed[0], claimed[2])):
        kept_slots.pool.release(slot, now)
    assert [kept_slots.claim(now=5).index for _ in range(3)] == [claimed[at].index for at in (3, 0, 2)]


def test_look_covers_all_slots_in_steps(slots: PoolOfProducers) -> None:
    slots.claim_all()
    assert slots.pool.look(0, 3, 0, 0)[0] == 3
    assert slots.pool.look(3, 3, 0, 0)[0] == 0
    assert slots.pool.check_stalls(0, 3, 0) == 3
    assert slots.pool.check_stalls(3, 3, 0) == 0
