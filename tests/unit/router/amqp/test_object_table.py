"""Table of channels and handles, compared with a dict; its memory follows the number of objects."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.testing.engine import ObjectTableView

NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 65535))
ENTRIES_PER_OBJECT = 4  # most list entries per object
SLACK = 32  # list entries allowed on top


def check_length(table, objects):
    _found, length = table.content()
    assert length <= ENTRIES_PER_OBJECT * objects + SLACK


@given(st.lists(st.tuples(st.booleans(), NUMBERS), max_size=200))
def test_table_with_random_steps_equals_dict(steps):
    table, model = ObjectTableView(), {}
    for put, number in steps:
        if put:
            table[number] = model[number] = object()
        else:
            del table[number]
            model.pop(number, None)
        assert table[number] is model.get(number)
        check_length(table, len(model))
    found, _length = table.content()
    assert {id(what) for what in found} == {id(what) for what in model.values()}
    assert table.free() == next(n for n in range(len(model) + 1) if n not in model)


def test_table_with_large_number_has_no_list():
    table = ObjectTableView()
    table[65535] = "far"
    assert table.content() == (["far"], 0)


@pytest.mark.parametrize("step", [1, 16, 17, 1000])
def test_table_with_rising_numbers_of_one_object_stays_short(step):
    table = ObjectTableView()
    for number in range(0, 20_000 * step, step):
        table[number] = "one"
        check_length(table, 1)
        assert table[number] == "one"
        del table[number]
    assert table.content()[1] <= SLACK


@pytest.mark.parametrize("seed", range(5))
def test_table_that_grows_and_shrinks_equals_dict_and_stays_short(seed):
    """Thousands of objects are added and nearly all removed, repeatedly. Numbers rise, or are the lowest free ones."""
    random, table = Random(seed), ObjectTableView()
    model: dict[int, object] = {}
    following = 0
    for _ in range(6):
        most, left = random.choice([10, 300, 3000]), random.choice([0, 1, 8])
        while len(model) < most:
            number = following if random.random() < 0.5 else table.free()
            following = max(following, number) + random.choice([1, 1, 2, 16, 40])
            table[number] = model[number] = object()
            check_length(table, len(model))
        for number in random.sample(sorted(model), len(model) - left):
            del table[number]
            del model[number]
            check_length(table, len(model))
        assert [table[number] for number in model] == list(model.values())
        found, _length = table.content()
        assert {id(what) for what in found} == {id(what) for what in model.values()}
        assert table.free() == next(n for n in range(len(model) + 1) if n not in model)


def test_lowest_free_number_of_many_objects_is_found_again():
    table = ObjectTableView()
    for number in range(5000):
        assert table.free() == number
        table[number] = number
    for number in (4000, 17, 0):
        del table[number]
        assert table.free() == number
    for number in (0, 17, 4000, 5000):
        assert table.free() == number
        table[number] = number
