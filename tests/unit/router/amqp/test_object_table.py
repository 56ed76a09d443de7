"""The table of channels and handles, against a dict."""

from hypothesis import given
from hypothesis import strategies as st
from router.amqp.object_table import ObjectTable

NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 65535))


@given(st.lists(st.tuples(st.booleans(), NUMBERS), max_size=200))
def test_like_a_dict(steps):
    table, model = ObjectTable(), {}
    for put, number in steps:
        if put and number not in model:
            table[number] = model[number] = object()
        elif not put:
            del table[number]
            model.pop(number, None)
        assert table[number] is model.get(number)
    found, _length = table.all()
    assert {id(what) for what in found} == {id(what) for what in model.values()}
    assert table.free() == next(n for n in range(len(model) + 1) if n not in model)


def test_a_large_number_costs_no_more_than_a_small_one():
    table = ObjectTable()
    table[65535] = "far"
    assert table.all() == (["far"], 0)
