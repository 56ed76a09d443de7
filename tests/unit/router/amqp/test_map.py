"""The map from delivery ids to deliveries, against a dict."""

from hypothesis import given
from hypothesis import strategies as st
from router.amqp.delivery import TestMap as IdMap

# Few distinct keys, near each other and far apart, so that clusters form, wrap and are taken apart again.
KEYS = st.one_of(
    st.integers(0, 40),
    st.integers(0xFFFFFFF0, 0xFFFFFFFF),
    st.builds(lambda high, low: high << 32 | low, st.integers(1, 5), st.integers(0, 20)),
    st.integers(0, 8).map(lambda n: n * 64),
)


@given(st.lists(st.tuples(st.sampled_from(["put", "get", "take"]), KEYS), max_size=300))
def test_like_a_dict(steps):
    ours, model = IdMap(), {}
    for number, (what, key) in enumerate(steps, 1):
        if what == "put" and key not in model:
            ours.put(key, number)
            model[key] = number
        elif what == "get":
            assert ours.get(key) == model.get(key, 0)
        elif what == "take":
            assert ours.take(key) == model.pop(key, 0)
    for key, value in model.items():
        assert ours.get(key) == value


def test_a_window_of_consecutive_ids_that_moves_on():
    ours = IdMap()
    for first in range(5000):
        ours.put(first, first + 1)
        if first >= 250:
            assert ours.take(first - 250) == first - 249
    assert [ours.get(key) for key in (4749, 4750, 4999)] == [0, 4751, 5000]
