"""Map from delivery-ids to deliveries, compared with a dict."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.router.testing.engine import TestMap as IdMap

# Few distinct keys, close together and far apart, so that clusters form, wrap and are dissolved again.
KEYS = st.one_of(
    st.integers(0, 40),
    st.integers(0xFFFFFFF0, 0xFFFFFFFF),
    st.builds(lambda high, low: high << 32 | low, st.integers(1, 5), st.integers(0, 20)),
    st.integers(0, 8).map(lambda n: n * 64),
)


@given(st.lists(st.tuples(st.sampled_from(["put", "get", "take"]), KEYS), max_size=300))
def test_id_map_equals_dict(steps):
    ours = IdMap()
    model: dict[int, int] = {}
    for number, (what, key) in enumerate(steps, 1):
        if what == "put":
            assert ours.put(key, number) == (key not in model)
            model.setdefault(key, number)
        elif what == "get":
            assert ours.get(key) == model.get(key, 0)
        elif what == "take":
            assert ours.take(key) == model.pop(key, 0)
    for key, value in model.items():
        assert ours.get(key) == value


@given(
    st.lists(KEYS, max_size=40),
    st.sampled_from([0, 5, 0xFFFFFFF8, 0xFFFFFFFF, 2**32, 2**32 + 3, 3 * 2**32 - 5, 2**64 - 8]),
    st.integers(1, 64),
)
def test_range_is_taken_like_its_keys(others, first, n):
    taken = [*range(first, min(first + n, 2**64))]
    ours, kept = IdMap(), {key: number for number, key in enumerate(others, 1) if key not in taken}
    for number, key in enumerate([*kept, *taken], 1):
        ours.put(key, kept.get(key, number))
    ours.take_known(first, len(taken))
    assert [ours.get(key) for key in taken] == [0] * len(taken)
    for key, value in kept.items():
        assert ours.get(key) == value


def test_sliding_window_of_ids_is_kept():
    ours = IdMap()
    for first in range(5000):
        ours.put(first, first + 1)
        if first >= 250:
            assert ours.take(first - 250) == first - 249
    assert [ours.get(key) for key in (4749, 4750, 4999)] == [0, 4751, 5000]


def test_slots_shrink_with_their_use():
    """A range of absent ids is looked up slot by slot, so the number of slots must shrink after a peak."""
    ours = IdMap()
    for key in range(100_000):
        ours.put(key, key + 1)
    assert ours.slots() >= 200_000
    for key in range(99_000):
        assert ours.take(key) == key + 1
    assert ours.slots() <= 16 * 1000
    assert [ours.get(key) for key in (98_999, 99_000, 99_999)] == [0, 99_001, 100_000]
    for key in range(99_000, 100_000):
        assert ours.take(key) == key + 1
    assert ours.slots() == 4096
