"""Slab allocator of deliveries: the structs that it hands out, and their order in memory."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.testing import faults
from sluice.router.testing.slab import TestPool as Pool

SIZE, SPAN, HEAD, STRUCTS = 40, 4096, 64, 64  # of TestPool
KEPT = 131_072  # free structs that a pool keeps in slabs without structs in use


def slab_of(address: int) -> int:
    return address // SPAN


@given(st.lists(st.integers(0, 400), max_size=60), st.randoms(use_true_random=False))
def test_struct_in_use_is_handed_out_once(steps: list[int], chance: random.Random) -> None:
    pool = Pool()
    used: list[int] = []
    for step in steps:
        if step % 3:
            for _ in range(step):
                address = pool.take()
                assert address not in used
                assert (address % SPAN - HEAD) % SIZE == 0
                assert 0 <= (address % SPAN - HEAD) // SIZE < STRUCTS
                used.append(address)
        else:
            chance.shuffle(used)
            for address in used[step:]:
                pool.give(address)
            del used[step:]
            pool.drop(step)
        alive, free, slabs = pool.counts
        assert alive == len(used)
        assert alive + free == slabs * STRUCTS
        assert slabs >= len({slab_of(address) for address in used})


def test_structs_taken_after_any_order_of_returns_are_neighbours() -> None:
    pool = Pool()
    chance = random.Random(1)
    for _ in range(3):
        taken = [pool.take() for _ in range(50 * STRUCTS)]
        # But for the struct that was to be taken next before the others were returned.
        assert sum(after - before == SIZE for before, after in pairwise(taken)) >= 50 * (STRUCTS - 1) - 2
        chance.shuffle(taken)
        for address in taken:
            pool.give(address)
    assert pool.counts == (0, 50 * STRUCTS, 50)


def test_traffic_beside_structs_that_stay_has_neighbours() -> None:
    pool = Pool()
    chance = random.Random(1)
    waiting = [pool.take() for _ in range(100 * STRUCTS)]
    chance.shuffle(waiting)
    for address in waiting[100:]:  # each slab has some free structs, in random order
        pool.give(address)
    taken: list[int] = []
    for _ in range(400):
        taken += [pool.take() for _ in range(STRUCTS)]
        for address in taken[: -20 * STRUCTS]:
            pool.give(address)
        del taken[: -20 * STRUCTS]
    assert sum(after - before == SIZE for before, after in pairwise(taken)) > 0.9 * len(taken)


@pytest.mark.parametrize(("at", "n"), [(0, 64), (0, 1), (63, 1), (5, 40), (1, 63)])
def test_neighbours_are_returned_together(at: int, n: int) -> None:
    pool = Pool()
    taken = [pool.take() for _ in range(3 * STRUCTS)]
    pool.give_neighbours(taken[STRUCTS + at], n)
    assert pool.counts == (3 * STRUCTS - n, n, 3)
    assert [pool.take() for _ in range(n)] == taken[STRUCTS + at : STRUCTS + at + n]
    pool.give_neighbours(taken[STRUCTS], STRUCTS)
    pool.give_neighbours(taken[0], STRUCTS - 1)
    assert pool.drop(10)
    assert pool.counts == (STRUCTS + 1, STRUCTS - 1, 2)


def test_slab_without_structs_in_use_is_preferred() -> None:
    pool = Pool()
    taken = [pool.take() for _ in range(4 * STRUCTS)]
    whole = {slab_of(address) for address in taken[STRUCTS : 2 * STRUCTS]}
    for address in taken[1:]:
        if address not in taken[2 * STRUCTS :: STRUCTS]:
            pool.give(address)
    while slab_of(first := pool.take()) == slab_of(taken[0]):  # the slab in which a struct was free first
        pass
    assert {slab_of(first), *(slab_of(pool.take()) for _ in range(STRUCTS - 1))} == whole


def test_drop_frees_slabs_without_structs_in_use_and_no_other() -> None:
    pool = Pool()
    taken = [pool.take() for _ in range(10 * STRUCTS)]
    kept = taken[5 * STRUCTS]
    for address in taken:
        if address != kept:
            pool.give(address)
    assert not pool.drop(4)
    assert pool.counts[2] == 6
    assert pool.drop(STRUCTS)
    assert pool.counts == (1, STRUCTS - 1, 1)
    assert slab_of(pool.take()) == slab_of(kept)
    pool.give(kept)


def test_free_slabs_beyond_the_bound_are_freed_at_once() -> None:
    pool = Pool()
    taken = [pool.take() for _ in range(2 * KEPT)]
    for address in taken:
        pool.give(address)
    assert KEPT <= pool.counts[1] <= KEPT + STRUCTS


def test_lack_of_memory_changes_nothing() -> None:
    pool = Pool()
    first = pool.take()
    for _ in range(STRUCTS - 1):
        pool.take()
    faults.install()
    try:
        faults.fail_allocations(1)
        with pytest.raises(MemoryError):
            pool.take()
    finally:
        faults.fail_allocations(0)
    assert pool.counts == (STRUCTS, 0, 1)
    pool.give(first)
    assert pool.take() == first
